//! What became of the objects of a run: how often each was changed, and what they are like now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{
    ADOPT_ANNOTATION, CLUSTER_LABEL, CLUSTER_UID_LABEL, MEMBER_ID_LABEL, RENDERING_ANNOTATION,
};
use etcd_operator_core::tls::Purpose;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::world::CLUSTER;

const SECRET: &str = "Secret";

/// By kind and name.
pub type Changes = BTreeMap<String, usize>;
pub type Objects = BTreeMap<String, Value>;
/// Of members' pods: UIDs, and how often containers were started again.
pub type Restarts = BTreeMap<String, (Value, Value)>;

pub struct Recorder {
    state: Arc<Mutex<State>>,
    _watches: JoinSet<()>,
}

struct State {
    changes: Changes,
    objects: Objects,
    /// As each was last, whether it is still there or not.
    secrets: Objects,
    last: Instant,
}

impl Recorder {
    /// Of a namespace in which nothing is yet. Every change from then on counts, so it returns when all watches have begun.
    pub async fn start(client: &Client, namespace: &str) -> Self {
        let (changes, objects, secrets) = Default::default();
        let state = Arc::new(Mutex::new(State { changes, objects, secrets, last: Instant::now() }));
        let mut watches = JoinSet::new();
        let (begun, mut all_begun) = mpsc::channel::<()>(1);
        for kind in [
            ApiResource::erase::<EtcdCluster>(&()),
            ApiResource::erase::<ConfigMap>(&()),
            ApiResource::erase::<StatefulSet>(&()),
            ApiResource::erase::<Pod>(&()),
            ApiResource::erase::<PersistentVolumeClaim>(&()),
            ApiResource::erase::<Secret>(&()),
            ApiResource::erase::<Service>(&()),
            ApiResource::erase::<PodDisruptionBudget>(&()),
            ApiResource::erase::<NetworkPolicy>(&()),
        ] {
            let objects = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
            watches.spawn(watch(objects, kind.kind, Arc::clone(&state), begun.clone()));
        }
        drop(begun);
        // Nothing is sent: the last one that drops its end closes the channel.
        let _ = all_begun.recv().await;
        Self { state, _watches: watches }
    }

    /// From now on changes count.
    pub fn begin(&self) {
        self.state().changes.clear();
    }

    /// The budget follows the voters, and how many of their numbers a round sees on the way is chance.
    pub fn changes(&self) -> Changes {
        let mut changes = self.state().changes.clone();
        changes.retain(|object, _| !object.starts_with("PodDisruptionBudget "));
        changes
    }

    /// How long nothing was changed, statuses included.
    pub fn quiet_for(&self) -> Duration {
        self.state().last.elapsed()
    }

    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.state().objects.get(&format!("{kind} {name}")).cloned()
    }

    /// As it was last, whether it is still there or not: whoever has read it can use it.
    pub fn secret(&self, purpose: Purpose) -> Option<Secret> {
        let mut secret = self.state().secrets.get(&secret_key(purpose)).cloned()?;
        // They are as the recorder writes them, and not as the API server does.
        let fields = secret.as_object_mut().expect("it is an object");
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
        Some(serde_json::from_value(secret).expect("it is a Secret"))
    }

    pub fn has_secret(&self, purpose: Purpose) -> bool {
        self.state().objects.contains_key(&secret_key(purpose))
    }

    /// What the Secrets of all certificates hold that are not authorities.
    pub fn leafs(&self) -> Objects {
        let state = self.state();
        let leafs = Purpose::ALL.into_iter().filter(|it| it.issuer().is_some()).map(secret_key);
        leafs.filter_map(|key| Some((key.clone(), state.objects.get(&key)?["data"].clone()))).collect()
    }

    pub fn members(&self) -> Restarts {
        let state = self.state();
        let of_members = state
            .objects
            .iter()
            .filter(|(_, it)| it["kind"] == "Pod" && it["metadata"]["labels"][CLUSTER_LABEL].is_string());
        let restarts = |pod: &Value| {
            let count = pod["status"]["containerStatuses"][0]["restartCount"].clone();
            (pod["metadata"]["uid"].clone(), count)
        };
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        of_members.map(|(_, pod)| (name(pod), restarts(pod))).collect()
    }

    /// Of the cluster; null if it has none.
    pub fn condition(&self, type_: &str) -> Value {
        let cluster = self.object("EtcdCluster", CLUSTER).unwrap_or_default();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|it| it["type"] == type_).unwrap_or_default()
    }

    /// Of everything that is there.
    pub fn kinds(&self) -> BTreeSet<String> {
        let state = self.state();
        state.objects.keys().filter_map(|key| Some(key.split_once(' ')?.0.to_owned())).collect()
    }

    /// Without what differs from run to run: UIDs, times, addresses.
    pub fn comparable(&self, namespace: &str) -> Objects {
        let objects = self.state().objects.clone();
        let cluster = objects.values().find(|it| it["kind"] == "EtcdCluster");
        let metadata = cluster.map(|it| it["metadata"].clone()).unwrap_or_default();
        let uid = metadata["uid"].as_str().unwrap_or("none");
        let adopted = metadata["annotations"][ADOPT_ANNOTATION].as_str().unwrap_or("none");
        let mut words = vec![(namespace, "NAMESPACE"), (uid, "UID"), (adopted, "ADOPTED")];
        let members = cluster.and_then(|it| it["status"]["members"].as_array());
        words.extend(members.into_iter().flatten().filter_map(|member| Some((member["id"].as_str()?, "ID"))));
        let compare = |(name, object): (&String, &Value)| {
            let mut object = object.clone();
            if object["kind"] != "EtcdCluster" {
                object["status"] = Value::Null;
            }
            // Keys are random. That there are some is not.
            if let Some(data) = object["data"].as_object_mut().filter(|_| name.starts_with(SECRET)) {
                data.values_mut().for_each(|value| *value = value.is_string().into());
            }
            // How often they change on the way is chance.
            if object["kind"] == "StatefulSet" || object["kind"] == "PodDisruptionBudget" {
                object["metadata"]["generation"] = Value::Null;
            }
            simplify(&mut object, &words);
            (name.clone(), object)
        };
        objects.iter().map(compare).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn secret_key(purpose: Purpose) -> String {
    format!("{SECRET} {CLUSTER}-{}", purpose.suffix())
}

async fn watch(objects: Api<DynamicObject>, kind: String, state: Arc<Mutex<State>>, begun: mpsc::Sender<()>) {
    let mut begun = Some(begun);
    let mut events = watcher(objects, Config::default()).boxed();
    while let Some(event) = events.next().await {
        let (object, deleted) = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
            Ok(Event::Delete(object)) => (object, true),
            Ok(Event::InitDone) => {
                drop(begun.take());
                continue;
            }
            Ok(Event::Init) | Err(_) => continue,
        };
        // Every namespace has it.
        if object.name_any() == "kube-root-ca.crt" {
            continue;
        }
        let key = format!("{kind} {}", object.name_any());
        let mut object = serde_json::to_value(object).expect("it came as JSON");
        // Lists leave it out.
        object["apiVersion"] = Value::Null;
        object["kind"] = kind.clone().into();
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if kind == SECRET && !deleted {
            state.secrets.insert(key.clone(), object.clone());
        }
        let before = match deleted {
            true => state.objects.remove(&key),
            false => state.objects.insert(key.clone(), object.clone()),
        };
        state.last = Instant::now();
        if deleted || before.is_none_or(|before| without_status(before) != without_status(object)) {
            *state.changes.entry(key).or_default() += 1;
        }
    }
}

fn without_status(mut object: Value) -> Value {
    object["status"] = Value::Null;
    // Who deletes a pod first, the operator or Kubernetes, decides whether its time to end is shortened later.
    for field in ["resourceVersion", "managedFields", "deletionGracePeriodSeconds"] {
        object["metadata"][field] = Value::Null;
    }
    object["metadata"]["deletionTimestamp"] = object["metadata"]["deletionTimestamp"].is_null().into();
    // How often the template goes back to the old form depends on which round finds a restarted member serving.
    if object["kind"] == "StatefulSet" {
        object["spec"]["template"] = Value::Null;
        object["metadata"]["generation"] = Value::Null;
    }
    object
}

/// What follows is the name of the first certificate that expires, of several in the same second, and when.
const FIRST_TO_EXPIRE: &str = "; the first certificate to expire is ";

/// Fields whose values nobody chose.
const CHANCE: [&str; 15] = [
    RENDERING_ANNOTATION,
    "uid",
    "resourceVersion",
    "managedFields",
    "controller-revision-hash",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "volumeName",
    "clusterID",
    "leaderID",
    "leader",
    "id",
    CLUSTER_UID_LABEL,
    MEMBER_ID_LABEL,
];

fn is_chance(field: &str) -> bool {
    CHANCE.contains(&field) || ["Time", "At", "Timestamp"].iter().any(|end| field.ends_with(end))
}

/// What a message says before the time at which a member was last seen to serve, and a colon.
const SINCE: &str = " since 2";

fn simplify(value: &mut Value, words: &[(&str, &str)]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !is_chance(name) && !value.is_null());
            // Elections are free.
            if let Some(role) = fields.get_mut("role").filter(|role| *role == "Leader" || *role == "Follower")
            {
                *role = "Voter".into();
            }
            fields.values_mut().for_each(|value| simplify(value, words));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| simplify(value, words)),
        Value::String(text) => {
            for (from, to) in words {
                *text = text.replace(from, to);
            }
            if let Some((before, _)) = text.split_once(FIRST_TO_EXPIRE) {
                *text = before.to_owned();
            }
            if let Some((before, after)) = text.split_once(SINCE)
                && let Some((_, after)) = after.split_once("Z:")
            {
                *text = format!("{before}:{after}");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
