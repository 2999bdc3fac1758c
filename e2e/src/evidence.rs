//! What is kept of a test that failed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testbed::cluster::Testbed;
use testbed::fault;

use crate::kubectl::Kubectl;
use crate::{install, workspace};

/// How much of each log is kept.
const LOG_LINES: usize = 300;
/// Of the operator's: it tells of all clusters.
const OPERATOR_LOG_LINES: usize = 2000;

pub fn directory(test: &str) -> PathBuf {
    workspace::results().join("e2e").join(test.replace("::", "-"))
}

/// Forgets the evidence of an earlier run.
pub fn clear(test: &str) {
    let _ = std::fs::remove_dir_all(directory(test));
}

/// Collects what can be had: a cluster that is broken does not answer every question.
pub async fn collect(
    test: &str,
    error: &str,
    bed: Option<&Testbed>,
    namespace: Option<&str>,
) -> Result<PathBuf> {
    let directory = directory(test);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    keep(&directory, "error.txt", error)?;
    let Some(bed) = bed else { return Ok(directory) };
    let kubectl = Kubectl::new(bed.kubectl(), Some(bed.kubeconfig()));
    ask(&kubectl, &directory, "nodes.txt", &["get", "nodes,persistentvolumes", "--output=wide"]).await?;
    if let Some(namespace) = namespace {
        let within = ["--namespace", namespace];
        // Without their content.
        let all = ["get", "all,persistentvolumeclaims,secrets", "--output=wide"];
        ask(&kubectl, &directory, "objects.txt", &[&within[..], &all].concat()).await?;
        let pods = ["get", "pods", "--output=yaml"];
        ask(&kubectl, &directory, "pods.yaml", &[&within[..], &pods].concat()).await?;
        let events = ["get", "events", "--sort-by=.metadata.creationTimestamp"];
        ask(&kubectl, &directory, "events.txt", &[&within[..], &events].concat()).await?;
        let clusters = [
            "get",
            "etcdclusters,statefulsets,configmaps,poddisruptionbudgets,networkpolicies",
            "--output=yaml",
        ];
        ask(&kubectl, &directory, "clusters.yaml", &[&within[..], &clusters].concat()).await?;
        logs_of_pods(&kubectl, &directory, namespace, LOG_LINES).await?;
    }
    logs_of_pods(&kubectl, &directory, install::NAMESPACE, OPERATOR_LOG_LINES).await?;
    let faults = fault::in_effect(bed.layout()).map(|faults| format!("{faults:#?}"));
    keep(&directory, "faults.txt", &faults.unwrap_or_else(|error| error.to_string()))?;
    logs_of_daemons(&bed.layout().logs(), &directory)?;
    Ok(directory)
}

async fn logs_of_pods(kubectl: &Kubectl, directory: &Path, namespace: &str, lines: usize) -> Result<()> {
    let listed = kubectl
        .ask(&["get", "pods", "--namespace", namespace, "--output=name", "--request-timeout=5s"])
        .await?;
    let tail = format!("--tail={lines}");
    for pod in listed.out.lines() {
        let file = pod.replace('/', "-");
        let common =
            ["logs", "--namespace", namespace, pod, "--all-containers", &tail, "--request-timeout=5s"];
        ask(kubectl, directory, &format!("{file}.log"), &common).await?;
        let former = [&common[..], &["--previous"]].concat();
        if let Ok(said) = kubectl.ask(&former).await
            && said.ok
        {
            keep(directory, &format!("{file}.previous.log"), &said.out)?;
        }
    }
    Ok(())
}

fn logs_of_daemons(logs: &Path, directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap_or_default()).into_owned();
        keep(
            directory,
            &format!("testbed-{}", entry.file_name().to_string_lossy()),
            &tail(&text, LOG_LINES),
        )?;
    }
    Ok(())
}

/// The answer or, as good, the reason why there is none.
async fn ask(kubectl: &Kubectl, directory: &Path, file: &str, arguments: &[&str]) -> Result<()> {
    let mut arguments = arguments.to_vec();
    arguments.push("--request-timeout=5s");
    let said = kubectl.ask(&arguments).await?;
    keep(directory, file, &format!("{}{}", said.out, said.err))
}

fn keep(directory: &Path, file: &str, text: &str) -> Result<()> {
    let path = directory.join(file);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
