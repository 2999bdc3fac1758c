//! What the installed Go says about itself.

use anyhow::{Context, Result, bail};
use tokio::process::Command;

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
