//! What users and machines do to a cluster, and when it is over.

use std::time::Duration;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::etcd_config::PEER_PORT;
use etcd_operator_core::names::{ADOPT_ANNOTATION, MEMBER_ID_LABEL};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::recorder::Recorder;
use crate::scenario::Scenario;
use crate::world::{self, CLUSTER, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates the cluster, or gives it another size.
    Size(u8),
    /// Creates it again, with the volumes of the one that was deleted.
    Adopt(u8),
    Delete,
    /// The node of this pod fails, and when it returns, nothing is on the volume any more.
    LoseVolume(u8),
    /// The node of this pod fails: nothing is reported of the pod any more.
    FailNode(u8),
    ReturnNode(u8),
    /// As Kubernetes does when a node has failed.
    DeletePod(u8),
    /// As users do when a node has failed for good: the pod is gone although no kubelet says so.
    ForceDeletion(u8),
    DeleteService(&'static str),
}

/// When a step is over.
pub enum Until {
    Ready(u8),
    /// So many members serve, whatever else is going on.
    Serving(u8),
    Terminating(u8),
    /// Everything is gone but volumes.
    Gone,
    /// Ready, and the volume of this pod has the data of another member than before.
    Replaced {
        size: u8,
        claim: String,
        member: Value,
    },
    /// There is another Service of this name than before.
    Another {
        service: &'static str,
        uid: Option<String>,
    },
}

/// One cluster, and what has to be remembered of it from step to step.
pub struct Cluster<'a> {
    pub world: &'a World,
    pub namespace: &'a str,
    size: Option<u8>,
    uid: Option<String>,
}

impl<'a> Cluster<'a> {
    pub fn new(world: &'a World, namespace: &'a str) -> Self {
        Self { world, namespace, size: None, uid: None }
    }

    pub async fn take(&mut self, step: Step, scenario: &Scenario) -> Until {
        let clusters: Api<EtcdCluster> = self.world.all(self.namespace);
        match step {
            Step::Size(size) if self.size.is_some() => {
                let change = Patch::Merge(json!({"spec": {"size": size}}));
                clusters.patch(CLUSTER, &PatchParams::default(), &change).await.expect("it is accepted");
                self.size = Some(size);
                Until::Ready(size)
            }
            Step::Size(size) | Step::Adopt(size) => {
                let (version, on_delete) = (scenario.version, scenario.on_delete);
                let spec = json!({"size": size, "version": version, "storage": {"onDelete": on_delete}});
                let mut cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("a spec"));
                let adopts = self.uid.take().filter(|_| matches!(step, Step::Adopt(_)));
                let adopts = adopts.map(|uid| (ADOPT_ANNOTATION.to_owned(), uid));
                cluster.metadata.annotations = Some(adopts.into_iter().collect());
                let created =
                    clusters.create(&PostParams::default(), &cluster).await.expect("it is accepted");
                (self.size, self.uid) = (Some(size), created.uid());
                Until::Ready(size)
            }
            Step::Delete => {
                clusters.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
                self.size = None;
                Until::Gone
            }
            Step::LoseVolume(ordinal) => {
                let name = format!("data-{CLUSTER}-{ordinal}");
                let claims: Api<PersistentVolumeClaim> = self.world.all(self.namespace);
                let claim = claims.get(&name).await.expect("it is there");
                self.set_node_failed(ordinal, true).await;
                self.nobody_listens(ordinal).await;
                self.world.stand_in.empty_volume(&claim).expect("it was there");
                self.set_node_failed(ordinal, false).await;
                let member = json!(claim.labels().get(MEMBER_ID_LABEL));
                Until::Replaced { size: self.size.unwrap_or_default(), claim: name, member }
            }
            Step::FailNode(ordinal) => {
                self.set_node_failed(ordinal, true).await;
                Until::Serving(self.size.unwrap_or_default() - 1)
            }
            Step::ReturnNode(ordinal) => {
                self.set_node_failed(ordinal, false).await;
                Until::Ready(self.size.unwrap_or_default())
            }
            Step::DeletePod(ordinal) => {
                self.delete_pod(ordinal, &DeleteParams::default()).await;
                Until::Terminating(ordinal)
            }
            Step::ForceDeletion(ordinal) => {
                self.delete_pod(ordinal, &DeleteParams::default().grace_period(0)).await;
                Until::Ready(self.size.unwrap_or_default())
            }
            Step::DeleteService(service) => {
                let services: Api<Service> = self.world.all(self.namespace);
                let uid = services.get(service).await.expect("it is there").uid();
                services.delete(service, &DeleteParams::default()).await.expect("it is there");
                Until::Another { service, uid }
            }
        }
    }

    fn pods(&self) -> Api<Pod> {
        self.world.all(self.namespace)
    }

    async fn set_node_failed(&self, ordinal: u8, failed: bool) {
        let pod = self.pods().get(&pod_name(ordinal)).await.expect("it is there");
        self.world.stand_in.set_node_failed(&pod.uid().unwrap_or_default(), failed);
    }

    async fn delete_pod(&self, ordinal: u8, parameters: &DeleteParams) {
        self.pods().delete(&pod_name(ordinal), parameters).await.expect("it is there");
    }

    async fn nobody_listens(&self, ordinal: u8) {
        let address = world::address_in(self.namespace, ordinal).expect("it is a run");
        while TcpStream::connect((address, PEER_PORT)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Until {
    pub fn holds(&self, recorder: &Recorder) -> bool {
        let cluster = || recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        match self {
            Self::Ready(size) => is_ready(&cluster(), *size),
            Self::Serving(size) => cluster()["status"]["readyReplicas"] == json!(size),
            Self::Terminating(ordinal) => {
                let pod = recorder.object("Pod", &pod_name(*ordinal)).unwrap_or_default();
                !pod["metadata"]["deletionTimestamp"].is_null()
            }
            Self::Gone => recorder.kinds().iter().all(|kind| kind == "PersistentVolumeClaim"),
            Self::Replaced { size, claim, member } => {
                let claim = recorder.object("PersistentVolumeClaim", claim).unwrap_or_default();
                let now = &claim["metadata"]["labels"][MEMBER_ID_LABEL];
                now.is_string() && now != member && is_ready(&cluster(), *size)
            }
            Self::Another { service, uid } => {
                let there = recorder.object("Service", service);
                there.is_some_and(|there| there["metadata"]["uid"] != json!(uid))
            }
        }
    }
}

fn pod_name(ordinal: u8) -> String {
    format!("{CLUSTER}-{ordinal}")
}

/// What users would wait for.
fn is_ready(cluster: &Value, size: u8) -> bool {
    let (status, generation) = (&cluster["status"], &cluster["metadata"]["generation"]);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is =
        |type_: &str, value: &str| conditions.iter().any(|it| it["type"] == type_ && it["status"] == value);
    status["observedGeneration"] == *generation
        && status["readyReplicas"] == json!(size)
        && status["replicas"] == json!(size)
        && is("Ready", "True")
        && !["Reconciling", "Stalled", "WriteFailed"].iter().any(|type_| is(type_, "True"))
}
