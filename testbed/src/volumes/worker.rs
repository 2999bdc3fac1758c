//! The steps, done.

use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource};

use super::claim::{Order, Refusal};
use super::decision::{Facts, Step, decide};
use super::{PROVISIONER, disk, disk_of, objects};
use crate::layout::{Layout, Node};

/// In characters; the API server takes up to 1024 bytes.
const LONGEST_NOTE: usize = 500;

pub struct Worker {
    pub layout: Layout,
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
            recorder: Recorder::new(client, PROVISIONER.into()),
        }
    }

    /// Does what has to be done about a volume. What goes wrong is also told in an event.
    pub async fn work(&self, task: &Task) -> Result<()> {
        for step in self.steps(task, task.volume.as_ref())? {
            let result = self.take(task, &step).await;
            if let Err(error) = &result {
                let reason = error.downcast_ref().map_or("VolumeFailed", Refusal::reason);
                self.warn(task, reason, format!("{error:#}")).await;
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
        }))
    }

    async fn take(&self, task: &Task, step: &Step) -> Result<()> {
        if step.destroys() && !self.is_confirmed(task, step).await? {
            return Ok(());
        }
        let disk = |node: &Node| disk_of(&self.layout, *node, &task.name);
        match step {
            Step::Make(order) => self.make(task, *order).await,
            Step::Mount(node) => {
                disk(node).mount().await?;
                println!("{}: mounted again on {node}", task.name);
                Ok(())
            }
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
            Step::Refuse(refusal) if refusal.may_pass() => Err(refusal.clone().into()),
            Step::Refuse(refusal) => {
                eprintln!("{}: {refusal}", task.name);
                self.warn(task, refusal.reason(), refusal.to_string()).await;
                Ok(())
            }
        }
    }

    /// Whether a step is still right now: watched objects may be old, and lost data does not come back.
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

    async fn warn(&self, task: &Task, reason: &str, note: String) {
        let volume = task.volume.as_ref().map(|volume| volume.object_ref(&()));
        let Some(regarding) = volume.or_else(|| task.claim.as_ref().map(|claim| claim.object_ref(&())))
        else {
            return;
        };
        // With a version, repetitions about a changed object would not be counted as one event.
        let regarding = ObjectReference { resource_version: None, ..regarding };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST_NOTE).collect()),
            action: "Provision".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            eprintln!("{}: cannot create an event: {error}", task.name);
        }
    }
}
