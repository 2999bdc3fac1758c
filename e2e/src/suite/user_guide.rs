//! The commands of `docs/user-guide.md` that cannot be run as they stand there: `kubectl get pods -w` and `kubectl
//! port-forward` run until they are stopped, and `etcdctl` on the machine needs the port that is forwarded, or the address of
//! a node. All other commands are run by `documents::user-guide`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use etcd_operator_tidy::commands::blocks;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::{BACK_OFF_LIMIT, LIMIT};
use crate::etcd::CLIENT_PORT;
use crate::runner::Context;
use crate::test::{About, Test, Topology};
use crate::{evidence, plain, readme, wait, workspace};

const NAMESPACE: &str = "test-scaling";
const CLUSTER: &str = "test-scaling-cluster";
const FIRST_POD: &str = "test-scaling-cluster-0";
const MANIFEST: &str = "test/testdata/test-scaling-scenarios.yaml";
const NODE_PORT: u16 = 30379;
const GUIDE: &str = "docs/user-guide.md";
/// The address of a node in the guide.
const SHOWN_NODE: &str = "192.0.2.10";
/// The section about certificates and `etcdctl` on the machine.
const SECTION: &str = "Connect";

pub fn tests(field: &Topology) -> Vec<Test> {
    let test = field.shared("user_guide::clients_connect_from_outside", |c| outside(c).boxed_local());
    vec![test.smoke().about(About::Documents)]
}

/// A client outside of the cluster reads what was written inside.
async fn outside(context: &Context) -> Result<()> {
    context.operator().await?;
    let manifest = workspace::root().join(MANIFEST).display().to_string();
    let kubectl = context.kubectl();
    kubectl.run(&["delete", "namespace", NAMESPACE, "--ignore-not-found"]).await?;
    kubectl.run(&["apply", "-f", &manifest]).await?;
    watch_pods(context, 1).await?;
    let put = ["exec", "-n", NAMESPACE, FIRST_POD, "-c", "etcd", "--", "etcdctl", "put", "greeting", "hello"];
    let written = async || Ok(kubectl.run(&put).await?.trim() == "OK");
    wait::until("etcdctl can write", LIMIT, written).await?;
    let machine = Machine::prepare(context).await?;
    machine.through_every_node().await?;
    machine.through_port_forward().await?;
    kubectl.run(&["delete", "-f", &manifest]).await?;
    let namespaces = Api::<Namespace>::all(context.client().clone());
    wait::gone(namespaces, NAMESPACE, "the namespace is gone", LIMIT).await
}

/// A machine outside of the cluster, with `etcdctl` and the certificates from the Secret.
struct Machine<'a> {
    context: &'a Context,
    folder: PathBuf,
    /// Where etcdctl is.
    programs: String,
}

impl<'a> Machine<'a> {
    async fn prepare(context: &'a Context) -> Result<Self> {
        let folder = evidence::directory(context.test);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let programs = testbed::build::ensure_etcd(plain::VERSION).await?.dir.display().to_string();
        let machine = Self { context, folder, programs };
        let certificates = shown("kubectl get secret")?;
        ensure!(certificates.len() == 3, "not ca.crt, tls.crt and tls.key: {certificates:?}");
        machine.run(&certificates.join("\n")).await?;
        Ok(machine)
    }

    /// The certificate gets the addresses of all nodes.
    async fn through_every_node(&self) -> Result<()> {
        let services = self.context.kubectl().run(&["get", "services", "-n", NAMESPACE]).await?;
        ensure!(services.contains(&format!("{CLIENT_PORT}:{NODE_PORT}/TCP")), "no node port:\n{services}");
        let addresses: Vec<_> =
            self.context.bed().nodes().iter().map(|node| node.address().to_string()).collect();
        let patch = one("kubectl patch etcd")?;
        self.run(&patch.replace(SHOWN_NODE, &addresses.join("\",\""))).await?;
        let get = one(&format!("etcdctl --endpoints=https://{SHOWN_NODE}:{NODE_PORT} "))?;
        for address in addresses {
            let get = get.replace(SHOWN_NODE, &address);
            let reads = async || self.reads(&get).await.map(|()| true);
            wait::until(&format!("{address} answers on port {NODE_PORT}"), BACK_OFF_LIMIT, reads).await?;
        }
        self.context.step("reached through the node port");
        Ok(())
    }

    async fn through_port_forward(&self) -> Result<()> {
        let (service, local) = (format!("svc/{CLUSTER}-client"), format!("localhost:{CLIENT_PORT}"));
        let get = one(&format!("etcdctl --endpoints=https://{local} "))?;
        let forward = self.context.kubectl().port_forward(&["-n", NAMESPACE, &service, ":2379"]).await?;
        self.reads(&get.replace(&local, &format!("localhost:{}", forward.address.port()))).await?;
        forward.stop().await?;
        self.context.step("reached through port-forward");
        Ok(())
    }

    async fn reads(&self, get: &str) -> Result<()> {
        let printed = self.run(get).await?;
        ensure!(printed.starts_with("greeting\nhello\n"), "not our data: {printed:?}");
        Ok(())
    }

    async fn run(&self, commands: &str) -> Result<String> {
        let script = format!("export PATH={}:$PATH\n{commands}", self.programs);
        readme::run(self.context, &self.folder, &script).await
    }
}

/// The lines of the section that begin with these words.
fn shown(words: &str) -> Result<Vec<String>> {
    let path = workspace::root().join(GUIDE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let blocks = blocks(&text).into_iter().filter(|block| block.section == SECTION && !block.hidden);
    let lines = blocks
        .flat_map(|block| block.commands)
        .flat_map(|command| command.text.lines().map(str::to_owned).collect::<Vec<_>>());
    Ok(lines.filter(|line| line.starts_with(words)).collect())
}

fn one(words: &str) -> Result<String> {
    let lines = shown(words)?;
    ensure!(lines.len() == 1, "{GUIDE}, section {SECTION}: {} lines begin with {words:?}", lines.len());
    Ok(lines.concat())
}

/// `kubectl get pods -w`, until the given number of pods shows 2/2.
async fn watch_pods(context: &Context, size: usize) -> Result<()> {
    context.step("$ kubectl get pods -n test-scaling -w");
    let mut watching = context.kubectl().keep_running(&["get", "pods", "-n", NAMESPACE, "-w"])?;
    let mut last = BTreeMap::new();
    let seen = async {
        loop {
            let line = watching.next_line().await?;
            let mut words = line.split_whitespace().map(str::to_owned);
            let (Some(name), Some(ready)) = (words.next(), words.next()) else { continue };
            last.insert(name, ready);
            if last.values().filter(|ready| *ready == "2/2").count() == size {
                return Ok(());
            }
        }
    };
    let seen: Result<Result<()>, _> = tokio::time::timeout(LIMIT, seen).await;
    if seen.is_err() {
        bail!("not {size} pod(s) with 2/2: {last:?}");
    }
    seen??;
    watching.stop().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_shows_the_commands_that_are_run() {
        assert_eq!(shown("kubectl get secret").expect("readable").len(), 3);
        one(&format!("etcdctl --endpoints=https://localhost:{CLIENT_PORT} ")).expect("through port-forward");
        let patch = one("kubectl patch etcd").expect("the certificate gets addresses");
        assert!(patch.contains(SHOWN_NODE), "{patch}");
        one(&format!("etcdctl --endpoints=https://{SHOWN_NODE}:{NODE_PORT} ")).expect("through a node");
    }
}
