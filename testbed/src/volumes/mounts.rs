//! What the kernel says is mounted, and which file each loop device reads.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::run;

/// The mount points below a directory; one that is covered by another mount is there twice.
pub fn points_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo").context("cannot read the list of mounts")?;
    Ok(points(&table).into_iter().filter(|point| point != dir && point.starts_with(dir)).collect())
}

fn points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(|line| line.split(|&byte| byte == b' ').nth(4)).map(unescaped).collect()
}

/// Undoes the kernel's `\040` for a space and the like.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        if let Some(code) = code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            path.push(code);
            rest = &after[3..];
        } else {
            path.push(byte);
            rest = after;
        }
    }
    std::ffi::OsString::from_vec(path).into()
}

/// The loop devices whose file lies below a directory, even if the file was removed since.
pub fn loops_below(dir: &Path) -> Vec<String> {
    loops().into_iter().filter(|(_, file)| file.starts_with(dir)).map(|(device, _)| device).collect()
}

/// The loop device that reads this very file.
pub fn loop_of(file: &Path) -> Option<String> {
    loops().into_iter().find(|(_, other)| other == file).map(|(device, _)| device)
}

fn loops() -> Vec<(String, PathBuf)> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backed = devices.filter_map(|device| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        Some((format!("/dev/{}", device.file_name().to_str()?), PathBuf::from(file.trim_end_matches('\n'))))
    });
    backed.collect()
}

/// Frees a loop device: at once, or as soon as nothing has it mounted any more.
pub async fn detach(device: &str) -> Result<()> {
    match run(&["losetup", "--detach", device]).await {
        // It may have gone by itself in the meantime.
        Err(error) if loops().iter().any(|(other, _)| other == device) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_spaces() {
        let table = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            52 27 7:0 / /tmp/a\\040b/pvc-1 rw,relatime shared:3 - ext4 /dev/loop0 rw\n";
        assert_eq!(points(table), [PathBuf::from("/"), PathBuf::from("/tmp/a b/pvc-1")]);
    }

    #[test]
    fn a_backslash_that_is_no_code_stays() {
        assert_eq!(unescaped(b"/a\\b\\13"), PathBuf::from("/a\\b\\13"));
    }
}
