//! The yardstick: etcd as anyone would run it by hand, in a StatefulSet with static bootstrap.
//!
//! Nothing can bring up etcd on Kubernetes faster than this, so what the operator adds is told as a ratio to it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::access::ClientSecrets;
use crate::etcd::{CLIENT_PORT, Member, PEER_PORT};
use crate::serving::Serving;
use crate::{FIELD_MANAGER, wait};

pub const VERSION: &str = "v3.5.21";
pub const CONTAINER: &str = "etcd";
/// Where etcd keeps its data in the container; the volume is mounted one level up, where `lost+found` may be.
pub const DATA_DIR: &str = "/var/lib/etcd/data";
/// Between two looks for the moment when all members serve.
const GLANCE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Plain {
    pub namespace: String,
    pub name: String,
    pub size: usize,
    pub version: String,
    /// One member per node, enforced.
    pub spread: bool,
    pub volume: String,
}

impl Plain {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, size: usize) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            size,
            version: VERSION.into(),
            spread: false,
            volume: "1Gi".into(),
        }
    }

    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    pub fn volume(mut self, size: &str) -> Self {
        self.volume = size.into();
        self
    }

    pub fn pod(&self, ordinal: usize) -> String {
        format!("{}-{ordinal}", self.name)
    }

    pub fn claim(&self, ordinal: usize) -> String {
        format!("data-{}-{ordinal}", self.name)
    }

    pub fn pods(&self, client: &Client) -> Api<Pod> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    pub fn selector(&self) -> String {
        format!("app.kubernetes.io/name=etcd,app.kubernetes.io/instance={}", self.name)
    }

    /// Writes the Service and the StatefulSet; a second time changes nothing.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        let force = PatchParams::apply(FIELD_MANAGER).force();
        Api::<Service>::namespaced(client.clone(), &self.namespace)
            .patch(&self.name, &force, &Patch::Apply(self.service()))
            .await
            .with_context(|| format!("cannot apply Service {}", self.name))?;
        Api::<StatefulSet>::namespaced(client.clone(), &self.namespace)
            .patch(&self.name, &force, &Patch::Apply(self.stateful_set()))
            .await
            .with_context(|| format!("cannot apply StatefulSet {}", self.name))?;
        Ok(())
    }

    /// As `kubectl rollout restart` does, and waits as `kubectl rollout status` does.
    pub async fn restart(&self, client: &Client, limit: Duration) -> Result<()> {
        let sets = Api::<StatefulSet>::namespaced(client.clone(), &self.namespace);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos().to_string();
        let mark = json!({"kubectl.kubernetes.io/restartedAt": now});
        let change = json!({"spec": {"template": {"metadata": {"annotations": mark}}}});
        let patched = sets.patch(&self.name, &PatchParams::default(), &Patch::Merge(&change)).await;
        let generation =
            patched.with_context(|| format!("cannot restart {}", self.name))?.metadata.generation;
        let what = format!("every pod of {} was restarted and is ready", self.name);
        let restarted = |set: &StatefulSet| {
            let Some(status) = &set.status else { return false };
            let all = i32::try_from(self.size).ok();
            status.observed_generation >= generation
                && status.updated_replicas == all
                && status.ready_replicas == all
                && status.current_revision == status.update_revision
        };
        wait::present(sets, &self.name, &what, limit, restarted).await.map(drop)
    }

    /// Removes it with its data, and waits until it is gone.
    pub async fn delete(&self, client: &Client, limit: Duration) -> Result<()> {
        let background = DeleteParams::background();
        let selected = ListParams::default().labels(&self.selector());
        let sets = Api::<StatefulSet>::namespaced(client.clone(), &self.namespace);
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &self.namespace);
        sets.delete_collection(&background, &selected).await.context("cannot delete the StatefulSet")?;
        let services = Api::<Service>::namespaced(client.clone(), &self.namespace);
        services.delete_collection(&background, &selected).await.context("cannot delete the Service")?;
        claims.delete_collection(&background, &selected).await.context("cannot delete the claims")?;
        let selected = watcher::Config::default().labels(&self.selector());
        let what = format!("{} and its volumes are deleted", self.name);
        wait::objects(self.pods(client), selected.clone(), &what, limit, BTreeMap::is_empty).await?;
        wait::objects(claims, selected, &what, limit, BTreeMap::is_empty).await?;
        Ok(())
    }

    /// Waits until each member has served a linearizable read, and tells of each as it does.
    pub async fn serving(
        &self,
        client: &Client,
        limit: Duration,
        served: impl FnMut(&Member),
    ) -> Result<Vec<Member>> {
        let serving = Serving {
            pods: self.pods(client),
            selector: self.selector(),
            count: self.size,
            secrets: ClientSecrets::none(),
            pause: GLANCE_PAUSE,
        };
        serving.wait(&format!("all {} members of {} serve", self.size, self.name), limit, served).await
    }

    /// Waits until all pods are ready, and tells of each as it is. Works where pods are out of this machine's reach.
    pub async fn ready(&self, client: &Client, limit: Duration, mut told: impl FnMut(&str)) -> Result<()> {
        let mut waiting: FuturesUnordered<_> = (0..self.size)
            .map(|ordinal| async move { wait::pod_ready(self.pods(client), &self.pod(ordinal), limit).await })
            .collect();
        while let Some(pod) = waiting.try_next().await? {
            told(&pod.name_any());
        }
        Ok(())
    }

    /// Applies it and waits until all members serve and all pods are ready.
    pub async fn create(&self, client: &Client, limit: Duration) -> Result<Vec<Member>> {
        self.apply(client).await?;
        let members = self.serving(client, limit, |_| {}).await?;
        self.ready(client, limit, |_| {}).await?;
        Ok(members)
    }

    /// The node that each pod runs on.
    pub async fn nodes(&self, client: &Client) -> Result<BTreeMap<String, String>> {
        let selected = ListParams::default().labels(&self.selector());
        let pods = self.pods(client).list(&selected).await.context("cannot list pods")?;
        let placed = pods.into_iter().map(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            Ok((pod.name_any(), node.with_context(|| format!("{} has no node", pod.name_any()))?))
        });
        placed.collect()
    }

    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": self.name})
    }

    fn url(&self, pod: &str, port: u16) -> String {
        format!("http://{pod}.{}.{}.svc.cluster.local:{port}", self.name, self.namespace)
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": self.name, "labels": self.labels()},
            "spec": {
                "clusterIP": "None",
                // Members look each other up before any of them can be ready.
                "publishNotReadyAddresses": true,
                "selector": self.labels(),
                "ports": [{"name": "client", "port": CLIENT_PORT}, {"name": "peer", "port": PEER_PORT}],
            },
        })
    }

    fn stateful_set(&self) -> Value {
        let one_per_node = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": self.labels()},
        }]);
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": self.name, "labels": self.labels()},
            "spec": {
                "serviceName": self.name,
                "replicas": self.size,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": self.labels()},
                "template": {
                    "metadata": {"labels": self.labels()},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 5,
                        "securityContext": {
                            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "topologySpreadConstraints": if self.spread { one_per_node } else { json!([]) },
                        "containers": [self.container()],
                    },
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data", "labels": self.labels()},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": self.volume}},
                    },
                }],
            },
        })
    }

    fn container(&self) -> Value {
        let peers: Vec<_> = (0..self.size)
            .map(|ordinal| {
                let pod = self.pod(ordinal);
                format!("{pod}={}", self.url(&pod, PEER_PORT))
            })
            .collect();
        json!({
            "name": CONTAINER,
            "image": format!("quay.io/coreos/etcd:{}", self.version),
            "command": [
                "/usr/local/bin/etcd", "--name=$(POD)", format!("--data-dir={DATA_DIR}"),
                format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
                format!("--listen-peer-urls=http://0.0.0.0:{PEER_PORT}"),
                format!("--advertise-client-urls={}", self.url("$(POD)", CLIENT_PORT)),
                format!("--initial-advertise-peer-urls={}", self.url("$(POD)", PEER_PORT)),
                format!("--initial-cluster={}", peers.join(",")),
                format!("--initial-cluster-token={}-{}", self.namespace, self.name),
            ],
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                // etcdctl in the pod works as it is.
                {"name": "ETCDCTL_API", "value": "3"},
                {"name": "ETCDCTL_ENDPOINTS", "value": format!("http://127.0.0.1:{CLIENT_PORT}")},
            ],
            "ports": [
                {"name": "client", "containerPort": CLIENT_PORT},
                {"name": "peer", "containerPort": PEER_PORT},
            ],
            "readinessProbe": {"httpGet": {"path": "/health", "port": CLIENT_PORT}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_knows_every_peer_by_its_full_name() {
        let set: StatefulSet =
            serde_json::from_value(Plain::new("ns", "etcd", 3).stateful_set()).expect("a StatefulSet");
        let template = set.spec.expect("spec").template.spec.expect("pod spec");
        let command = template.containers[0].command.clone().expect("command");
        let peers = command.iter().find(|word| word.starts_with("--initial-cluster=")).expect("peers");
        for ordinal in 0..3 {
            let peer = format!("etcd-{ordinal}=http://etcd-{ordinal}.etcd.ns.svc.cluster.local:2380");
            assert!(peers.contains(&peer), "{peers}");
        }
    }

    #[test]
    fn only_a_spread_one_insists_on_different_nodes() {
        let constraints = |plain: Plain| {
            plain
                .stateful_set()
                .pointer("/spec/template/spec/topologySpreadConstraints")
                .and_then(Value::as_array)
                .map(Vec::len)
        };
        assert_eq!(constraints(Plain::new("ns", "etcd", 3)), Some(0));
        assert_eq!(constraints(Plain::new("ns", "etcd", 3).spread()), Some(1));
    }

    #[test]
    fn the_pods_meet_pod_security_restricted() {
        let set = Plain::new("ns", "etcd", 1).stateful_set();
        let at = |path: &str| set.pointer(&format!("/spec/template/spec{path}")).cloned();
        assert_eq!(at("/securityContext/runAsNonRoot"), Some(json!(true)));
        assert_eq!(at("/securityContext/seccompProfile/type"), Some(json!("RuntimeDefault")));
        assert_eq!(at("/containers/0/securityContext/allowPrivilegeEscalation"), Some(json!(false)));
        assert_eq!(at("/containers/0/securityContext/capabilities/drop"), Some(json!(["ALL"])));
    }
}
