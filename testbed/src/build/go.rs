//! What the installed Go says about itself.

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// The oldest Go that builds every module.
pub const NEEDED: (u32, u32) = (1, 26);

/// The values of some of Go's variables.
///
/// Asked in the root directory: inside a Go module, that module's wishes would be in the answer.
pub async fn variables<const N: usize>(names: [&str; N]) -> Result<[String; N]> {
    let output = Command::new("go")
        .arg("env")
        .args(names)
        .current_dir("/")
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run go")?;
    if !output.status.success() {
        bail!("`go env` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines = printed.lines();
    Ok(names.map(|_| lines.next().unwrap_or_default().to_owned()))
}

/// What decides, beside sources and flags, which program comes out of a build.
pub async fn identity() -> Result<String> {
    Ok(variables(["GOVERSION", "GOOS", "GOARCH"]).await?.join(" "))
}

/// The first two numbers of `1.26.8`, `1.26` or `1.27rc1`.
pub fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
