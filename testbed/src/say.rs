//! What programs with a testbed in their hands tell people.

use std::fmt;
use std::io::{ErrorKind, Write};

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
