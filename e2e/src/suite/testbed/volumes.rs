//! Persistent volumes: made on demand, of the size that was asked for, larger on request, and gone when they should be.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use testbed::fault::Fault;

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

pub async fn grown(context: &Context) -> Result<()> {
    create_claim(context, None).await?;
    let tools = start_tools(context).await?;
    let fill = ["dd", "if=/dev/zero", "of=/data/fill", "bs=65536"];
    ensure!(!tools.ask(&fill).await?.ok, "the disk did not fill");
    request(context, "128Mi").await?;
    wait_capacity(context, "128Mi").await?;
    // The same pod, with its volume mounted all the time.
    tools.run(&["dd", "if=/dev/zero", "of=/data/more", "bs=1048576", "count=60"]).await?;
    ensure!(!tools.ask(&fill).await?.ok, "it holds more than was requested");
    context.step("a full volume in use has more room");

    let (claim, namespace) = (CLAIM.to_owned(), context.namespace.clone());
    let fault = context.inject(Fault::FailGrowth { claim, namespace }).await?;
    request(context, "192Mi").await?;
    wait_failed(context, "128Mi").await?;
    let refused = request(context, "128Mi").await;
    ensure!(refused.is_err(), "Kubernetes lets no request go back to the capacity itself");
    request(context, "160Mi").await?;
    context.undo(&fault).await?;
    wait_capacity(context, "160Mi").await?;
    context.step("a growth that failed was reduced and done");

    request(context, "1Ti").await?;
    wait_failed(context, "160Mi").await?;
    request(context, "161Mi").await?;
    wait_capacity(context, "161Mi").await?;
    context.step("a growth that is too large failed and was reduced");
    Ok(())
}

pub async fn fixed(context: &Context) -> Result<()> {
    create_claim(context, Some("standard-fixed")).await?;
    start_tools(context).await?;
    match request(context, "128Mi").await {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        outcome => bail!("the API server did not forbid the growth: {outcome:?}"),
    }
    context.step("the API server rejected the growth");
    Ok(())
}

async fn request(context: &Context, size: &str) -> kube::Result<PersistentVolumeClaim> {
    let requests = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    claims(context).patch(CLAIM, &PatchParams::default(), &Patch::Merge(requests)).await
}

/// Waits until claim and volume report a size, and that nothing else is pending.
async fn wait_capacity(context: &Context, size: &str) -> Result<()> {
    let what = format!("the claim has {size}");
    let settled = |claim: &PersistentVolumeClaim| {
        let status = claim.status.clone().unwrap_or_default();
        capacity(claim).as_deref() == Some(size)
            && status.allocated_resource_statuses.is_none_or(|states| states.is_empty())
            && status.conditions.is_none_or(|conditions| conditions.is_empty())
    };
    wait::present(claims(context), CLAIM, &what, LIMIT, settled).await?;
    let volume = Volume::of_claim(context).await?;
    let spec = volume.api.get(&volume.name).await?.spec.unwrap_or_default();
    let volume = spec.capacity.and_then(|capacity| capacity.get("storage").cloned());
    ensure!(volume.as_ref().is_some_and(|it| it.0 == size), "the volume has {volume:?}, the claim {size}");
    Ok(())
}

/// Waits until the claim reports that it cannot grow.
async fn wait_failed(context: &Context, had: &str) -> Result<()> {
    let failed = |claim: &PersistentVolumeClaim| {
        let conditions = claim.status.iter().flat_map(|status| &status.conditions).flatten();
        conditions.into_iter().any(|condition| condition.type_ == "ControllerResizeError")
    };
    wait::present(claims(context), CLAIM, "the growth failed", LIMIT, failed).await?;
    let capacity = capacity(&claims(context).get(CLAIM).await?);
    ensure!(capacity.as_deref() == Some(had), "a growth that failed left {capacity:?}");
    let events = Api::<Event>::namespaced(context.client().clone(), &context.namespace);
    let selected = watcher::Config::default().fields("reason=VolumeResizeFailed");
    wait::objects(events, selected, "an event says why", LIMIT, |events| !events.is_empty()).await?;
    Ok(())
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<String> {
    let capacity = claim.status.as_ref()?.capacity.as_ref()?;
    capacity.get("storage").map(|size| size.0.clone())
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
