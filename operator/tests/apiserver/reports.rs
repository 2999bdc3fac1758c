//! Kinds whose controllers come later, and the limits of our rights.

use etcd_operator_core::api::{EtcdRestore, RestorePhase};
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::ListParams;

use crate::operated::Workplace;
use crate::{as_operator, kubectl};

const OBJECTS: &str = "../examples";

pub async fn what_comes_later_is_said_and_no_secrets_are_listed() {
    let operated = Workplace::new().await;
    kubectl(&operated.on.api, &["-n", &operated.namespace, "apply", "-f", OBJECTS]).await;
    let reported = |it: &EtcdRestore| it.status.is_some();
    let restore: EtcdRestore = operated.until("yesterday", "a status", reported).await;
    let status = restore.status.expect("it was just seen");
    assert_eq!(status.phase, Some(RestorePhase::Failed));
    assert!(is_true(&status.conditions, condition::STALLED));

    let client = as_operator(&operated.on.api).await;
    let secrets = Api::<Secret>::namespaced(client, &operated.namespace).list(&ListParams::default()).await;
    assert!(matches!(secrets, Err(kube::Error::Api(answer)) if answer.code == 403), "it may list no Secrets");
}

fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
}
