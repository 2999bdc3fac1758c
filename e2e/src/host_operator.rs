//! The operator as a process of this machine, which can be killed between any two of its steps: its log tells of each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::evidence;
use crate::install::{self, DEPLOYMENT, NAMESPACE};
use crate::operated::Operated;
use crate::runner::Context;

/// What a pod would tell the operator about itself: this one is in none, whatever this machine is.
const ABOUT_PODS: [&str; 3] = ["KUBERNETES_SERVICE_HOST", "POD_NAME", "POD_NAMESPACE"];

/// Ends when it is dropped.
pub struct HostOperator {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    kept: File,
    client: Client,
}

impl HostOperator {
    /// Starts it as `make run` does, with further arguments. No other operator should be at work.
    pub fn start(context: &Context, arguments: &[&str]) -> Result<Self> {
        let program = install::program()?;
        let mut command = Command::new(&program);
        command.args(["run", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]).args(arguments);
        command.env("KUBECONFIG", context.bed().kubeconfig());
        for name in ABOUT_PODS {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let log = BufReader::new(process.stderr.take().context("no log")?).lines();
        Ok(Self { process, log, kept: kept_log(context)?, client: context.client().clone() })
    }

    /// Waits for the next step that it takes with this cluster, and tells what that was.
    pub async fn next_step(&mut self, cluster: &Operated) -> Result<String> {
        let object = format!("EtcdCluster {}/{}", cluster.namespace, cluster.name);
        loop {
            let line = self.log.next_line().await?.context("the operator on this machine has exited")?;
            writeln!(self.kept, "{line}").context("cannot save the operator's log")?;
            if let Some(action) = step(&line, &object) {
                return Ok(action);
            }
        }
    }

    /// Kills it without a warning, and tells what it did with this cluster before it noticed.
    pub async fn kill_and_read(mut self, cluster: &Operated) -> Result<Vec<String>> {
        self.process.start_kill().context("cannot kill the operator on this machine")?;
        let mut steps = Vec::new();
        while let Ok(step) = self.next_step(cluster).await {
            steps.push(step);
        }
        self.kill().await.map(|()| steps)
    }

    /// Kills it without a warning. The Lease that it leaves is removed: waiting for its end would make a test with many
    /// kills last for minutes, and shows nothing that tests with two operators do not show.
    pub async fn kill(mut self) -> Result<()> {
        self.process.kill().await.context("cannot kill the operator on this machine")?;
        writeln!(self.kept, "killed").context("cannot save the operator's log")?;
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        match leases.delete(DEPLOYMENT, &DeleteParams::default()).await {
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
            deleted => deleted.map(drop).context("cannot delete the Lease of the killed operator"),
        }
    }
}

fn kept_log(context: &Context) -> Result<File> {
    let directory = evidence::directory(context.test);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let file = directory.join("operator-on-this-machine.log");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .with_context(|| format!("cannot open {}", file.display()))
}

/// The step that a line of the log tells of, if it is one with this object.
fn step(line: &str, object: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is = |field: &str, value: &str| line[field].as_str() == Some(value);
    (is("message", "step done") && is("object", object))
        .then(|| line["action"].as_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_with_the_cluster_in_question_count() {
        let line = |message: &str, object: &str| {
            format!(r#"{{"level":"INFO","message":"{message}","object":"{object}","action":"delete pod 1"}}"#)
        };
        assert_eq!(
            step(&line("step done", "EtcdCluster ns/kv"), "EtcdCluster ns/kv").as_deref(),
            Some("delete pod 1")
        );
        assert_eq!(step(&line("step done", "EtcdCluster ns/kv2"), "EtcdCluster ns/kv"), None);
        assert_eq!(step(&line("leading", "EtcdCluster ns/kv"), "EtcdCluster ns/kv"), None);
        assert_eq!(step("Segmentation fault", "EtcdCluster ns/kv"), None);
    }
}
