//! The commands of `docs/user-guide.md` that run until they are stopped, and so cannot be run as they stand there:
//! `kubectl get pods -w` and `kubectl port-forward`. All other commands are run by `documents::user-guide`.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::LIMIT;
use crate::etcd::{CLIENT_PORT, Member};
use crate::runner::Context;
use crate::test::{About, Test, Topology};
use crate::{wait, workspace};

const NAMESPACE: &str = "test-scaling";
const CLUSTER: &str = "test-scaling-cluster";
const FIRST_POD: &str = "test-scaling-cluster-0";
const MANIFEST: &str = "test/testdata/test-scaling-scenarios.yaml";
const NODE_PORT: u16 = 30379;

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
    through_every_node(context).await?;
    through_port_forward(context).await?;
    kubectl.run(&["delete", "-f", &manifest]).await?;
    let namespaces = Api::<Namespace>::all(context.client().clone());
    wait::gone(namespaces, NAMESPACE, "the namespace is gone", LIMIT).await
}

async fn through_every_node(context: &Context) -> Result<()> {
    let services = context.kubectl().run(&["get", "services", "-n", NAMESPACE]).await?;
    ensure!(services.contains(&format!("{CLIENT_PORT}:{NODE_PORT}/TCP")), "no node port:\n{services}");
    for node in context.bed().nodes() {
        let member = Member { name: node.name(), address: (node.address(), NODE_PORT).into() };
        let reads = async || Ok(member.linearizable_read("greeting").await?.as_deref() == Some("hello"));
        wait::until(&format!("{node} answers on port {NODE_PORT}"), LIMIT, reads).await?;
    }
    context.step("reached through the node port");
    Ok(())
}

async fn through_port_forward(context: &Context) -> Result<()> {
    let service = format!("svc/{CLUSTER}-client");
    let forward = context.kubectl().port_forward(&["-n", NAMESPACE, &service, ":2379"]).await?;
    let local = Member { name: service, address: forward.address };
    let value = local.linearizable_read("greeting").await?;
    ensure!(value.as_deref() == Some("hello"), "not our data through port-forward: {value:?}");
    forward.stop().await?;
    context.step("reached through port-forward");
    Ok(())
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
