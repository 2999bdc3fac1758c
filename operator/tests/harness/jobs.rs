//! Jobs on the stand-in for a kubelet: their pods run as they are, with real programs.

use std::time::{Duration, Instant};

use etcd_operator_core::backup::report::{Done, Outcome, Report};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use crate::world::{BUSYBOX, World, address_in, world};

const LIMIT: Duration = Duration::from_secs(30);
/// Kubernetes has it in every pod of a Job.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
const FINALIZER: &str = "example.org/kept-by-a-test";
/// The last part of an address that no pod has.
const OF_THE_STORE: u8 = 251;

/// What a container left.
fn ended(statuses: Option<&Vec<ContainerStatus>>) -> Vec<(String, i32, String)> {
    let all = statuses.into_iter().flatten();
    all.filter_map(|it| {
        let end = it.state.as_ref()?.terminated.as_ref()?;
        Some((it.name.clone(), end.exit_code, end.message.clone().unwrap_or_default()))
    })
    .collect()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn shell(name: &str, script: &str) -> Value {
    let mounts = [("scratch", "/scratch"), ("settings", "/etc/etcd-backup"), ("credentials", "/credentials")];
    let mounts =
        mounts.map(|(name, path)| json!({"name": name, "mountPath": path, "readOnly": name != "scratch"}));
    json!({"name": name, "image": BUSYBOX, "command": ["/bin/sh", "-ec"], "args": [script], "volumeMounts": mounts})
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

struct Jobs {
    world: &'static World,
    namespace: String,
}

impl Jobs {
    async fn start() -> Self {
        let world = world();
        Self { world, namespace: world.namespace().await }
    }

    fn pods(&self) -> Api<Pod> {
        self.world.all(&self.namespace)
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let object: K = serde_json::from_value(object).expect("an object");
        self.world
            .all::<K>(&self.namespace)
            .create(&PostParams::default(), &object)
            .await
            .expect("it is new");
    }

    async fn create_job(&self, name: &str, init: &[Value], container: Value) {
        self.create::<Job>(json!({
            "metadata": {"name": name},
            "spec": {"backoffLimit": 1, "template": {"spec": {
                "restartPolicy": "Never",
                "initContainers": init,
                "containers": [container],
                "volumes": [
                    {"name": "scratch", "emptyDir": {}},
                    {"name": "settings", "configMap": {"name": "settings"}},
                    {"name": "credentials", "secret": {"secretName": "credentials", "items": [
                        {"key": "access", "path": "AWS_ACCESS_KEY_ID"}, {"key": "secret", "path": "AWS_SECRET_ACCESS_KEY"},
                    ]}},
                ],
            }}},
        }))
        .await;
    }

    async fn provide(&self, settings: Value) {
        self.create::<ConfigMap>(json!({"metadata": {"name": "settings"}, "data": settings})).await;
        let credentials = json!({"access": S3::ACCESS_KEY, "secret": S3::SECRET_KEY, "other": "unused"});
        self.create::<Secret>(json!({"metadata": {"name": "credentials"}, "stringData": credentials})).await;
    }

    /// The pods of a Job, as soon as they are like this.
    async fn until(&self, job: &str, what: &str, holds: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
        let begun = Instant::now();
        let selected = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        loop {
            let pods = self.pods().list(&selected).await.expect("a list").items;
            if holds(&pods) {
                return pods;
            }
            let statuses: Vec<_> = pods.iter().map(|pod| &pod.status).collect();
            assert!(begun.elapsed() < LIMIT, "{what}: {statuses:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Of a Job, as soon as it is there.
    async fn condition(&self, job: &str, condition: &str) {
        let is_met = |job: Option<&Job>| {
            let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
            conditions.into_iter().flatten().any(|it| it.type_ == condition && it.status == "True")
        };
        let waiting = await_condition(self.world.all(&self.namespace), job, is_met);
        let met = tokio::time::timeout(LIMIT, waiting).await;
        met.unwrap_or_else(|_| panic!("{job} is not {condition}")).expect("the watch goes on");
    }
}

/// Init containers one after the other, then the program for backups with a real store, by its usual command line.
pub fn in_order() {
    world().runtime.block_on(async {
        let jobs = Jobs::start().await;
        let address = address_in(&jobs.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        let mut first = shell("first", "echo 1 >/scratch/seen; echo -n from $POD >$TO");
        first["env"] = json!([
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "TO", "value": "/dev/termination-log"},
        ]);
        let second = "cat /scratch/seen /credentials/AWS_ACCESS_KEY_ID >/dev/termination-log; \
             ! touch /credentials/x; ! [ -e /credentials/other ]";
        let mut backup = shell("backup", "");
        backup["image"] = json!("ghcr.io/etcd-k8s-operator/etcd-operator:any");
        backup["command"] = json!(["/etcd-backup"]);
        backup["args"] = json!(["probe", "--inputs", "/etc/etcd-backup/inputs.json"]);
        jobs.create_job("probe", &[first, shell("second", second)], backup).await;
        jobs.until("probe", "it waits for its volumes", |pods| {
            pods.len() == 1
                && phase(&pods[0]) == "Pending"
                && pods[0].spec.as_ref().is_some_and(|it| it.node_name.is_some())
        })
        .await;
        let inputs = json!({"store": {
            "type": "S3", "bucket": S3::BUCKET, "region": S3::REGION, "endpoint": store.endpoint(),
            "caFile": "/etc/etcd-backup/ca.crt", "credentialsDirectory": "/credentials", "retrySeconds": 2,
        }});
        let certificate = std::fs::read_to_string(store.authority()).expect("a certificate");
        jobs.provide(json!({"inputs.json": inputs.to_string(), "ca.crt": certificate})).await;

        let pods = jobs.until("probe", "it ends", |pods| pods.iter().all(has_ended)).await;
        let status = pods[0].status.as_ref().expect("a status");
        let left = |name: &str, message: &str| (name.to_owned(), 0, message.to_owned());
        let expected = [
            left("first", &format!("from {}", jobs.namespace)),
            left("second", &format!("1\n{}", S3::ACCESS_KEY)),
        ];
        assert_eq!(ended(status.init_container_statuses.as_ref()), expected);
        let result = ended(status.container_statuses.as_ref());
        let report: Report =
            serde_json::from_str(&result[0].2).unwrap_or_else(|error| panic!("{error}: {result:?}"));
        assert_eq!(report.outcome, Outcome::Succeeded(Done::Probe { conditional_puts: true }));
        jobs.condition("probe", "Complete").await;
    });
}

/// The program hears of it, has time to end, and leaves a message; then the Job begins again.
pub fn deleted() {
    world().runtime.block_on(async {
        let jobs = Jobs::start().await;
        jobs.provide(json!({})).await;
        let script = "trap 'echo -n terminated >/dev/termination-log; exit 11' TERM; \
             echo >/scratch/begun; while :; do sleep 0.1; done";
        jobs.create_job("endless", &[shell("first", script)], shell("second", "")).await;
        let runs = |pod: &Pod| {
            let status = pod.status.as_ref().and_then(|it| it.init_container_statuses.as_ref());
            status.is_some_and(|all| {
                all.iter().any(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
            })
        };
        let pods = jobs.until("endless", "it runs", |pods| pods.len() == 1 && runs(&pods[0])).await;
        let name = pods[0].name_any();
        // So that its end can be read.
        let kept = json!({"metadata": {"finalizers": [FINALIZER, JOB_TRACKING]}});
        let nothing = PatchParams::default();
        jobs.pods().patch(&name, &nothing, &Patch::Merge(kept)).await.expect("it is there");
        jobs.pods().delete(&name, &DeleteParams::default()).await.expect("it is there");
        let pods = jobs
            .until("endless", "another one runs", |pods| {
                pods.iter().any(|it| it.name_any() == name && has_ended(it))
                    && pods.iter().any(|it| it.name_any() != name && runs(it))
            })
            .await;
        let first = pods.iter().find(|it| it.name_any() == name).and_then(|it| it.status.as_ref());
        let first = first.expect("it is kept");
        let left = ("first".to_owned(), 11, "terminated".to_owned());
        assert_eq!(ended(first.init_container_statuses.as_ref()), [left]);
        assert_eq!(ended(first.container_statuses.as_ref()), []);
        let released = json!({"metadata": {"finalizers": null}});
        jobs.pods().patch(&name, &nothing, &Patch::Merge(released)).await.expect("it is there");
        let whole = DeleteParams::background();
        jobs.world.all::<Job>(&jobs.namespace).delete("endless", &whole).await.expect("it is there");
        jobs.until("endless", "all are gone", <[Pod]>::is_empty).await;
    });
}

pub fn failed() {
    world().runtime.block_on(async {
        let jobs = Jobs::start().await;
        jobs.provide(json!({})).await;
        let mut first = shell("first", "echo last words >&2; exit 7");
        first["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        jobs.create_job("failing", &[first, shell("second", "")], shell("third", "")).await;
        let pods = jobs
            .until("failing", "both pods end", |pods| pods.len() == 2 && pods.iter().all(has_ended))
            .await;
        for status in pods.iter().filter_map(|pod| pod.status.as_ref()) {
            assert_eq!(status.phase.as_deref(), Some("Failed"));
            let left = ("first".to_owned(), 7, "last words\n".to_owned());
            assert_eq!(ended(status.init_container_statuses.as_ref()), [left]);
        }
        jobs.condition("failing", "Failed").await;
    });
}
