//! Persistent volumes: made on demand, of the size that was asked for, and gone when they should be.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;

use super::LIMIT;
use crate::runner::Context;
use crate::tools::{Spec, Tools, USER};
use crate::wait;

const CLAIM: &str = "data";
const REQUESTED_MIB: u64 = 64;

pub async fn first_consumer(context: &Context) -> Result<()> {
    create_claim(context, None).await?;
    let events = Api::<Event>::namespaced(context.client().clone(), &context.namespace);
    let selected = watcher::Config::default().fields("reason=WaitForFirstConsumer");
    wait::objects(events, selected, "the claim waits for a pod", LIMIT, |events| !events.is_empty()).await?;
    let phase = claims(context).get(CLAIM).await?.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Pending"), "bound without a pod: {phase:?}");
    context.step("the PVC is pending");

    let tools = start_tools(context).await?;
    let phase = claims(context).get(CLAIM).await?.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Bound"), "a pod runs on a claim that is {phase:?}");
    let (user, group) = (USER.to_string(), tools.run(&["stat", "-c", "%g", "/data"]).await?);
    ensure!(group.trim() == user, "the volume belongs to group {}", group.trim());
    tools.run(&["touch", "/data/file"]).await?;
    let owner = tools.run(&["stat", "-c", "%u:%g", "/data/file"]).await?;
    ensure!(owner.trim() == format!("{user}:{user}"), "the file belongs to {}", owner.trim());
    context.step("a user who is not root writes");
    Ok(())
}

pub async fn full_disk(context: &Context) -> Result<()> {
    create_claim(context, None).await?;
    let tools = start_tools(context).await?;
    let fill = ["dd", "if=/dev/zero", "of=/data/fill", "bs=65536"];
    let said = tools.ask(&fill).await?;
    ensure!(!said.ok && said.err.contains("No space left on device"), "the disk did not fill: {said:?}");
    let written: u64 = tools.run(&["stat", "-c", "%s", "/data/fill"]).await?.trim().parse()?;
    let requested = REQUESTED_MIB << 20;
    context.step(format!("full after {written} of {requested} bytes"));
    // A file system keeps something for itself, but never gives more than was asked for.
    ensure!(written <= requested && written > requested / 2, "{written} of {requested} bytes");
    let more = ["dd", "if=/dev/zero", "of=/data/more", "bs=1048576", "count=1"];
    ensure!(!tools.ask(&more).await?.ok, "there is still room");
    tools.run(&["rm", "/data/fill"]).await?;
    tools.run(&more).await?;
    context.step("the volume has free space again");
    Ok(())
}

pub async fn deleted(context: &Context) -> Result<()> {
    create_claim(context, None).await?;
    let volume = written_and_left(context).await?;
    context.step("the pod is deleted, the data remains");
    delete_claim(context).await?;
    wait::gone(volume.api.clone(), &volume.name, "the volume is gone", LIMIT).await?;
    volume.wait_erased(context).await
}

pub async fn retained(context: &Context) -> Result<()> {
    create_claim(context, Some("standard-retain")).await?;
    let volume = written_and_left(context).await?;
    delete_claim(context).await?;
    let released = |volume: &PersistentVolume| {
        volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released")
    };
    wait::present(volume.api.clone(), &volume.name, "the volume is released", LIMIT, released).await?;
    ensure!(volume.marker().exists(), "the data went with the claim");
    context.step("the PVC is deleted, the data remains");
    volume.api.delete(&volume.name, &DeleteParams::default()).await?;
    wait::gone(volume.api.clone(), &volume.name, "the volume is gone", LIMIT).await?;
    volume.wait_erased(context).await
}

/// A volume as an object and as a place on this machine.
struct Volume {
    api: Api<PersistentVolume>,
    name: String,
    directory: PathBuf,
}

impl Volume {
    async fn of_claim(context: &Context) -> Result<Self> {
        let claim = claims(context).get(CLAIM).await?;
        let name = claim.spec.and_then(|spec| spec.volume_name).context("a claim without a volume")?;
        let api = Api::<PersistentVolume>::all(context.client().clone());
        let local = api.get(&name).await?.spec.and_then(|spec| spec.local).context("not a local volume")?;
        Ok(Self { api, name, directory: local.path.into() })
    }

    fn marker(&self) -> PathBuf {
        self.directory.join("marker")
    }

    async fn wait_erased(&self, context: &Context) -> Result<()> {
        let layout = context.bed().layout().volumes();
        let what = format!("nothing of {} is left in {}", self.name, layout.display());
        wait::until(&what, LIMIT, async || Ok(!names_below(&layout, &self.name))).await?;
        context.step("the data is gone");
        Ok(())
    }
}

fn names_below(directory: &std::path::Path, part: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        entry.file_name().to_string_lossy().contains(part)
            || (entry.path().is_dir() && names_below(&entry.path(), part))
    })
}

/// Writes a marker through a pod, removes the pod, and looks for the marker on the machine.
async fn written_and_left(context: &Context) -> Result<Volume> {
    let tools = start_tools(context).await?;
    tools.run(&["sh", "-c", "echo kept > /data/marker && sync"]).await?;
    let volume = Volume::of_claim(context).await?;
    context.pods().delete(&tools.pod, &DeleteParams::default()).await?;
    wait::gone::<Pod>(context.pods(), &tools.pod, "the pod is gone", LIMIT).await?;
    ensure!(volume.marker().exists(), "the data went with the pod");
    Ok(volume)
}

fn claims(context: &Context) -> Api<PersistentVolumeClaim> {
    Api::namespaced(context.client().clone(), &context.namespace)
}

async fn create_claim(context: &Context, class: Option<&str>) -> Result<()> {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": format!("{REQUESTED_MIB}Mi")}},
        },
    }))?;
    claims(context).create(&PostParams::default(), &claim).await.context("cannot create the claim")?;
    Ok(())
}

async fn delete_claim(context: &Context) -> Result<()> {
    claims(context).delete(CLAIM, &DeleteParams::default()).await?;
    wait::gone(claims(context), CLAIM, "the claim is gone", LIMIT).await
}

async fn start_tools(context: &Context) -> Result<Tools> {
    let spec = Spec::named("tools").with_claim(CLAIM);
    spec.start(context.client(), &context.kubectl(), &context.namespace).await
}
