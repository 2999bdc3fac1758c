//! Lines in the format of etcd's own log, which goes on in the same stream once etcd runs.

use std::error::Error;

use jiff::Timestamp;

pub fn info(message: &str, fields: &[(&str, &str)]) {
    write("info", message, fields);
}

pub fn warn(message: &str, fields: &[(&str, &str)]) {
    write("warn", message, fields);
}

pub fn error(message: &str, error: &dyn Error) {
    write("error", message, &[("error", &chain(error))]);
}

/// An error with all its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn write(level: &str, message: &str, fields: &[(&str, &str)]) {
    let now = Timestamp::now().to_string();
    let head = [("level", level), ("ts", &now), ("logger", "etcd-agent"), ("msg", message)];
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let words = head.iter().chain(fields).map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    eprintln!("{{{}}}", words.collect::<Vec<_>>().join(","));
}
