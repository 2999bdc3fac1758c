//! What a program prints for other programs.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, as in `generate crds | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
