//! Volumes as directories: one for each claim, by its UID, and one for each ConfigMap, Secret or emptyDir of a pod.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::runtime::{WatchStreamExt, watcher as watching};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Node;
use super::projected::{Projected, Source};
use crate::control_plane::apply;
use crate::volumes::{growth, storage_classes};

pub fn watch<K>(client: &Client) -> (Store<K>, impl Future<Output = ()> + Send + 'static)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (store, writer) = reflector::store();
    let objects =
        watching(Api::<K>::all(client.clone()), Config::default()).default_backoff().reflect(writer);
    (store, objects.for_each(|_| futures::future::ready(())))
}

/// What a provisioner does: every claim without a volume gets one, which is deleted with the claim. A volume grows at
/// once when its claim requests more.
pub async fn provision(client: Client, directory: PathBuf) {
    for class in storage_classes() {
        while apply(Api::all(client.clone()), &class).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let mut events = watcher(claims, Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(claim) | Event::InitApply(claim)) if is_unbound(&claim) => {
                let volume = volume_for(&claim, &directory);
                // A second one is refused, and any other failure shows in pods that do not start.
                let _ = volumes.create(&PostParams::default(), &volume).await;
            }
            Ok(Event::Apply(claim) | Event::InitApply(claim)) if growth::wanted_bytes(&claim).is_some() => {
                // The next change of the claim, or the next list, repeats what failed.
                let _ = grow(&client, &claim).await;
            }
            Ok(Event::Delete(claim)) => {
                let _ = volumes.delete(&volume_name(&claim), &DeleteParams::default()).await;
                let _ = fs::remove_dir_all(directory.join(claim.uid().unwrap_or_default()));
            }
            Ok(Event::Apply(_) | Event::InitApply(_) | Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

/// A directory has no size: the growth is only reported.
async fn grow(client: &Client, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let parameters = PatchParams::default();
    let capacity = json!({"spec": {"capacity": {"storage": growth::requested(claim)}}});
    let volumes = Api::<PersistentVolume>::all(client.clone());
    volumes.patch(&volume_name(claim), &parameters, &Patch::Merge(capacity)).await?;
    let claims =
        Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let status = Patch::Merge(growth::done(claim));
    claims.patch_status(&claim.name_any(), &parameters, &status).await.map(drop)
}

fn is_unbound(claim: &PersistentVolumeClaim) -> bool {
    let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    !bound && claim.metadata.deletion_timestamp.is_none()
}

fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pv-{}", claim.uid().unwrap_or_default())
}

fn volume_for(claim: &PersistentVolumeClaim, directory: &Path) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let volume = json!({
        "metadata": {"name": volume_name(claim)},
        "spec": {
            "capacity": spec.resources.and_then(|resources| resources.requests),
            "accessModes": spec.access_modes,
            "storageClassName": spec.storage_class_name.unwrap_or_default(),
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": directory.join(claim.uid().unwrap_or_default())},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
            },
        },
    });
    serde_json::from_value(volume).expect("it is a volume")
}

/// The volumes of one pod.
pub struct Mounted {
    pub paths: BTreeMap<String, PathBuf>,
    projected: Vec<Projected>,
}

impl Mounted {
    /// Nothing while a claim has no volume.
    pub fn of(pod: &Pod, node: &Node, directory: &Path) -> Result<Option<Self>> {
        let mut mounted = Self { paths: BTreeMap::new(), projected: Vec::new() };
        let namespace = pod.namespace().unwrap_or_default();
        let volumes = pod.spec.clone().unwrap_or_default().volumes.unwrap_or_default();
        for volume in volumes {
            let mut path = directory.join(&volume.name);
            if let Some(source) = volume.persistent_volume_claim {
                let claim = node.claims.get(&ObjectRef::new(&source.claim_name).within(&namespace));
                let phase = |claim: &PersistentVolumeClaim| claim.status.clone().and_then(|it| it.phase);
                // As the kubelet: a claim that is being deleted makes room for another one of its name.
                let stays = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
                let Some(claim) = stays.filter(|claim| phase(claim).as_deref() == Some("Bound")) else {
                    return Ok(None);
                };
                path = node.volumes().join(claim.uid().unwrap_or_default());
            } else if let Some(source) = Source::of(&volume, &namespace) {
                mounted.projected.push(Projected::new(source, path.clone()));
            }
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
            mounted.paths.insert(volume.name, path);
        }
        Ok(Some(mounted))
    }

    /// Whether everything is there without which the pod does not start.
    pub fn can_be_written(&self, node: &Node) -> bool {
        self.projected.iter().all(|volume| volume.can_be_written(node))
    }

    /// Writes what has been known for longer than the delay.
    pub fn refresh(&mut self, node: &Node, delay: Duration) -> Result<()> {
        self.projected.iter_mut().try_for_each(|volume| volume.refresh(node, delay))
    }
}
