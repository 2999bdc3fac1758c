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
use crate::segments::Segments;
use crate::store::Store;

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

/// The highest revision that is known of the cluster, into a file: a restored cluster has to begin above it.
pub async fn write_highest(store: &Store, layout: &Layout, file: &Path) -> Result<(), Error> {
    let copies = copies::manifests(store, layout).await?;
    let of_copies = copies.iter().map(|it| it.revision.highest).max();
    let segments = Segments::new(store, layout.clone());
    let mut of_archive = None;
    // What is not one of ours does not count, but the name of a segment is its first revision.
    if let Some(first) = segments.firsts().await?.pop() {
        let head = segments.head(first).await?;
        of_archive = Some(head.and_then(Result::ok).map_or(first, |segment| segment.last));
    }
    let highest = of_copies.max(of_archive).unwrap_or_default();
    let written = std::fs::write(file, highest.to_string());
    written.map_err(|source| Error::Output { doing: format!("write {}", file.display()), source })
}

/// Nothing is written before everything was checked. An earlier attempt can have left the file.
pub fn prepare(manifest: &Manifest, version: &str, output: &Path, needed: u64) -> Result<(), Error> {
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
    let free = space.f_bavail.saturating_mul(space.f_frsize);
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
