//! The CustomResourceDefinitions as the API server serves them.

use etcd_operator_core::api::{EtcdBackup, EtcdCluster, EtcdRestore};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{kubectl, shared, untyped};

pub async fn what_is_left_out_gets_its_default() {
    let api = shared::bare().await;
    let client = api.client().await.expect("an administrator's client");
    let namespace = shared::namespace(&client).await;
    let clusters = untyped::<EtcdCluster>(&client, &namespace);
    let defaults = json!({
        "size": 3,
        "version": "v3.5.21",
        "repository": "quay.io/coreos/etcd",
        "storage": {"size": "10Gi", "onStop": "Retain", "onDelete": "Retain"},
        "security": {
            "tls": {"enabled": true, "clientTLSEnabled": true, "peerTLSEnabled": true, "autoTLS": true},
        },
        "podDisruptionBudget": "Enabled",
    });
    for (name, spec) in [("empty", Some(json!({}))), ("without", None), ("null", Some(json!({"size": null})))]
    {
        let mut object =
            json!({"apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": name}});
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        let object = serde_json::from_value(object).expect("it is an object");
        let made = clusters.create(&PostParams::default(), &object).await.expect("it is accepted");
        assert_eq!(made.data["spec"], defaults, "{name}");
        let typed: EtcdCluster = serde_json::from_value(serde_json::to_value(&made).expect("plain data"))
            .expect("our types read it");
        assert_eq!(typed.spec, Default::default(), "{name}");
    }
}

pub async fn a_cluster_is_scaled_by_the_scale_subresource() {
    let api = shared::bare().await;
    let client = api.client().await.expect("an administrator's client");
    let namespace = shared::namespace(&client).await;
    let clusters = untyped::<EtcdCluster>(&client, &namespace);
    kubectl(&api, &["-n", &namespace, "apply", "-f", "../examples/minimal.yaml"]).await;
    let status =
        json!({"status": {"replicas": 2, "readyReplicas": 1, "selector": "etcd.etcd.io/cluster=minimal"}});
    clusters
        .patch_status("minimal", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("the status can be written");
    let scale = clusters.get_scale("minimal").await.expect("there is a scale");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
    let status = scale.status.expect("it has a status");
    assert_eq!((status.replicas, status.selector.as_deref()), (2, Some("etcd.etcd.io/cluster=minimal")));

    kubectl(&api, &["-n", &namespace, "scale", "etcd", "minimal", "--replicas=5"]).await;
    let scaled = clusters.get("minimal").await.expect("it is there");
    assert_eq!(scaled.data["spec"]["size"], json!(5));
}

pub async fn people_find_the_kinds_and_their_help() {
    let api = shared::bare().await;
    let namespace = shared::namespace(&api.client().await.expect("an administrator's client")).await;
    kubectl(&api, &["-n", &namespace, "apply", "-f", "../examples"]).await;
    let all = kubectl(&api, &["-n", &namespace, "get", "etcd-all", "-o", "name"]).await;
    for name in
        ["cluster.etcd.etcd.io/minimal", "backup.etcd.etcd.io/nightly", "restore.etcd.etcd.io/yesterday"]
    {
        assert!(all.contains(name), "{all}");
    }
    for (short, titles) in [
        ("etcd", "PHASE SIZE READY VERSION AGE"),
        ("etcdbackup", "PHASE CLUSTER STORAGE SIZE LAST NEXT ARCHIVED AGE"),
        ("etcdrestore", "PHASE BACKUP CLUSTER TYPE AGE"),
    ] {
        let shown = kubectl(&api, &["-n", &namespace, "get", short]).await;
        let first: Vec<_> = shown.lines().next().unwrap_or_default().split_whitespace().skip(1).collect();
        assert_eq!(first.join(" "), titles, "{shown}");
        assert_eq!(shown.matches("NAME").count(), 1, "{shown}");
    }
    let wide = kubectl(&api, &["-n", &namespace, "get", "etcd", "-o", "wide"]).await;
    let titles: Vec<_> = wide.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(titles.join(" "), "NAME PHASE SIZE READY VERSION LEADER ENDPOINT REASON AGE", "{wide}");
    let help = kubectl(&api, &["explain", "etcdcluster.spec.storage.onStop"]).await;
    assert!(help.contains("Retain") && help.contains("last"), "{help}");
}

pub async fn backups_and_restores_are_checked_too() {
    let api = shared::bare().await;
    let client = api.client().await.expect("an administrator's client");
    let namespace = shared::namespace(&client).await;
    let (backups, restores) =
        (untyped::<EtcdBackup>(&client, &namespace), untyped::<EtcdRestore>(&client, &namespace));
    let object = |kind: &str, spec: Value| {
        let object = json!({
            "apiVersion": "etcd.etcd.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec,
        });
        serde_json::from_value(object).expect("it is an object")
    };
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    for (spec, field) in [
        (json!({"clusterName": "kv", "storageType": "S3"}), "storageType S3 requires a bucket"),
        (json!({"clusterName": "kv", "storageType": "Tape"}), "spec.storageType"),
        (json!({"storageType": "Local"}), "spec.clusterName"),
        (json!({"clusterName": "kv", "storageType": "Azure"}), "set azure.account"),
        (json!({"clusterName": "kv", "storageType": "GCS", "verification": "Checksum"}), "use ReadBack"),
        (json!({"clusterName": "kv", "storageType": "GCS", "schedule": "@daily"}), "five fields"),
        (
            json!({"clusterName": "kv", "storageType": "S3", "s3": {"bucket": "b", "accessKeySecret": "s"}}),
            "set both",
        ),
        (
            json!({"clusterName": "kv", "storageType": "S3", "s3": {"bucket": "b", "endpoint": "x"}}),
            "https://",
        ),
        (
            json!({"clusterName": "kv", "storageType": "GCS", "retentionPolicy": {"maxAge": "30"}}),
            "30d or 8w",
        ),
        (
            json!({"clusterName": "kv", "storageType": "GCS", "retentionPolicy": {"maxBackups": -1}}),
            "maxBackups",
        ),
        (
            json!({"clusterName": "kv", "storageType": "GCS", "encryption": {"recipients": ["age1x"]}}),
            "recipients",
        ),
        (
            json!({"clusterName": "kv", "storageType": "GCS", "continuous": {"flushIntervalSeconds": 0}}),
            "spec.continuous.flushIntervalSeconds",
        ),
        (
            json!({"clusterName": "kv", "storageType": "GCS", "continuous": {"flushIntervalSeconds": 3601}}),
            "spec.continuous.flushIntervalSeconds",
        ),
    ] {
        let error = backups.create(&parameters, &object("EtcdBackup", spec)).await.expect_err("it is wrong");
        assert!(error.to_string().contains(field), "{error}");
    }
    for (spec, field) in [
        (json!({"clusterName": "kv"}), "set either backupName"),
        (json!({"clusterName": "kv", "backupName": "b", "copyName": "c", "toRevision": 1}), "at most one of"),
        (json!({"clusterName": "kv", "backupName": "b", "toRevision": 0}), "spec.toRevision"),
        (json!({"clusterName": "kv", "backupName": "b", "toTime": "yesterday"}), "spec.toTime"),
        (json!({"clusterName": "kv", "source": {"storageType": "Tape"}}), "spec.source.storageType"),
        (
            json!({"clusterName": "kv", "backupName": "b", "clusterTemplate": {"version": "3.5.1"}}),
            "spec.clusterTemplate.version",
        ),
    ] {
        let error =
            restores.create(&parameters, &object("EtcdRestore", spec)).await.expect_err("it is wrong");
        assert!(error.to_string().contains(field), "{error}");
    }
}
