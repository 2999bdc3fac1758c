//! The steps, done.

use std::time::Instant;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::claim::{Order, Refusal};
use super::decision::{Facts, Step, decide};
use super::{PROVISIONER, disk, disk_of, growth, objects};
use crate::fault;
use crate::layout::{Layout, Node};

/// In characters; the API server takes up to 1024 bytes.
const LONGEST_NOTE: usize = 500;

pub struct Worker {
    pub layout: Layout,
    client: Client,
    volumes: Api<PersistentVolume>,
    classes: Api<StorageClass>,
    recorder: Recorder,
}

/// A volume name to be worked on, with the objects as last seen.
pub struct Task {
    pub name: String,
    pub claim: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
}

impl Worker {
    pub fn new(client: Client, layout: Layout) -> Self {
        Self {
            layout,
            volumes: Api::all(client.clone()),
            classes: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), PROVISIONER.into()),
            client,
        }
    }

    /// Does what has to be done about a volume. What goes wrong is also told in an event.
    pub async fn work(&self, task: &Task) -> Result<()> {
        for step in self.steps(task, task.volume.as_ref())? {
            let result = self.take(task, &step).await;
            if let Err(error) = &result {
                self.report(task, &step, error).await;
            }
            result?;
        }
        Ok(())
    }

    fn steps(&self, task: &Task, volume: Option<&PersistentVolume>) -> Result<Vec<Step>> {
        let volumes = self.layout.volumes();
        Ok(decide(&Facts {
            claim: task.claim.as_ref(),
            volume,
            disks: &disk::find(&volumes, &task.name)?,
            free_bytes: disk::free_bytes(&volumes)?,
            growth_fails: fault::prevents_growth(&self.layout, &task.name)?,
        }))
    }

    async fn take(&self, task: &Task, step: &Step) -> Result<()> {
        if step.must_be_confirmed() && !self.is_confirmed(task, step).await? {
            return Ok(());
        }
        let disk = |node: &Node| disk_of(&self.layout, *node, &task.name);
        match step {
            Step::Make(order) => self.make(task, *order).await,
            Step::Mount(order) => {
                disk(&order.node).mount(order.size_bytes).await?;
                println!("{}: mounted again on {}", task.name, order.node);
                Ok(())
            }
            Step::Grow(order) => self.grow(task, *order).await,
            Step::Reclaim(node) => {
                disk(node).remove().await?;
                self.delete_volume(task).await?;
                println!("{}: reclaimed from {node}", task.name);
                Ok(())
            }
            Step::Discard(node) => {
                disk(node).remove().await?;
                println!("{}: the volume does not exist any more, removed from {node}", task.name);
                Ok(())
            }
            Step::Refuse(refusal) | Step::RefuseGrowth(refusal) if refusal.may_pass() => {
                Err(refusal.clone().into())
            }
            Step::Refuse(refusal) | Step::RefuseGrowth(refusal) => {
                eprintln!("{}: {refusal}", task.name);
                self.report(task, step, &refusal.clone().into()).await;
                Ok(())
            }
        }
    }

    /// Whether a step is still right now: watched objects may be old.
    async fn is_confirmed(&self, task: &Task, step: &Step) -> Result<bool> {
        let volume = self.volumes.get_opt(&task.name).await.context("cannot read the volume")?;
        Ok(self.steps(task, volume.as_ref())?.contains(step))
    }

    async fn make(&self, task: &Task, order: Order) -> Result<()> {
        let began = Instant::now();
        let claim = task.claim.as_ref().context("a volume has a PVC")?;
        let disk = disk_of(&self.layout, order.node, &task.name);
        let ((), class) = tokio::try_join!(disk.make(order.size_bytes), self.class_of(claim))?;
        let volume = objects::volume(claim, &class, order.node, &disk);
        match self.volumes.create(&PostParams::default(), &volume).await {
            Ok(_) => println!("{}: created on {} in {:?}", task.name, order.node, began.elapsed()),
            // A former attempt made it, and we have not been told yet.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("cannot create the volume"),
        }
        Ok(())
    }

    async fn grow(&self, task: &Task, order: Order) -> Result<()> {
        let claim = task.claim.as_ref().context("a volume that grows has a PVC")?;
        if !growth::is_begun(claim) {
            self.write_status(claim, &growth::in_progress(claim, Timestamp::now())).await?;
            self.note(claim, EventType::Normal, "Resizing", format!("growing volume {}", task.name)).await;
        }
        disk_of(&self.layout, order.node, &task.name).mount(order.size_bytes).await?;
        let capacity = json!({"spec": {"capacity": {"storage": growth::requested(claim)}}});
        let patched = self.volumes.patch(&task.name, &PatchParams::default(), &Patch::Merge(capacity)).await;
        patched.context("cannot change the capacity of the volume")?;
        self.write_status(claim, &growth::done(claim)).await?;
        println!("{}: grown to {} bytes", task.name, order.size_bytes);
        let note = "the volume has the requested size".to_owned();
        self.note(claim, EventType::Normal, "VolumeResizeSuccessful", note).await;
        Ok(())
    }

    async fn write_status(&self, claim: &PersistentVolumeClaim, status: &Value) -> Result<()> {
        let namespace = claim.namespace().unwrap_or_default();
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &namespace);
        // A claim that was created again under this name is another one.
        let patch = Patch::Merge(json!({"metadata": {"uid": claim.uid()}, "status": status["status"]}));
        let patched = claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await;
        patched.context("cannot change the status of the PVC")?;
        Ok(())
    }

    async fn class_of(&self, claim: &PersistentVolumeClaim) -> Result<StorageClass> {
        let name =
            claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        self.classes.get(name).await.with_context(|| format!("cannot read storage class {name:?}"))
    }

    async fn delete_volume(&self, task: &Task) -> Result<()> {
        let uid = task.volume.as_ref().and_then(|volume| volume.metadata.uid.clone());
        let same = Preconditions { uid, resource_version: None };
        match self.volumes.delete(&task.name, &DeleteParams::default().preconditions(same)).await {
            Ok(_) => Ok(()),
            // Somebody was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error).context("cannot delete the volume"),
        }
    }

    async fn report(&self, task: &Task, step: &Step, error: &anyhow::Error) {
        let note = format!("{error:#}");
        if let Some(claim) = task.claim.as_ref().filter(|_| step.grows()) {
            let failed = growth::failed(claim, &note, Timestamp::now());
            if let Err(error) = self.write_status(claim, &failed).await {
                eprintln!("{}: {error:#}", task.name);
            }
            return self.note(claim, EventType::Warning, "VolumeResizeFailed", note).await;
        }
        let reason = error.downcast_ref().map_or("VolumeFailed", Refusal::reason);
        match (&task.volume, &task.claim) {
            (Some(volume), _) => self.note(volume, EventType::Warning, reason, note).await,
            (None, Some(claim)) => self.note(claim, EventType::Warning, reason, note).await,
            (None, None) => {}
        }
    }

    async fn note<K>(&self, about: &K, type_: EventType, reason: &str, note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        // With a version, repetitions about a changed object would not be counted as one event.
        let regarding = ObjectReference { resource_version: None, ..about.object_ref(&()) };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST_NOTE).collect()),
            action: "Provision".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            eprintln!("{}: cannot create an event: {error}", about.name_any());
        }
    }
}
