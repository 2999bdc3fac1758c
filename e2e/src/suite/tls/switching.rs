//! From plain text to TLS and back, on clusters that run.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::form::member_config;
use etcd_operator_core::names::reason;
use etcd_operator_core::tls::{ClientPort, PeerPort, Transport};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::connections::{etcdctl_works, pods, tls_ready};
use crate::history::Endpoints;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::lifecycle::{asked_for, judged_without_gap};

const PLAIN: Transport = Transport { clients: ClientPort::Http, peers: PeerPort::Http };
const BOTH: Transport = Transport { clients: ClientPort::Both, peers: PeerPort::Https };

/// Clients in plain text write all the time, there and back. Then those are refused, and TLS is given up at once.
pub async fn there_and_back(context: &Context) -> Result<()> {
    let cluster = asked_for(context, 3, json!({"security": {"tls": {"enabled": false}}})).await?;
    cluster.wait_until_settled(3).await?;
    let service = cluster.names().client_service();
    let endpoints = Endpoints::behind_service(context.client().clone(), &context.namespace, &service);
    let history = context.history_at(endpoints).await?;
    history.goes_on(LIMIT).await?;
    switched(context, &cluster, json!({"enabled": true}), BOTH).await?;
    history.goes_on(LIMIT).await?;
    switched(context, &cluster, json!({"enabled": false}), PLAIN).await?;
    judged_without_gap(context, history).await?;
    switched(context, &cluster, json!({"enabled": true, "plainClients": "Refuse"}), Transport::TLS).await?;
    switched(context, &cluster, json!({"enabled": false, "plainClients": null}), PLAIN).await
}

/// A cluster of which no record says that anything was put into effect stays as it is until a user asks for it.
pub async fn applied(context: &Context) -> Result<()> {
    let cluster = asked_for(context, 3, json!({"security": {"tls": {"enabled": false}}})).await?;
    cluster.wait_until_settled(3).await?;
    let operator = context.operator().await?;
    operator.stop().await?;
    cluster.edit(json!({"spec": {"security": null}})).await?;
    let records = Api::<ConfigMap>::namespaced(context.client().clone(), &context.namespace);
    records.delete(&cluster.names().form(), &DeleteParams::default()).await?;
    let before = pods(&cluster).await?;
    operator.start().await?;
    operator.ready().await?;
    let reported = |it: &EtcdCluster| {
        tls_ready(it).is_some_and(|it| it.status == "False" && it.reason == reason::TLS_NOT_IN_EFFECT)
    };
    let seen = cluster.wait_for("the status reports that TLS is not in effect", reported).await?;
    context.step(tls_ready(&seen).context("it was just seen")?.message.clone());
    cluster.wait_until_settled(3).await?;
    ensure!(pods(&cluster).await? == before, "another operator alone restarted members");
    cluster.edit(json!({"metadata": {"annotations": {"etcd.etcd.io/apply": "security.tls"}}})).await?;
    is_done(context, &cluster, BOTH).await
}

async fn switched(context: &Context, cluster: &Operated, tls: Value, target: Transport) -> Result<()> {
    cluster.edit(json!({"spec": {"security": {"tls": tls}}})).await?;
    is_done(context, cluster, target).await
}

/// All pods are made with this, etcd lists what goes with it, and `etcdctl` works in every pod.
async fn is_done(context: &Context, cluster: &Operated, target: Transport) -> Result<()> {
    let has_url = |it: &EtcdCluster| {
        let members = it.status.iter().flat_map(|status| &status.members);
        let url = format!("{}://", target.peers.scheme());
        let client = format!("{}://", target.clients.scheme());
        members
            .filter(|member| {
                member.peer_url.as_ref().is_some_and(|it| it.starts_with(&url))
                    && member.client_url.as_ref().is_some_and(|it| it.starts_with(&client))
            })
            .count()
            == 3
    };
    cluster.wait_for("all members are switched", has_url).await?;
    cluster.wait_until_settled(3).await?;
    for (name, pod) in cluster.pods().await? {
        let found = pod.spec.as_ref().and_then(member_config).map(|config| config.transport);
        ensure!(found == Some(target), "{name} has {found:?}");
        etcdctl_works(context, cluster, &name, target.clients.scheme()).await?;
    }
    cluster.agrees(&Promised::members(3)).await?;
    context.step(target.to_string());
    Ok(())
}
