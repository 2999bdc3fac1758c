//! Somebody deletes what the operator has created around the members: it comes back, and no member restarts for it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::{Roster, lives};
use crate::suite::lifecycle::{born, judged};
use crate::suite::{BACK_OFF_LIMIT, LIMIT};
use crate::wait;

/// All but Secrets, which are read less often.
const KINDS: &str = "statefulset,service,configmap,poddisruptionbudget,networkpolicy";
/// The certificate of members. That of clients is what the clients of this test connect with.
const SECRET: &str = "secret/kv-peer-tls";
/// Secrets are read every five minutes while nothing else happens.
const SECRET_LIMIT: Duration = Duration::from_secs(450);

/// One after the other, the StatefulSet without its pods.
pub async fn created_again(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"security": {"networkPolicy": {}}})).await?;
    let promised = Promised::members(3).with_network_policy();
    cluster.agrees(&promised).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    let all = uids(context, &cluster, KINDS).await?;
    ensure!(all.len() >= 6, "not all objects were found: {all:?}");
    let secret = uids(context, &cluster, SECRET).await?;
    delete(context, &cluster, SECRET).await?;
    for object in all.keys() {
        delete(context, &cluster, object).await?;
        wait_for_another(context, &cluster, object, &all, LIMIT).await?;
        history.goes_on(LIMIT).await?;
    }
    wait_for_another(context, &cluster, SECRET, &secret, SECRET_LIMIT).await?;
    let agree = async || cluster.agrees(&promised).await.map(|()| true);
    wait::until("everything is there again", BACK_OFF_LIMIT, agree).await?;
    before.is_still_that_of(&cluster).await?;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a member was restarted: {pods:?}, {now:?}");
    judged(context, history).await
}

/// The pods of the StatefulSet end with it. It returns for all volumes, and the members with their data.
pub async fn with_its_pods(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Roster::of(&cluster).await?;
    let object = format!("statefulset/{}", cluster.name);
    let set = uids(context, &cluster, &object).await?;
    let within = ["--namespace", cluster.namespace.as_str()];
    let delete = ["delete", &object, "--cascade=foreground", "--wait=false"];
    context.kubectl().run(&[&within[..], &delete].concat()).await?;
    wait_for_another(context, &cluster, &object, &set, BACK_OFF_LIMIT).await?;
    before.returns(&cluster).await?;
    judged(context, history).await
}

async fn delete(context: &Context, cluster: &Operated, object: &str) -> Result<()> {
    let within = ["--namespace", cluster.namespace.as_str()];
    let delete = ["delete", object, "--cascade=orphan"];
    context.kubectl().run(&[&within[..], &delete].concat()).await?;
    context.step(format!("deleted {object}"));
    Ok(())
}

async fn wait_for_another(
    context: &Context,
    cluster: &Operated,
    object: &str,
    before: &BTreeMap<String, String>,
    limit: Duration,
) -> Result<()> {
    let another = async || {
        let now = uids(context, cluster, object).await?;
        Ok(now.get(object).is_some_and(|uid| before.get(object) != Some(uid)))
    };
    wait::until(&format!("another {object}"), limit, another).await
}

/// Of these kinds with the label of the cluster, or of one object: as `service/kv-peer`.
async fn uids(context: &Context, cluster: &Operated, what: &str) -> Result<BTreeMap<String, String>> {
    let within = ["--namespace", cluster.namespace.as_str()];
    let one = r#"{.kind}/{.metadata.name}{" "}{.metadata.uid}{"\n"}"#;
    let (selector, range) = (cluster.selector(), format!("{{range .items[*]}}{one}{{end}}"));
    let output = |template: &str| format!("jsonpath={template}");
    let printed = if what.contains('/') {
        context.kubectl().run(&[&within[..], &["get", what, "--output", &output(one)]].concat()).await?
    } else {
        let all = ["get", what, "--selector", &selector, "--output", &output(&range)];
        context.kubectl().run(&[&within[..], &all].concat()).await?
    };
    let pair = |line: &str| {
        let (object, uid) = line.split_once(' ')?;
        let (kind, name) = object.split_once('/')?;
        Some((format!("{}/{name}", kind.to_lowercase()), uid.to_owned()))
    };
    Ok(printed.lines().filter_map(pair).collect())
}
