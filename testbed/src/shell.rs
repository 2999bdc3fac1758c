//! Running the machine's own programs (`ip`, `mount`, `iptables` ...) and saying what went wrong.

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a program to its end and returns what it printed; a failure carries its last words.
pub async fn run<S: AsRef<str>>(line: &[S]) -> Result<String> {
    run_with_input(line, "").await
}

pub async fn run_with_input<S: AsRef<str>>(line: &[S], input: &str) -> Result<String> {
    let words: Vec<&str> = line.iter().map(AsRef::as_ref).collect();
    let (program, arguments) = words.split_first().context("the command line is empty")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input may be gone already; its exit status tells.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.with_context(|| format!("cannot wait for {program}"))?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({}): {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program in a network namespace, or on the machine itself where there is none.
pub async fn run_in<S: AsRef<str>>(namespace: Option<&str>, line: &[S]) -> Result<String> {
    let mut words = enter(namespace);
    words.extend(line.iter().map(|word| word.as_ref().to_owned()));
    run(&words).await
}

/// The words in front of a command line that take it into a network namespace.
///
/// Not `ip netns exec`: it would give the program a mount namespace of its own,
/// and containerd would not see the kubelet's volume mounts.
pub fn enter(namespace: Option<&str>) -> Vec<String> {
    namespace.map(|name| vec!["nsenter".into(), format!("--net=/run/netns/{name}")]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_carries_the_command_and_its_last_words() {
        let error = run(&["sh", "-c", "echo no such thing >&2; exit 3"]).await.expect_err("it failed");
        assert!(format!("{error}").contains("no such thing"), "{error}");
    }

    #[tokio::test]
    async fn input_reaches_the_program() {
        assert_eq!(run_with_input(&["cat"], "text").await.expect("cat works"), "text");
    }
}
