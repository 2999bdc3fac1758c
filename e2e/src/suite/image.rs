//! The operator's image, as it is shipped.

use anyhow::{Context as _, Result, bail, ensure};
use etcd_operator_core::backup::Word;
use etcd_operator_core::backup::report::{Done, Failure, Outcome, Reason, Report};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use super::LIMIT;
use crate::install::IMAGE;
use crate::runner::Context;
use crate::test::{Test, Topology};
use crate::wait;

const POD: &str = "programs";
const INPUTS: &str = "inputs.json";
const WITHOUT_AUTHORITY: &str = "without-authority.json";

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![field.shared("image::its_programs_start_and_reach_a_store", |c| programs(c).boxed_local()).smoke()]
}

/// The program for backups finds the certificates of public authorities: without any it could not even open the store.
async fn programs(context: &Context) -> Result<()> {
    let tag = context.operator().await?.tag.clone().context("the image comes from elsewhere")?;
    let store = S3::start_for_pods(Options { tls: true, ..Options::default() }).await?;
    provide(context, &store).await?;
    let probe = |inputs: &str| json!(["probe", "--inputs", format!("/settings/{inputs}")]);
    let containers = [
        container("operator", &tag, "/etcd-operator", json!(["--version"])),
        container("agent", &tag, "/etcd-agent", json!(["--version"])),
        container("backup", &tag, "/etcd-backup", json!(["--version"])),
        container("probe", &tag, "/etcd-backup", probe(INPUTS)),
        container("distrusts", &tag, "/etcd-backup", probe(WITHOUT_AUTHORITY)),
    ];
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": POD},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": containers,
            "volumes": [
                {"name": "settings", "configMap": {"name": POD}},
                {"name": "credentials", "secret": {"secretName": POD}},
            ],
        },
    }))?;
    context.pods().create(&PostParams::default(), &pod).await?;
    let ended = |pod: &Pod| ends(pod).len() == containers.len();
    let pod = wait::present(context.pods(), POD, "all programs have ended", LIMIT, ended).await?;
    let ends = ends(&pod);
    for (name, code, message) in &ends[..3] {
        ensure!(*code == 0, "{name} exits with {code}: {message}");
    }
    let outcome = |index: usize| {
        let (name, _, message) = &ends[index];
        let report = serde_json::from_str::<Report>(message);
        report.map(|it| it.outcome).with_context(|| format!("{name} leaves {message:?}"))
    };
    let probed = outcome(3)?;
    ensure!(probed == Outcome::Succeeded(Done::Probe { conditional_puts: true }), "{probed:?}");
    let distrusted = outcome(4)?;
    let Outcome::Failed(Failure { reason: Word::Known(Reason::StoreUnreachable), message }) = &distrusted
    else {
        bail!("{distrusted:?}");
    };
    ensure!(message.contains("certificate"), "{message}");
    Ok(())
}

async fn provide(context: &Context, store: &S3) -> Result<()> {
    let mut inputs = json!({"store": {
        "type": "S3", "bucket": S3::BUCKET, "region": S3::REGION, "endpoint": store.endpoint(),
        "credentialsDirectory": "/credentials", "retrySeconds": 2,
    }});
    let without_authority = inputs.to_string();
    inputs["store"]["caFile"] = json!("/settings/ca.crt");
    let settings: ConfigMap = serde_json::from_value(json!({"metadata": {"name": POD}, "data": {
        INPUTS: inputs.to_string(), WITHOUT_AUTHORITY: without_authority,
        "ca.crt": std::fs::read_to_string(store.authority())?,
    }}))?;
    let credentials: Secret = serde_json::from_value(json!({"metadata": {"name": POD}, "stringData": {
        "AWS_ACCESS_KEY_ID": S3::ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": S3::SECRET_KEY,
    }}))?;
    let (client, namespace) = (context.client(), &context.namespace);
    let create = PostParams::default();
    Api::<ConfigMap>::namespaced(client.clone(), namespace).create(&create, &settings).await?;
    Api::<Secret>::namespaced(client.clone(), namespace).create(&create, &credentials).await?;
    Ok(())
}

fn container(name: &str, tag: &str, program: &str, arguments: Value) -> Value {
    json!({
        "name": name,
        "image": format!("{IMAGE}:{tag}"),
        "command": [program],
        "args": arguments,
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "settings", "mountPath": "/settings"}, {"name": "credentials", "mountPath": "/credentials"},
        ],
    })
}

/// Name, exit code and termination message of each container that has ended.
fn ends(pod: &Pod) -> Vec<(String, i32, String)> {
    let statuses = pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    let mut ends: Vec<_> = statuses
        .filter_map(|it| {
            let end = it.state.as_ref()?.terminated.as_ref()?;
            Some((it.name.clone(), end.exit_code, end.message.clone().unwrap_or_default()))
        })
        .collect();
    let order = |name: &str| pod.spec.iter().flat_map(|it| &it.containers).position(|it| it.name == name);
    ends.sort_by_key(|(name, ..)| order(name));
    ends
}
