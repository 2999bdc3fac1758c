//! One at a time: there is one testbed on a machine, and who replaces it must not pull it from under another.

use std::fs::{File, TryLockError};

use anyhow::{Context, Result};

/// Held until it is dropped, or until the process ends in whatever way.
pub struct Turn {
    _file: File,
}

impl Turn {
    /// Waits for other tests and benchmarks of this machine to end.
    pub fn take() -> Result<Self> {
        let directory = testbed::cache::dir();
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join("e2e.lock");
        let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting: other tests or benchmarks use the testbed");
                file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(Self { _file: file })
    }
}
