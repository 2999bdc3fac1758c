//! Disks that are emptied, taken away or filled.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::DeleteParams;
use testbed::fault::{Fault, Injected};

use super::{BACK_OFF_LIMIT, KEY, LIMIT, Three, VALUE, all_serve, kill, serves_again};
use crate::runner::Context;
use crate::wait;

/// What etcd says when it starts without its data in a cluster that knows it.
const AMNESIA: &str = "has already been bootstrapped";
/// What etcd says when it starts with a log in which a checksum is wrong.
const DAMAGED: &str = "walpb: crc mismatch";
const MEBIBYTE: usize = 1 << 20;

pub async fn wiped(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let (victim, claim) = (&three.members[1], three.plain.claim(1));
    let data = directory(context, &claim).await?.join("data/member");
    ensure!(data.exists(), "no data in {}", data.display());
    let namespace = context.namespace.clone();
    let wipe = context.inject(Fault::WipeVolume { claim, namespace }).await?;
    ensure!(!data.exists(), "{} is still there", data.display());
    expect_no_undo(context, &wipe).await?;
    context.inject(kill(context, &victim.name)).await?;
    expect_amnesia(context, &victim.name).await?;
    all_serve(three.others(victim)).await
}

pub async fn damaged(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let (victim, claim) = (&three.members[1], three.plain.claim(1));
    let namespace = context.namespace.clone();
    let damage = context.inject(Fault::DamageLog { claim, namespace }).await?;
    expect_no_undo(context, &damage).await?;
    victim.linearizable_read(KEY).await?;
    context.step("a running etcd does not notice");
    context.inject(kill(context, &victim.name)).await?;
    expect_log(context, &victim.name, DAMAGED).await?;
    all_serve(three.others(victim)).await
}

pub async fn deleted(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let (victim, claim) = (&three.members[1], three.plain.claim(1));
    let claims = Api::<PersistentVolumeClaim>::namespaced(context.client().clone(), &context.namespace);
    let volumes = Api::<PersistentVolume>::all(context.client().clone());
    let before = claims.get(&claim).await?;
    let volume = before.spec.and_then(|spec| spec.volume_name).context("a claim without a volume")?;
    let data = directory(context, &claim).await?.join("data/member");
    let namespace = context.namespace.clone();
    let delete = context.inject(Fault::DeleteVolume { claim: claim.clone(), namespace }).await?;
    wait::gone(volumes, &volume, "the volume is gone", LIMIT).await?;
    wait::until("the data is gone", LIMIT, async || Ok(!data.exists())).await?;
    expect_no_undo(context, &delete).await?;
    context.step("PVC, volume and data are deleted");

    // The StatefulSet makes a new claim for a new pod, which knows nothing.
    context.pods().delete(&victim.name, &DeleteParams::default()).await?;
    let another = |claim: &PersistentVolumeClaim| {
        claim.metadata.uid != before.metadata.uid
            && claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    wait::present(claims, &claim, "there is a new claim", LIMIT, another).await?;
    expect_amnesia(context, &victim.name).await?;
    all_serve(three.others(victim)).await
}

pub async fn filled(context: &Context) -> Result<()> {
    let etcd = context.plain(1).volume("256Mi");
    let members = etcd.create(context.client(), LIMIT).await?;
    let member = &members[0];
    member.put(KEY, VALUE).await?;
    context.step("one member serves");
    let namespace = context.namespace.clone();
    let fill = context.inject(Fault::FillDisk { claim: etcd.claim(0), namespace, leave_bytes: 0 }).await?;
    let written = write_until_refused(member).await?;
    context.step(format!("etcd rejected a write after {written} MiB"));
    expect_log(context, &member.name, "no space left on device").await?;
    context.undo(&fill).await?;
    serves_again(member, BACK_OFF_LIMIT).await?;
    member.put(KEY, VALUE).await?;
    context.step("the member serves, no data is lost");
    Ok(())
}

/// etcd has some room of its own ahead: the log's next file, and pages of the database that are free.
async fn write_until_refused(member: &crate::etcd::Member) -> Result<usize> {
    for count in 0..256 {
        if member.put("e2e/ballast", vec![b'x'; MEBIBYTE]).await.is_err() {
            return Ok(count);
        }
    }
    bail!("256 MiB were written to a full disk")
}

async fn expect_no_undo(context: &Context, injected: &Injected) -> Result<()> {
    ensure!(injected.undo(context.bed()).await.is_err(), "data that is gone cannot come back");
    Ok(())
}

async fn expect_amnesia(context: &Context, pod: &str) -> Result<()> {
    expect_log(context, pod, AMNESIA).await?;
    context.step("etcd refuses to start without its data");
    Ok(())
}

/// Waits for a text in the log of the pod, of its container now or of the one before.
async fn expect_log(context: &Context, pod: &str, text: &str) -> Result<()> {
    let kubectl = context.kubectl();
    let logs = ["logs", "--namespace", &context.namespace, pod];
    let former = [&logs[..], &["--previous"]].concat();
    wait::until(&format!("the log of {pod} says {text:?}"), LIMIT, async || {
        let (now, before) = (kubectl.ask(&logs).await?, kubectl.ask(&former).await?);
        Ok(now.out.contains(text) || before.out.contains(text))
    })
    .await
}

/// Where the claim's files are on this machine.
async fn directory(context: &Context, claim: &str) -> Result<PathBuf> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(context.client().clone(), &context.namespace);
    let volume = claims.get(claim).await?.spec.and_then(|spec| spec.volume_name).context("no volume yet")?;
    let volume = Api::<PersistentVolume>::all(context.client().clone()).get(&volume).await?;
    let local = volume.spec.and_then(|spec| spec.local).context("not a local volume")?;
    Ok(local.path.into())
}
