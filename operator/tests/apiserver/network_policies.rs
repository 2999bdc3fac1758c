//! The NetworkPolicy of a cluster, as the operator writes it with the rights that it ships with.

use etcd_operator_core::api::EtcdCluster;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::operated::Workplace;

fn spec(policy: &NetworkPolicy) -> NetworkPolicySpec {
    policy.spec.clone().expect("it has a spec")
}

fn is_owned(policy: &NetworkPolicy) -> bool {
    policy.owner_references().iter().any(|it| it.kind == "EtcdCluster" && it.controller == Some(true))
}

/// As somebody does it with kubectl.
async fn edit(operated: &Workplace, change: Value) {
    let policies = operated.all::<NetworkPolicy>();
    let change = Patch::Merge(change);
    policies.patch("kv", &PatchParams::default(), &change).await.expect("it is accepted");
}

pub async fn a_network_policy_appears_is_put_right_and_goes_with_its_field() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1, "security": {"networkPolicy": {}}})).await;
    let made = operated.until::<NetworkPolicy>("kv", "a policy", is_owned).await;
    let is_as_made = |it: &NetworkPolicy| spec(it) == spec(&made);
    let everybody = json!([{"ports": [{"port": 2379}]}]);
    let further_rule =
        [json!(spec(&made).ingress).as_array().expect("rules").clone(), vec![json!({})]].concat();
    for (says, change) in [
        ("open to everybody", json!({"ingress": everybody})),
        ("one more rule", json!({"ingress": further_rule})),
        ("for other pods", json!({"podSelector": {"matchLabels": {"tier": "1"}}})),
        ("for other traffic", json!({"policyTypes": ["Egress"]})),
    ] {
        edit(&operated, json!({"spec": change})).await;
        operated.until::<NetworkPolicy>("kv", says, is_as_made).await;
    }

    operated.all::<NetworkPolicy>().delete("kv", &DeleteParams::default()).await.expect("it is there");
    let created_again = |it: &NetworkPolicy| it.uid() != made.uid() && is_as_made(it);
    operated.until::<NetworkPolicy>("kv", "another one", created_again).await;

    let clients = json!({"matchLabels": {"app": "shop"}});
    operated.edit("kv", json!({"spec": {"security": {"networkPolicy": {"clientSelector": clients}}}})).await;
    let follows = |it: &NetworkPolicy| json!(spec(it)).to_string().contains("shop");
    operated.until::<NetworkPolicy>("kv", "other clients", follows).await;
    operated.edit("kv", json!({"spec": {"security": {"networkPolicy": null}}})).await;
    operated.until_gone::<NetworkPolicy>("kv").await;
}

pub async fn a_network_policy_of_another_owner_is_left_alone_and_named() {
    let operated = Workplace::new().await;
    let theirs = json!({"metadata": {"name": "kv"}, "spec": {"podSelector": {}}});
    let theirs: NetworkPolicy = serde_json::from_value(theirs).expect("it is a policy");
    let before = operated.all().create(&PostParams::default(), &theirs).await.expect("it is new");
    operated.create("kv", json!({"size": 1, "security": {"networkPolicy": {}}})).await;
    let named = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|it| it.type_ == "WriteFailed" && it.message.contains("NetworkPolicy kv exists already"))
    };
    operated.until("kv", "the policy is named", named).await;
    operated.until_armed("kv", 1).await;
    let after = operated.all::<NetworkPolicy>().get("kv").await.expect("it is there");
    assert_eq!(after.resource_version(), before.resource_version());

    operated.all::<NetworkPolicy>().delete("kv", &DeleteParams::default()).await.expect("it is there");
    operated.until::<NetworkPolicy>("kv", "our own policy", is_owned).await;
}
