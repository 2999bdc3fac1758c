//! What programs with a testbed in their hands tell people.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// Like `println!`, but whoever reads may leave early, as `head` does. Then the rest is lost and the work goes on: a
/// testbed or a fault that is left half done is worse than a line that nobody sees.
#[macro_export]
macro_rules! say {
    ($($text:tt)+) => { $crate::say::line(format_args!($($text)+)) };
}

pub fn line(text: fmt::Arguments<'_>) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.expect("cannot write to standard output"),
    }
}

/// `4:57`
pub fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes_and_seconds() {
        for (seconds, expected) in [(0, "0:00"), (59, "0:59"), (60, "1:00"), (297, "4:57"), (4000, "66:40")] {
            assert_eq!(clock(Duration::from_secs(seconds)), expected);
        }
    }
}
