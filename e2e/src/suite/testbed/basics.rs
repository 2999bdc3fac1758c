//! What anyone expects of a Kubernetes.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::LIMIT;
use crate::access::Access;
use crate::etcd::{CLIENT_PORT, Member};
use crate::runner::Context;
use crate::tools::{Answer, Spec};
use crate::wait;

pub async fn from_outside(context: &Context) -> Result<()> {
    let etcd = context.plain(1);
    etcd.create(context.client(), LIMIT).await?;
    let (kubectl, pod) = (context.kubectl(), etcd.pod(0));
    let within = ["--namespace", &context.namespace];

    let command = ["exec", &pod, "--", "etcdctl", "endpoint", "status", "--cluster", "-w", "table"];
    let table = kubectl.run(&[&within[..], &command].concat()).await?;
    ensure!(table.contains(&etcd.version[1..]) && table.contains("true"), "no leader in the table:\n{table}");
    context.step("exec works");

    let logs = kubectl.run(&[&within[..], &["logs", &pod]].concat()).await?;
    ensure!(logs.contains("ready to serve client requests"), "not etcd's log:\n{logs}");
    context.step("logs work");

    let forward = kubectl.port_forward(&[&within[..], &[&pod, ":2379"]].concat()).await?;
    let local = Member { name: pod, address: forward.address, access: Access::Plain };
    let status = local.status().await?;
    ensure!(format!("v{}", status.version) == etcd.version, "not our etcd: {status:?}");
    forward.stop().await?;
    ensure!(local.status().await.is_err(), "answers without port-forward");
    context.step("port-forward works");
    Ok(())
}

pub async fn node_port(context: &Context) -> Result<()> {
    let etcd = context.plain(1);
    etcd.create(context.client(), LIMIT).await?;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "outside"},
        "spec": {
            "type": "NodePort", "ports": [{"port": CLIENT_PORT}],
            "selector": {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": etcd.name},
        },
    }))?;
    let services = Api::<Service>::namespaced(context.client().clone(), &context.namespace);
    let created = services.create(&PostParams::default(), &service).await?;
    let port = created.spec.and_then(|spec| spec.ports?.first()?.node_port).context("no port was given")?;
    let port = u16::try_from(port)?;
    for node in context.bed().nodes() {
        let address = (node.address(), port).into();
        let member = Member { name: node.name(), address, access: Access::Plain };
        let what = format!("{node} answers on the port");
        wait::until(&what, LIMIT, async || member.status().await.map(|_| true)).await?;
    }
    context.step("every node answers");
    Ok(())
}

pub async fn services_from_a_pod(context: &Context) -> Result<()> {
    let etcd = context.plain(1);
    etcd.apply(context.client()).await?;
    let tools = Spec::named("tools").start(context.client(), &context.kubectl(), &context.namespace).await?;
    let members = etcd.serving(context.client(), LIMIT, |_| {}).await?;

    let answer = tools.look_up("kubernetes.default.svc.cluster.local").await?;
    ensure!(answer == Answer::Found(vec!["10.96.0.1".into()]), "the API's own Service: {answer:?}");
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "inside"},
        "spec": {
            "ports": [{"port": 80, "targetPort": CLIENT_PORT}],
            "selector": {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": etcd.name},
        },
    }))?;
    let services = Api::<Service>::namespaced(context.client().clone(), &context.namespace);
    let address = services
        .create(&PostParams::default(), &service)
        .await?
        .spec
        .and_then(|spec| spec.cluster_ip)
        .context("no address was given")?;

    let fetch = async |host: &str| {
        let url = format!("http://{host}/version");
        // Not by wget's own `-T`, with which Debian's busybox crashes.
        tools.run(&["timeout", "5", "wget", "-q", "-O", "-", &url]).await
    };
    let by_address = async || Ok(fetch(&address).await?.contains("etcdserver"));
    wait::until("the Service answers", LIMIT, by_address).await?;
    context.step("a Service answers by address");

    let name = format!("inside.{}.svc.cluster.local", context.namespace);
    let by_name = fetch(&name).await?;
    ensure!(by_name.contains("etcdserver"), "not etcd's version: {by_name}");
    context.step("a Service answers by name");

    // A headless Service names each pod.
    let member = format!("{}.{}.{}.svc.cluster.local", etcd.pod(0), etcd.name, context.namespace);
    let answer = tools.look_up(&member).await?;
    ensure!(answer == Answer::Found(vec![members[0].address.ip().to_string()]), "{member}: {answer:?}");
    Ok(())
}

pub async fn pod_security(context: &Context) -> Result<()> {
    let mut pod = Spec::named("privileged").pod()?;
    let container = pod.spec.as_mut().and_then(|spec| spec.containers.first_mut()).context("a container")?;
    let security = container.security_context.as_mut().context("a security context")?;
    security.privileged = Some(true);
    security.allow_privilege_escalation = None;
    match context.pods().create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(refusal)) if refusal.code == 403 && refusal.message.contains("PodSecurity") => {}
        Err(error) => bail!("refused, but not by Pod Security: {error}"),
        Ok(_) => bail!("a privileged pod was let in"),
    }
    context.step("the privileged pod was refused");
    let harmless = Spec::named("harmless").pod()?;
    context
        .pods()
        .create(&PostParams::default(), &harmless)
        .await
        .context("a harmless pod must be let in")?;
    Ok(())
}

pub async fn zones(context: &Context) -> Result<()> {
    let etcd = context.plain(3).spread();
    etcd.create(context.client(), LIMIT).await?;
    let mut zones = std::collections::BTreeSet::new();
    for node in etcd.nodes(context.client()).await?.into_values() {
        let node = Api::<Node>::all(context.client().clone()).get(&node).await?;
        let labels = node.metadata.labels.unwrap_or_default();
        zones.insert(labels.get("topology.kubernetes.io/zone").cloned().context("a node without a zone")?);
    }
    ensure!(zones.into_iter().eq(["z1", "z2", "z3"]), "not one member in each zone");
    let pods: Vec<Pod> = context.pods().list(&Default::default()).await?.items;
    ensure!(pods.iter().all(wait::is_ready), "not all ready");
    Ok(())
}
