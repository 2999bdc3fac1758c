//! Cluster DNS as its profiles promise it.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::LIMIT;
use crate::runner::Context;
use crate::tools::{Answer, Spec, Tools};
use crate::wait;

/// Shorter than any answer of the field profile lives.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Each is asked for once: asking makes a resolver remember.
const FRESH_NAMES: usize = 20;

pub async fn field_remembers(context: &Context) -> Result<()> {
    let (tools, late) = asked_too_early(context).await?;
    ensure!(!tools.look_up(&late).await?.is_found(), "the name is known at once: nothing was remembered");
    context.step("the name exists, but the cache still denies it");
    wait::until("the name resolves", LIMIT, async || Ok(tools.look_up(&late).await?.is_found())).await?;
    context.step("the name resolves");
    Ok(())
}

pub async fn fast_forgets(context: &Context) -> Result<()> {
    let (tools, late) = asked_too_early(context).await?;
    wait::until("the name resolves", AT_ONCE, async || Ok(tools.look_up(&late).await?.is_found())).await?;
    context.step("the name resolves");
    Ok(())
}

pub async fn reverse_answers(context: &Context) -> Result<()> {
    let (tools, address) = tools_and_member(context).await?;
    let name = format!("etcd-0.etcd.{}.svc.cluster.local", context.namespace);
    let answer = tools.look_up_address(address).await?;
    ensure!(answer == Answer::Found(vec![name.clone()]), "{address} is not called {name}: {answer:?}");
    Ok(())
}

pub async fn reverse_is_silent(context: &Context) -> Result<()> {
    let (tools, address) = tools_and_member(context).await?;
    let answer = tools.look_up_address(address).await?;
    ensure!(answer == Answer::Nothing, "{address} must have no name: {answer:?}");
    let forward = format!("etcd-0.etcd.{}.svc.cluster.local", context.namespace);
    ensure!(tools.look_up(&forward).await?.is_found(), "{forward} must have an address");
    Ok(())
}

async fn tools(context: &Context) -> Result<Tools> {
    Spec::named("tools").start(context.client(), &context.kubectl(), &context.namespace).await
}

async fn tools_and_member(context: &Context) -> Result<(Tools, Ipv4Addr)> {
    let etcd = context.plain(1);
    etcd.apply(context.client()).await?;
    let tools = tools(context).await?;
    let members = etcd.serving(context.client(), LIMIT, |_| {}).await?;
    let address = members[0].address.ip().to_string().parse()?;
    Ok((tools, address))
}

/// A name that was asked for before it existed, at a moment when a name nobody asked for is known.
async fn asked_too_early(context: &Context) -> Result<(Tools, String)> {
    let tools = tools(context).await?;
    let full = |name: &str| format!("{name}.{}.svc.cluster.local", context.namespace);
    let late = full("late");
    ensure!(!tools.look_up(&late).await?.is_found(), "{late} must not exist yet");
    create_service(context, "late").await?;
    for attempt in 0..FRESH_NAMES {
        let name = format!("fresh-{attempt}");
        create_service(context, &name).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        if tools.look_up(&full(&name)).await?.is_found() {
            return Ok((tools, late));
        }
    }
    bail!("no new Service becomes known")
}

async fn create_service(context: &Context, name: &str) -> Result<()> {
    let service: Service =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))?;
    let services = Api::<Service>::namespaced(context.client().clone(), &context.namespace);
    services.create(&PostParams::default(), &service).await?;
    Ok(())
}
