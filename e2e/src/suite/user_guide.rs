//! `docs/user-guide.md`, command by command: what `kubectl` prints has to be what its reader expects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::LIMIT;
use crate::etcd::{CLIENT_PORT, Member};
use crate::runner::Context;
use crate::{evidence, wait, workspace};

const NAMESPACE: &str = "test-scaling";
const CLUSTER: &str = "test-scaling-cluster";
const FIRST_POD: &str = "test-scaling-cluster-0";
const NODE_PORT: u16 = 30379;
/// How much of what a command says goes into the test's own output.
const SHOWN_LINES: usize = 8;
const SHOWN_CHARACTERS: usize = 160;

pub async fn followed(context: &Context) -> Result<()> {
    context.operator().await?;
    let guide = Guide { context, file: workspace::root().join("test/testdata/test-scaling-scenarios.yaml") };
    guide.kubectl("delete namespace test-scaling --ignore-not-found").await?;
    guide.create().await?;
    guide.reach_from_outside().await?;
    guide.scale_out().await?;
    guide.troubleshoot().await?;
    guide.scale_in().await?;
    guide.stop_and_start().await?;
    guide.delete().await
}

struct Guide<'a> {
    context: &'a Context,
    /// The manifest as it is shipped: one member.
    file: PathBuf,
}

impl Guide<'_> {
    async fn create(&self) -> Result<()> {
        let said = self.apply(&self.file).await?;
        for created in [format!("namespace/{NAMESPACE}"), format!("etcdcluster.etcd.etcd.io/{CLUSTER}")] {
            ensure!(said.contains(&format!("{created} ")), "{created} is not created:\n{said}");
        }
        self.watch_pods(1).await?;
        self.settled(1).await?;
        let put = self.etcdctl("put greeting hello").await?;
        ensure!(put.trim() == "OK", "etcdctl put: {put}");
        Ok(())
    }

    /// By a port on every node, and by `kubectl port-forward` to its Service.
    async fn reach_from_outside(&self) -> Result<()> {
        let services = self.kubectl("get services -n test-scaling").await?;
        ensure!(services.contains(&format!("{CLIENT_PORT}:{NODE_PORT}/TCP")), "no node port:\n{services}");
        for node in self.context.bed().nodes() {
            let member = Member { name: node.name(), address: (node.address(), NODE_PORT).into() };
            let reads = async || Ok(member.linearizable_read("greeting").await?.as_deref() == Some("hello"));
            wait::until(&format!("{node} answers on port {NODE_PORT}"), LIMIT, reads).await?;
        }
        let kubectl = self.context.kubectl();
        let service = format!("svc/{CLUSTER}-nodeport");
        let forward = kubectl.port_forward(&["-n", NAMESPACE, &service, ":2379"]).await?;
        let local = Member { name: service, address: forward.address };
        let value = local.linearizable_read("greeting").await?;
        ensure!(value.as_deref() == Some("hello"), "not our data through port-forward: {value:?}");
        forward.stop().await?;
        self.context.step("reached the cluster through the node port and port-forward");
        Ok(())
    }

    async fn scale_out(&self) -> Result<()> {
        let said = self.apply(&self.edited(3)?).await?;
        ensure!(said.contains("configured"), "the edit had no effect:\n{said}");
        self.watch_pods(3).await?;
        self.settled(3).await?;
        self.lists_members(3).await?;
        self.is_healthy().await
    }

    async fn scale_in(&self) -> Result<()> {
        self.apply(&self.edited(1)?).await?;
        self.settled(1).await?;
        let pods = self.pods().await?;
        ensure!(pods.len() == 1, "pods that were to go: {pods:?}");
        self.lists_members(1).await?;
        self.is_healthy().await
    }

    /// What the original's guide suggests to look at when something seems wrong.
    async fn troubleshoot(&self) -> Result<()> {
        let pod = self.kubectl("describe pod -n test-scaling test-scaling-cluster-0").await?;
        ensure!(pod.contains("quay.io/coreos/etcd:v3.5.21"), "not our pod:\n{pod}");
        let logs = self.kubectl("logs -n test-scaling test-scaling-cluster-0 -c etcd").await?;
        ensure!(logs.contains("ready to serve client requests"), "not etcd's log:\n{logs}");
        let endpoints = self.kubectl("get endpoints -n test-scaling test-scaling-cluster-peer").await?;
        ensure!(endpoints.matches(":2380").count() == 3, "not three endpoints:\n{endpoints}");
        let name = "test-scaling-cluster-1.test-scaling-cluster-peer.test-scaling.svc.cluster.local";
        let found =
            self.kubectl(&format!("exec -n test-scaling {FIRST_POD} -c netshoot -- nslookup {name}")).await?;
        ensure!(found.contains(&format!("Name:\t{name}")), "{name} is not found:\n{found}");
        let described = self.kubectl("describe etcd -n test-scaling test-scaling-cluster").await?;
        for said in ["Ready", "Reconciling", "Stalled", "Events:", "Running"] {
            ensure!(described.contains(said), "no {said:?} in:\n{described}");
        }
        Ok(())
    }

    /// The data outlives a time without any pod.
    async fn stop_and_start(&self) -> Result<()> {
        self.kubectl("scale etcd -n test-scaling test-scaling-cluster --replicas=0").await?;
        self.settled(0).await?;
        ensure!(self.pods().await?.is_empty(), "pods of a stopped cluster");
        let volumes = self.kubectl("get pvc -n test-scaling --no-headers").await?;
        let kept = format!("data-{FIRST_POD}");
        ensure!(volumes.lines().count() == 1 && volumes.starts_with(&kept), "volumes:\n{volumes}");
        self.kubectl("scale etcd -n test-scaling test-scaling-cluster --replicas=1").await?;
        self.settled(1).await?;
        let value = self.etcdctl("get greeting --print-value-only").await?;
        ensure!(value.trim() == "hello", "the data is lost: {value:?}");
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        self.kubectl(&format!("delete -f {}", self.file.display())).await?;
        let namespaces = Api::<Namespace>::all(self.context.client().clone());
        wait::gone(namespaces, NAMESPACE, "the namespace is gone", LIMIT).await
    }

    async fn apply(&self, file: &Path) -> Result<String> {
        self.kubectl(&format!("apply -f {}", file.display())).await
    }

    /// As a user would with an editor.
    fn edited(&self, size: u8) -> Result<PathBuf> {
        let shipped = std::fs::read_to_string(&self.file)?;
        let edited = shipped.replace("size: 1\n", &format!("size: {size}\n"));
        ensure!(size == 1 || edited != shipped, "no size in {}", self.file.display());
        let folder = evidence::directory("user_guide");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("size-{size}.yaml"));
        std::fs::write(&file, edited).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// `kubectl get pods -w`, until so many show 2/2.
    async fn watch_pods(&self, size: usize) -> Result<()> {
        self.context.step("$ kubectl get pods -n test-scaling -w");
        let mut watching = self.context.kubectl().keep_running(&["get", "pods", "-n", NAMESPACE, "-w"])?;
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

    /// `kubectl wait`, and what `kubectl get etcd` and `kubectl get pods` say then.
    async fn settled(&self, size: u8) -> Result<()> {
        self.kubectl(&format!("wait -n {NAMESPACE} etcd/{CLUSTER} --for=condition=Ready --timeout=180s"))
            .await?;
        let phase = if size == 0 { "Stopped" } else { "Running" };
        let shown = async || {
            let table = self.context.kubectl().run(&["get", "etcd", "-n", NAMESPACE]).await?;
            let row = row(&table)?;
            let expected = [("NAME", CLUSTER), ("PHASE", phase), ("VERSION", "v3.5.21")];
            let size = size.to_string();
            for (column, value) in expected.into_iter().chain([("SIZE", &*size), ("READY", &*size)]) {
                let found = row.get(column).map(String::as_str);
                ensure!(found == Some(value), "{column} is {found:?}, not {value}:\n{table}");
            }
            Ok(true)
        };
        wait::until(&format!("kubectl get etcd shows {phase}"), LIMIT, shown).await?;
        self.kubectl("get etcd -n test-scaling").await?;
        let all_run = async || {
            let pods = self.pods().await?;
            let run = pods.values().all(|pod| pod == "2/2 Running");
            ensure!(run && pods.len() == usize::from(size), "pods: {pods:?}");
            Ok(true)
        };
        wait::until(&format!("{size} pod(s) show 2/2 Running"), LIMIT, all_run).await
    }

    /// READY and STATUS by name, as `kubectl get pods` shows them.
    async fn pods(&self) -> Result<BTreeMap<String, String>> {
        let shown = self.context.kubectl().run(&["get", "pods", "-n", NAMESPACE, "--no-headers"]).await?;
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let pods = shown.lines().map(words).filter(|words| words.len() > 2);
        Ok(pods.map(|words| (words[0].clone(), format!("{} {}", words[1], words[2]))).collect())
    }

    async fn lists_members(&self, size: usize) -> Result<()> {
        let list = self.etcdctl("member list").await?;
        let started = list.lines().filter(|line| line.split(", ").nth(1) == Some("started")).count();
        ensure!(started == size && list.lines().count() == size, "not {size} started member(s):\n{list}");
        Ok(())
    }

    async fn is_healthy(&self) -> Result<()> {
        let health = self.etcdctl("endpoint health").await?;
        ensure!(health.contains("is healthy: successfully committed proposal"), "{health}");
        Ok(())
    }

    async fn etcdctl(&self, words: &str) -> Result<String> {
        self.kubectl(&format!("exec -n {NAMESPACE} {FIRST_POD} -c etcd -- etcdctl {words}")).await
    }

    /// Runs a command as it stands in the guide, and shows what it said.
    async fn kubectl(&self, words: &str) -> Result<String> {
        self.context.step(format!("$ kubectl {words}"));
        let words: Vec<_> = words.split_whitespace().collect();
        let said = self.context.kubectl().ask(&words).await?;
        let text = format!("{}{}", said.out, said.err);
        ensure!(said.ok, "`kubectl {}` failed:\n{text}", words.join(" "));
        for line in text.lines().take(SHOWN_LINES) {
            self.context.step(line.chars().take(SHOWN_CHARACTERS).collect::<String>());
        }
        Ok(text)
    }
}

/// The only row of a table, by column.
fn row(table: &str) -> Result<BTreeMap<String, String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = table.lines().map(words).collect();
    let [header, row] = &lines[..] else { bail!("not one row:\n{table}") };
    Ok(header.iter().cloned().zip(row.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_by_its_columns() {
        let table = "NAME   PHASE     SIZE   READY\nkv     Running   3      2\n";
        let row = row(table).expect("a row");
        assert_eq!((row["PHASE"].as_str(), row["READY"].as_str()), ("Running", "2"));
        assert!(super::row("No resources found").is_err());
    }
}
