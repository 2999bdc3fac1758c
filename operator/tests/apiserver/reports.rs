//! What examples lead to, with the rights that the operator ships with, and the limits of these.

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::{EtcdCluster, EtcdRestore, RestorePhase};
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::operated::Workplace;
use crate::{as_operator, installed, kubectl};

const OBJECTS: &str = "../examples";

pub async fn a_restore_creates_its_cluster_its_volume_and_a_job_and_no_secrets_are_listed() {
    let operated = Workplace::alone(installed().await, PlantedPanic::default()).await;
    kubectl(&operated.on.api, &["-n", &operated.namespace, "apply", "-f", OBJECTS]).await;
    let started = |it: &EtcdRestore| it.status.as_ref().is_some_and(|it| it.incarnation.is_some());
    let restore: EtcdRestore = operated.until("yesterday", "it has started", started).await;
    let status = restore.status.clone().expect("it was just seen");
    assert_eq!(status.phase, Some(RestorePhase::Running));
    let waits = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|it| is(it, condition::RECONCILING, reason::RESTORE_RUNNING))
    };
    let cluster: EtcdCluster = operated.until("restored", "it waits for its data", waits).await;
    assert_eq!(cluster.uid(), status.incarnation);
    let claim: PersistentVolumeClaim = operated.until("data-restored-0", "it is there", |_| true).await;
    assert!(!claim.labels().contains_key("etcd.etcd.io/member-id"));
    let uid: String = restore.uid().unwrap_or_default().chars().take(8).collect();
    let job: Job = operated.until(&format!("yesterday-{uid}-restore-0"), "it is there", |_| true).await;
    assert_eq!(job.owner_references()[0].name, "yesterday");
    let sets = operated.all::<StatefulSet>();
    assert!(sets.get_opt("restored").await.expect("it can be read").is_none(), "no member starts before");

    // Nobody creates the cluster again, also when another operator takes over.
    let clusters = operated.all::<EtcdCluster>();
    clusters.delete("restored", &Default::default()).await.expect("it is there");
    operated.until_gone::<EtcdCluster>("restored").await;
    let failed = |it: &EtcdRestore| it.status.as_ref().is_some_and(|it| it.completion_time.is_some());
    let restore: EtcdRestore = operated.until("yesterday", "it failed", failed).await;
    let conditions = restore.status.expect("it was just seen").conditions;
    assert!(conditions.iter().any(|it| is(it, condition::STALLED, reason::CLUSTER_GONE)), "{conditions:?}");
    let operated = operated.restart().await;
    operated.until_gone::<Job>(&job.name_any()).await;
    assert!(operated.all::<EtcdCluster>().get_opt("restored").await.expect("it can be read").is_none());

    let client = as_operator(&operated.on.api).await;
    let secrets = Api::<Secret>::namespaced(client, &operated.namespace).list(&ListParams::default()).await;
    assert!(matches!(secrets, Err(kube::Error::Api(answer)) if answer.code == 403), "it may list no Secrets");
    drop(operated.stop().await);
}

fn is(it: &Condition, type_: &str, because: &str) -> bool {
    it.type_ == type_ && it.status == "True" && it.reason == because
}
