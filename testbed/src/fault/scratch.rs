//! An instance's directory for one test.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::layout::Layout;

pub struct Scratch(Layout);

impl Scratch {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tbtest-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        Self(Layout::at(dir))
    }
}

impl std::ops::Deref for Scratch {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.dir());
    }
}
