//! What users and machines do to a cluster, and when it is over.

use std::time::Duration;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::asked::ROTATE_CA;
use etcd_operator_core::etcd_config::PEER_PORT;
use etcd_operator_core::form;
use etcd_operator_core::names::{
    ADOPT_ANNOTATION, ANNOTATION_OF, CLUSTER_LABEL, FORM_ANNOTATION, MEMBER_ID_LABEL, condition, reason,
};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, NEXT_CERTIFICATE_KEY, Purpose};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::access::Member;
use crate::auth;
use crate::recorder::{Objects, Recorder, Restarts};
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
    /// A merge patch of the spec, which every member gets.
    Edit(&'static str),
    /// The same, and no pod can start with it.
    BadEdit(&'static str),
    /// The same, and its trial fails.
    RefusedEdit(&'static str),
    /// The pod is deleted, and returns in the form that all members had together last.
    LosePod(u8),
    /// This member becomes the leader.
    Lead(u8),
    /// A merge patch of the spec for which every certificate is issued again.
    Reissue(&'static str),
    /// A merge patch of the spec that enables authentication.
    Auth(&'static str),
    /// A user asks for other authorities of peers, with this token.
    Rotate(&'static str),
    /// A merge patch of the spec that leaves every volume with this size and class.
    Volumes(&'static str, Volumes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volumes {
    pub size: &'static str,
    pub class: &'static str,
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
    /// Ready, and pods and StatefulSet have the form that is recorded, which the edit changed.
    Rolled {
        size: u8,
        before: Option<String>,
    },
    /// One pod has another form than is recorded. Whichever is created next gets the recorded one.
    Stopped {
        size: u8,
    },
    /// Ready, all certificates are other ones than before, and no member has restarted.
    Reissued {
        size: u8,
        before: Objects,
        members: Restarts,
    },
    /// Ready, and authentication is enabled.
    Authenticated(u8),
    /// Ready, and all members trust another authority than before.
    Rotated {
        size: u8,
        before: Option<ByteString>,
    },
    /// Ready, and every volume is like this.
    Provisioned {
        size: u8,
        volumes: Volumes,
    },
    /// All members serve in the form that is recorded, and the status reports that another one does not work.
    Refused {
        size: u8,
    },
    /// Another pod of this name serves, in the form that is recorded.
    Returned {
        pod: String,
        uid: Option<String>,
    },
}

/// One cluster, and what has to be remembered of it from step to step.
pub struct Cluster<'a> {
    pub world: &'a World,
    pub namespace: &'a str,
    recorder: &'a Recorder,
    size: Option<u8>,
    uid: Option<String>,
}

impl<'a> Cluster<'a> {
    pub fn new(world: &'a World, namespace: &'a str, recorder: &'a Recorder) -> Self {
        Self { world, namespace, recorder, size: None, uid: None }
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
                let mut spec = json!({"size": size, "version": version, "storage": {"onDelete": on_delete}});
                let tls: Value = serde_json::from_str(scenario.tls).expect("it is JSON");
                spec["security"] = json!({ "tls": tls });
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
            Step::Edit(change) => {
                let size = self.size.unwrap_or_default();
                let before = self.form_of_pods().await;
                self.edit(change).await;
                Until::Rolled { size, before }
            }
            Step::BadEdit(change) => {
                self.edit(change).await;
                Until::Stopped { size: self.size.unwrap_or_default() }
            }
            Step::RefusedEdit(change) => {
                self.edit(change).await;
                Until::Refused { size: self.size.unwrap_or_default() }
            }
            Step::LosePod(ordinal) => {
                let pod = pod_name(ordinal);
                let uid = self.pods().get(&pod).await.expect("it is there").uid();
                self.delete_pod(ordinal, &DeleteParams::default()).await;
                Until::Returned { pod, uid }
            }
            Step::Reissue(change) => {
                let (before, members) = (self.recorder.leafs(), self.recorder.members());
                self.edit(change).await;
                Until::Reissued { size: self.size.unwrap_or_default(), before, members }
            }
            Step::Auth(change) => {
                auth::prepare(self.world, self.namespace, self.recorder).await;
                self.edit(change).await;
                Until::Authenticated(self.size.unwrap_or_default())
            }
            Step::Rotate(token) => {
                let before = part(self.recorder, Purpose::PeerAuthority, CERTIFICATE_KEY);
                rotate(&clusters, token).await;
                Until::Rotated { size: self.size.unwrap_or_default(), before }
            }
            Step::Volumes(change, volumes) => {
                self.edit(change).await;
                Until::Provisioned { size: self.size.unwrap_or_default(), volumes }
            }
            Step::Lead(ordinal) => {
                self.lead(ordinal).await;
                Until::Ready(self.size.unwrap_or_default())
            }
        }
    }

    fn pods(&self) -> Api<Pod> {
        self.world.all(self.namespace)
    }

    async fn edit(&self, change: &str) {
        let clusters: Api<EtcdCluster> = self.world.all(self.namespace);
        let change: Value = serde_json::from_str(change).expect("it is JSON");
        let change = Patch::Merge(json!({"spec": change}));
        clusters.patch(CLUSTER, &PatchParams::default(), &change).await.expect("it is accepted");
    }

    /// None unless all have the same.
    async fn form_of_pods(&self) -> Option<String> {
        let members = ListParams::default().labels(CLUSTER_LABEL);
        let pods = self.pods().list(&members).await.expect("they can be listed");
        let mut forms = pods.iter().map(|pod| pod.annotations().get(FORM_ANNOTATION).cloned());
        let first = forms.next()?;
        first.filter(|first| forms.all(|form| form.as_ref() == Some(first)))
    }

    async fn lead(&self, ordinal: u8) {
        let size = self.size.unwrap_or_default();
        let mut members = Vec::new();
        for member in (0..size).map(|it| Member::new(self.namespace, it)) {
            let mut client = member.client(self.recorder).await.expect("it serves");
            let status = client.status().await.expect("it serves");
            members.push((client, status.header().expect("it has one").member_id(), status.leader()));
        }
        let to = members[usize::from(ordinal)].1;
        let (leader, ..) = members.iter_mut().find(|(_, id, leader)| id == leader).expect("one leads");
        leader.move_leader(to).await.expect("it hands over");
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
            Self::Rolled { size, before } => {
                let recorded = recorded(recorder);
                is_ready(&cluster(), *size)
                    && recorded.is_some()
                    && recorded != *before
                    && template(recorder) == recorded
                    && (0..*size).all(|it| form_of(recorder, &pod_name(it)) == recorded)
            }
            Self::Stopped { size } => {
                let recorded = recorded(recorder);
                let others = (0..*size).filter(|it| form_of(recorder, &pod_name(*it)) != recorded).count();
                let serving = cluster()["status"]["readyReplicas"] == json!(size - 1);
                serving && recorded.is_some() && others == 1 && template(recorder) == recorded
            }
            Self::Reissued { size, before, members } => {
                let now = recorder.leafs();
                let is_another = |(name, leaf): (&String, &Value)| before.get(name) != Some(leaf);
                is_ready(&cluster(), *size)
                    && now.len() == before.len()
                    && now.iter().all(is_another)
                    && recorder.members() == *members
            }
            Self::Authenticated(size) => auth::is_enabled(recorder) && is_ready(&cluster(), *size),
            Self::Rotated { size, before } => {
                let peer = is_rotated(recorder, Purpose::PeerAuthority, before.as_ref());
                peer && is_ready(&cluster(), *size)
            }
            Self::Provisioned { size, volumes } => {
                let all = (0..*size).all(|it| has_volume(recorder, it, *volumes));
                all && is_ready(&cluster(), *size)
            }
            Self::Refused { size } => {
                let (recorded, cluster) = (recorded(recorder), cluster());
                let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let is_refusal =
                    |it: &Value| it["type"] == condition::ROLLOUT_STALLED && it["status"] == "True";
                let all_have_it = (0..*size).all(|it| form_of(recorder, &pod_name(it)) == recorded);
                cluster["status"]["readyReplicas"] == json!(size)
                    && recorded.is_some()
                    && all_have_it
                    && template(recorder) == recorded
                    && conditions.iter().any(is_refusal)
            }
            Self::Returned { pod, uid } => {
                let there = recorder.object("Pod", pod).unwrap_or_default();
                let members = cluster()["status"]["members"].clone();
                let serves = |it: &Value| it["name"] == json!(pod) && it["ready"] == true;
                there["metadata"]["uid"] != json!(uid)
                    && form_of(recorder, pod).is_some_and(|form| Some(form) == recorded(recorder))
                    && members.as_array().is_some_and(|members| members.iter().any(serves))
            }
            Self::Another { service, uid } => {
                let there = recorder.object("Service", service);
                there.is_some_and(|there| there["metadata"]["uid"] != json!(uid))
            }
        }
    }
}

pub async fn rotate(clusters: &Api<EtcdCluster>, token: &str) {
    let annotations = json!({format!("{ANNOTATION_OF}{ROTATE_CA}"): token});
    let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    clusters.patch(CLUSTER, &PatchParams::default(), &change).await.expect("it is accepted");
}

/// Another authority signs, it alone is trusted, and members were seen to trust and serve what they should.
pub fn is_rotated(recorder: &Recorder, authority: Purpose, before: Option<&ByteString>) -> bool {
    let [own, trusted, next] =
        [CERTIFICATE_KEY, AUTHORITY_KEY, NEXT_CERTIFICATE_KEY].map(|key| part(recorder, authority, key));
    let leafs = Purpose::ALL.into_iter().filter(|it| it.issuer() == Some(authority));
    let leafs = leafs.filter(|it| recorder.has_secret(*it));
    own.as_ref() != before
        && own == trusted
        && next.is_none()
        && leafs.into_iter().all(|it| part(recorder, it, AUTHORITY_KEY) == trusted)
        && recorder.condition(condition::TLS_READY)["reason"] == reason::CERTIFICATES_VALID
}

pub fn part(recorder: &Recorder, purpose: Purpose, key: &str) -> Option<ByteString> {
    recorder.secret(purpose)?.data?.remove(key)
}

/// The form that all members had together last.
fn recorded(recorder: &Recorder) -> Option<String> {
    let object = recorder.object("ConfigMap", &format!("{CLUSTER}-form"))?;
    let record: Value = serde_json::from_str(object["data"][form::KEY].as_str()?).ok()?;
    Some(record["digest"].as_str()?.to_owned())
}

/// What the StatefulSet creates pods from.
fn template(recorder: &Recorder) -> Option<String> {
    let set = recorder.object("StatefulSet", CLUSTER)?;
    Some(set["spec"]["template"]["metadata"]["annotations"][FORM_ANNOTATION].as_str()?.to_owned())
}

fn form_of(recorder: &Recorder, pod: &str) -> Option<String> {
    let pod = recorder.object("Pod", pod)?;
    Some(pod["metadata"]["annotations"][FORM_ANNOTATION].as_str()?.to_owned())
}

/// The claim has what it asks for, and new ones will have it, too.
pub fn has_volume(recorder: &Recorder, ordinal: u8, Volumes { size, class }: Volumes) -> bool {
    let name = format!("data-{CLUSTER}-{ordinal}");
    let claim = recorder.object("PersistentVolumeClaim", &name).unwrap_or_default();
    let set = recorder.object("StatefulSet", CLUSTER).unwrap_or_default();
    let template = &set["spec"]["volumeClaimTemplates"][0]["spec"];
    claim["spec"]["storageClassName"] == class
        && claim["status"]["capacity"]["storage"] == size
        && [&claim["spec"], template].iter().all(|it| it["resources"]["requests"]["storage"] == size)
}

fn pod_name(ordinal: u8) -> String {
    format!("{CLUSTER}-{ordinal}")
}

/// What becomes of certificates is reported by a condition of its own.
const CHANGING: [&str; 3] =
    [reason::CERTIFICATES_PENDING, reason::RENEWAL_UNDER_WAY, reason::ROTATING_AUTHORITIES];

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
        && !conditions.iter().any(|it| CHANGING.iter().any(|reason| it["reason"] == *reason))
        && !["Reconciling", "Stalled", "WriteFailed"].iter().any(|type_| is(type_, "True"))
}
