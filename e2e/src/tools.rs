//! A pod with a shell and small network tools, to look at the cluster from the inside.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::kubectl::{Kubectl, Said};
use crate::wait;

/// The testbed serves a stand-in under this name: busybox with all its applets.
pub const IMAGE: &str = "docker.io/nicolaka/netshoot:latest";
pub const USER: i64 = 65532;
const READY_LIMIT: Duration = Duration::from_secs(60);

/// What can be chosen of such a pod.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    /// `None`: anywhere.
    pub node: Option<String>,
    /// Mounted at `/data`.
    pub claim: Option<String>,
    pub image: String,
    /// `None`: Kubernetes' default for the image's tag.
    pub pull_policy: Option<String>,
}

impl Spec {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            node: None,
            claim: None,
            image: IMAGE.into(),
            pull_policy: Some("IfNotPresent".into()),
        }
    }

    pub fn on_node(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self
    }

    pub fn with_claim(mut self, claim: &str) -> Self {
        self.claim = Some(claim.into());
        self
    }

    pub fn image(mut self, image: &str, pull_policy: &str) -> Self {
        self.image = image.into();
        self.pull_policy = Some(pull_policy.into());
        self
    }

    /// Meets Pod Security "restricted".
    pub fn pod(&self) -> Result<Pod> {
        let volumes: Vec<Value> = self
            .claim
            .iter()
            .map(|claim| json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let mounts: Vec<Value> =
            self.claim.iter().map(|_| json!({"name": "data", "mountPath": "/data"})).collect();
        let selector = self.node.as_ref().map(|node| json!({"kubernetes.io/hostname": node}));
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name, "labels": {"app": self.name}},
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": selector,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "tools", "image": self.image, "imagePullPolicy": self.pull_policy,
                    "command": ["sleep", "1000000"],
                    "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        }))
        .context("not a pod")
    }

    /// Creates the pod and waits until it runs.
    pub async fn start(self, client: &Client, kubectl: &Kubectl, namespace: &str) -> Result<Tools> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        pods.create(&PostParams::default(), &self.pod()?).await.context("cannot create the tools pod")?;
        let pod = wait::pod_ready(pods, &self.name, READY_LIMIT).await?;
        let address = pod.status.and_then(|status| status.pod_ip?.parse().ok());
        let address = address.context("the pod is ready but has no address")?;
        Ok(Tools { kubectl: kubectl.clone(), namespace: namespace.into(), pod: self.name, address })
    }
}

/// The running pod.
#[derive(Clone, Debug)]
pub struct Tools {
    kubectl: Kubectl,
    namespace: String,
    pub pod: String,
    pub address: Ipv4Addr,
}

impl Tools {
    pub async fn ask(&self, words: &[&str]) -> Result<Said> {
        let mut arguments = vec!["exec", "--namespace", &self.namespace, &self.pod, "--"];
        arguments.extend(words);
        self.kubectl.ask(&arguments).await
    }

    pub async fn run(&self, words: &[&str]) -> Result<String> {
        let said = self.ask(words).await?;
        ensure!(said.ok, "`{}` in pod {} failed: {}{}", words.join(" "), self.pod, said.out, said.err);
        Ok(said.out)
    }

    /// What cluster DNS says about a full name.
    pub async fn look_up(&self, name: &str) -> Result<Answer> {
        let said = self.ask(&["nslookup", "-type=a", name]).await?;
        read_answer(&format!("{}{}", said.out, said.err))
    }

    /// What cluster DNS calls an address.
    pub async fn look_up_address(&self, address: Ipv4Addr) -> Result<Answer> {
        let [a, b, c, d] = address.octets();
        let name = format!("{d}.{c}.{b}.{a}.in-addr.arpa");
        let said = self.ask(&["nslookup", "-type=ptr", &name]).await?;
        read_answer(&format!("{}{}", said.out, said.err))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses of a name, or names of an address.
    Found(Vec<String>),
    /// NXDOMAIN, or another way to say that there is nothing.
    Nothing,
    /// SERVFAIL: nobody is responsible.
    Failure,
}

impl Answer {
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Found(_))
    }
}

/// Reads what busybox's nslookup prints. The server's own address stands above the first empty line.
fn read_answer(text: &str) -> Result<Answer> {
    let body = text.split_once("\n\n").map_or(text, |(_, body)| body);
    let name = |line: &str| line.split_once("name = ").map(|(_, name)| name.trim().to_owned());
    let address = |line: &str| line.strip_prefix("Address:").map(|address| address.trim().to_owned());
    let found: Vec<_> = body.lines().filter_map(|line| address(line).or_else(|| name(line))).collect();
    if !found.is_empty() {
        return Ok(Answer::Found(found));
    }
    if ["NXDOMAIN", "No answer", "REFUSED"].iter().any(|no| body.contains(no)) {
        return Ok(Answer::Nothing);
    }
    if body.contains("SERVFAIL") {
        return Ok(Answer::Failure);
    }
    bail!("cluster DNS did not respond: {}", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n";

    #[test]
    fn names_and_addresses_are_read_but_not_the_servers_own() {
        let forward = format!("{SERVER}Name:\tweb.ns.svc.cluster.local\nAddress: 10.96.3.4\n\n");
        assert_eq!(read_answer(&forward).expect("read"), Answer::Found(vec!["10.96.3.4".into()]));
        let reverse = format!("{SERVER}4.2.244.10.in-addr.arpa\tname = etcd-0.etcd.ns.svc.cluster.local\n\n");
        assert_eq!(
            read_answer(&reverse).expect("read"),
            Answer::Found(vec!["etcd-0.etcd.ns.svc.cluster.local".into()])
        );
    }

    #[test]
    fn a_no_is_not_a_silence() {
        let no = format!("{SERVER}** server can't find web.ns.svc.cluster.local: NXDOMAIN\n\n");
        assert_eq!(read_answer(&no).expect("read"), Answer::Nothing);
        let failure = no.replace("NXDOMAIN", "SERVFAIL");
        assert_eq!(read_answer(&failure).expect("read"), Answer::Failure);
        assert!(read_answer(";; connection timed out; no servers could be reached\n\n").is_err());
    }
}
