//! What a restore asks of a copy before it is fetched.

use std::io;
use std::path::Path;

use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::layout::{Layout, cluster_id};
use etcd_operator_core::backup::manifest::Manifest;
use etcd_operator_core::backup::report::Done;
use etcd_operator_core::backup::restorable;
use etcd_operator_core::version::Version;

use crate::copies;
use crate::error::Error;
use crate::store::Store;

/// How many copies an error names.
const NAMED: usize = 4;

/// Of the cluster of the inputs, or of the only one in the store.
pub async fn layout(store: &Store, inputs: &Inputs) -> Result<Layout, Error> {
    if inputs.cluster().is_some() {
        return store.layout(inputs);
    }
    let Done::Clusters { cluster_ids, .. } = copies::clusters(store).await? else {
        unreachable!("it lists clusters")
    };
    match cluster_ids.as_slice() {
        [only] => {
            let only = cluster_id(only).expect("only IDs are listed");
            store.layout(&Inputs { cluster_id: Some(only.to_string()), ..inputs.clone() })
        }
        [] => {
            Err(Error::NotFound(format!("{} has no copies: check the bucket and the path", store.location)))
        }
        several => Err(Error::Configuration(format!(
            "{} has copies of several clusters, give the ID of one: {}",
            store.location,
            several.join(", ")
        ))),
    }
}

/// The newest copy that has this revision and no other.
pub async fn with_revision(store: &Store, layout: &Layout, revision: i64) -> Result<Manifest, Error> {
    let mut manifests = copies::manifests(store, layout).await?;
    if let Some(found) = manifests.iter().rev().find(|it| restorable::has_exactly(it, revision)) {
        return Ok(found.clone());
    }
    manifests.sort_by_key(|it| restorable::distance(it, revision));
    let nearest = manifests.iter().take(NAMED).map(|it| {
        let revisions = it.revision;
        format!("{} (revisions {} to {})", it.name, revisions.lowest, revisions.highest)
    });
    Err(Error::NotFound(format!(
        "{} has no copy that is known to have exactly revision {revision}; use the name of one of the nearest: {}",
        store.location,
        nearest.collect::<Vec<_>>().join(", ")
    )))
}

/// Nothing is written before everything was checked. An earlier attempt can have left the file.
pub fn prepare(manifest: &Manifest, version: &str, output: &Path) -> Result<(), Error> {
    let version = Version::parse(version)
        .ok_or_else(|| Error::Configuration(format!("--for-etcd {version} is not a version of etcd")))?;
    restorable::by(manifest, version).map_err(Error::Unusable)?;
    let failed = |source| Error::Output { doing: format!("write {}", output.display()), source };
    let directory = output.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(failed)?;
    match std::fs::remove_file(output) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let space = rustix::fs::statvfs(directory).map_err(|error| failed(error.into()))?;
    let (free, needed) = (space.f_bavail.saturating_mul(space.f_frsize), restorable::room(manifest));
    if free < needed {
        let message = format!(
            "the volume has {free} bytes free, and the restore of copy {} needs {needed}: set a larger storage.size in \
             clusterTemplate",
            manifest.name
        );
        return Err(failed(io::Error::new(io::ErrorKind::StorageFull, message)));
    }
    Ok(())
}
