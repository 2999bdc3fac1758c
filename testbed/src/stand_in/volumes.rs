//! Volumes as directories: one for each claim, by its UID, and one for each ConfigMap or emptyDir of a pod.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::runtime::{WatchStreamExt, watcher as watching};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Node;
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
    /// By the name of the volume.
    config_maps: BTreeMap<String, FromConfigMap>,
}

struct FromConfigMap {
    object: ObjectRef<ConfigMap>,
    path: PathBuf,
    written: BTreeMap<String, String>,
    /// What it is to be next, and since when that is known.
    next: Option<(BTreeMap<String, String>, Instant)>,
}

impl Mounted {
    /// Nothing while a claim has no volume.
    pub fn of(pod: &Pod, node: &Node, directory: &Path) -> Result<Option<Self>> {
        let mut mounted = Self { paths: BTreeMap::new(), config_maps: BTreeMap::new() };
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
            } else if let Some(source) = volume.config_map {
                let object = ObjectRef::new(&source.name).within(&namespace);
                let (written, next) = (BTreeMap::new(), None);
                let source = FromConfigMap { object, path: path.clone(), written, next };
                mounted.config_maps.insert(volume.name.clone(), source);
            }
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
            mounted.paths.insert(volume.name, path);
        }
        Ok(Some(mounted))
    }

    /// Writes what has been known for longer than the delay.
    pub fn refresh(&mut self, store: &Store<ConfigMap>, delay: Duration) -> Result<()> {
        for source in self.config_maps.values_mut() {
            let data = store.get(&source.object).and_then(|object| object.data.clone()).unwrap_or_default();
            if data == source.written {
                source.next = None;
                continue;
            }
            let next = source.next.take().filter(|(known, _)| *known == data);
            let (data, since) = next.unwrap_or_else(|| (data, Instant::now()));
            match since.elapsed() >= delay {
                true => source.write(data)?,
                false => source.next = Some((data, since)),
            }
        }
        Ok(())
    }
}

impl FromConfigMap {
    /// Each file appears whole.
    fn write(&mut self, data: BTreeMap<String, String>) -> Result<()> {
        for gone in self.written.keys().filter(|key| !data.contains_key(*key)) {
            fs::remove_file(self.path.join(gone)).context("cannot remove a file of a ConfigMap")?;
        }
        for (key, text) in &data {
            let temporary = self.path.join(format!("..{key}"));
            fs::write(&temporary, text).context("cannot write a file of a ConfigMap")?;
            fs::rename(&temporary, self.path.join(key)).context("cannot rename a file of a ConfigMap")?;
        }
        self.written = data;
        Ok(())
    }
}
