//! The copies in a store: list, read, delete.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::layout::{
    CopyName, Layout, cluster_id, name_in_data_file, name_in_manifest_file,
};
use etcd_operator_core::backup::manifest::{MAX_MANIFEST_BYTES, Manifest, Unreadable};
use etcd_operator_core::backup::page::Page;
use etcd_operator_core::backup::report::{Done, Problem, Summary, first_names};
use etcd_operator_core::backup::retention::{Stored, outdated};
use futures::TryStreamExt;
use jiff::Timestamp;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::error::Error;
use crate::segments::Segments;
use crate::store::Store;

/// The clusters that have anything in the store.
pub async fn clusters(store: &Store) -> Result<Done, Error> {
    let root = store.root();
    let found = store.objects.list_with_delimiter(Some(&root)).await;
    let found = found.map_err(|error| Error::store(format!("list {}", store.location), &error))?;
    let names = found.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
    let ids: Vec<_> = names.filter(|name| cluster_id(name).is_some()).collect();
    Ok(Done::Clusters { cluster_ids: first_names(&ids), count: ids.len() })
}

/// A page of copies, newest first, that begins before a name.
pub async fn list(store: &Store, layout: &Layout, before: Option<&CopyName>) -> Result<Done, Error> {
    let names = names(store, layout).await?;
    let mut page = Page::default();
    let mut last = None;
    for name in names.into_iter().rev().filter(|name| before.is_none_or(|before| name < before)) {
        let entry = match read(store, layout, &name).await {
            Ok(Ok(manifest)) => Ok(Summary::from(&manifest)),
            Ok(Err(unreadable)) => Err(Problem { name: name.clone(), message: unreadable.to_string() }),
            // It was deleted meanwhile.
            Err(Error::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        if !page.add(entry) {
            return Ok(page.finish(last));
        }
        last = Some(name);
    }
    Ok(page.finish(None))
}

/// The manifest of a named copy, or of the newest one that this version can read.
pub async fn find(store: &Store, layout: &Layout, name: Option<&CopyName>) -> Result<Manifest, Error> {
    if let Some(name) = name {
        let unusable = |error: Unreadable| Error::Unusable(format!("copy {name} cannot be used: {error}"));
        return read(store, layout, name).await?.map_err(unusable);
    }
    for name in names(store, layout).await?.into_iter().rev() {
        match read(store, layout, &name).await? {
            Ok(manifest) => return Ok(manifest),
            Err(unreadable) => eprintln!("skipping copy {name}: {unreadable}"),
        }
    }
    let (cluster, location) = (layout.cluster(), &store.location);
    Err(Error::NotFound(format!(
        "{location} has no copy of cluster {cluster}: check the path and the cluster ID; `etcd-backup clusters` lists them"
    )))
}

/// The lowest revision that the newest good copy can have.
pub async fn newest_good(
    store: &Store,
    layout: &Layout,
    damaged: &BTreeSet<CopyName>,
) -> Result<Option<i64>, Error> {
    let newest = good(store, layout, damaged).await?.pop();
    Ok(newest.map(|it| it.revision.lowest))
}

/// Copies whose data is complete, in the order of their revisions.
pub async fn good(
    store: &Store,
    layout: &Layout,
    damaged: &BTreeSet<CopyName>,
) -> Result<Vec<Manifest>, Error> {
    let mut manifests = Vec::new();
    for name in names(store, layout).await? {
        let manifest = match read(store, layout, &name).await {
            Ok(Ok(manifest)) if !damaged.contains(&name) => manifest,
            Ok(_) | Err(Error::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        let path = Path::from(layout.data_at(&manifest.data.file));
        match store.objects.head(&path).await {
            Ok(data) if data.size == manifest.data.bytes => manifests.push(manifest),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(Error::store(format!("read {path}"), &error)),
        }
    }
    manifests.sort_by_key(|it| (it.revision.lowest, it.completed_at));
    Ok(manifests)
}

/// Deletes copies by their names. Those that do not exist any more count as deleted; one without a manifest of ours is refused,
/// before anything is deleted.
pub async fn delete(store: &Store, layout: &Layout, names: &[CopyName]) -> Result<Done, Error> {
    let mut manifests = Vec::new();
    for name in names {
        match read(store, layout, name).await {
            Ok(Ok(manifest)) => manifests.push(manifest),
            Ok(Err(error)) => {
                return Err(Error::Unusable(format!("copy {name} is not deleted: {error}")));
            }
            Err(Error::NotFound(_)) => eprintln!("copy {name} does not exist"),
            Err(error) => return Err(error),
        }
    }
    for manifest in &manifests {
        remove(store, layout, manifest).await?;
    }
    Ok(Done::Delete { deleted: first_names(names), deleted_count: names.len() })
}

/// Deletes what the retention of the inputs does not keep.
pub async fn prune(store: &Store, layout: &Layout, inputs: &Inputs) -> Result<Done, Error> {
    // The manifests first: a copy that is completed meanwhile would seem to have no data otherwise.
    let names = names(store, layout).await?;
    let mut sizes = data_sizes(store, layout).await?;
    let (mut manifests, mut unreadable) = (BTreeMap::new(), 0);
    for name in names {
        match read(store, layout, &name).await {
            Ok(Ok(manifest)) => drop(manifests.insert(name, manifest)),
            Ok(Err(error)) => {
                eprintln!("copy {name} stays: {error}");
                sizes.retain(|file, _| name_in_data_file(file).as_ref() != Some(&name));
                unreadable += 1;
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let stored: Vec<_> = manifests
        .values()
        .map(|it| Stored {
            name: it.name.clone(),
            revision: it.revision.lowest,
            completed_at: it.completed_at,
            is_complete: sizes.remove(&it.data.file) == Some(it.data.bytes),
        })
        .collect();
    let deleted = outdated(&stored, &inputs.retention, Timestamp::now());
    for name in &deleted {
        remove(store, layout, &manifests[name]).await?;
    }
    // An unreadable manifest might be of a copy that needs any of them.
    let kept = manifests.iter().filter(|(name, _)| !deleted.contains(name));
    let lowest: Vec<i64> = kept.map(|(_, manifest)| manifest.revision.lowest).collect();
    let lowest = Some(lowest.as_slice()).filter(|_| unreadable == 0);
    let segments_deleted = Segments::new(store, layout.clone()).prune(lowest).await?;
    Ok(Done::Prune {
        deleted: first_names(&deleted),
        deleted_count: deleted.len(),
        kept: stored.len() - deleted.len(),
        unreadable,
        without_manifest: sizes.len(),
        segments_deleted,
    })
}

/// The manifest first: what has none is no copy, so a run that ends in between leaves none that cannot be restored.
async fn remove(store: &Store, layout: &Layout, manifest: &Manifest) -> Result<(), Error> {
    let paths = [layout.manifest_of(&manifest.name), layout.data_at(&manifest.data.file)];
    for path in paths.map(Path::from) {
        let deleted = crate::store::delete(&store.objects, &path).await;
        deleted.map_err(|error| Error::store(format!("delete {path}"), &error))?;
    }
    eprintln!("deleted copy {}", manifest.name);
    Ok(())
}

/// All that this version can read, oldest first.
pub async fn manifests(store: &Store, layout: &Layout) -> Result<Vec<Manifest>, Error> {
    let mut manifests = Vec::new();
    for name in names(store, layout).await? {
        match read(store, layout, &name).await {
            Ok(Ok(manifest)) => manifests.push(manifest),
            Ok(Err(unreadable)) => eprintln!("skipping copy {name}: {unreadable}"),
            // It was deleted meanwhile.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(manifests)
}

async fn read(
    store: &Store,
    layout: &Layout,
    name: &CopyName,
) -> Result<Result<Manifest, Unreadable>, Error> {
    let path = Path::from(layout.manifest_of(name));
    let failed = |error: object_store::Error| {
        if !matches!(error, object_store::Error::NotFound { .. }) {
            return Error::store(format!("read {path}"), &error);
        }
        let (location, cluster) = (&store.location, layout.cluster());
        Error::NotFound(format!(
            "{location} has no copy {name} of cluster {cluster}: `etcd-backup list` lists what it has"
        ))
    };
    let object = store.objects.get(&path).await.map_err(failed)?;
    if object.meta.size > MAX_MANIFEST_BYTES {
        return Ok(Err(Unreadable::TooLarge));
    }
    let text = object.bytes().await.map_err(failed)?;
    Ok(Manifest::read(&text, name, layout))
}

/// Of all manifests, oldest first.
async fn names(store: &Store, layout: &Layout) -> Result<Vec<CopyName>, Error> {
    let files = files(store, &layout.manifests()).await?;
    let mut names: Vec<_> = files.iter().filter_map(|(file, _)| name_in_manifest_file(file)).collect();
    names.sort();
    Ok(names)
}

/// The size of each file with data, by its name.
async fn data_sizes(store: &Store, layout: &Layout) -> Result<BTreeMap<String, u64>, Error> {
    let files = files(store, &layout.data()).await?;
    Ok(files.into_iter().filter(|(file, _)| name_in_data_file(file).is_some()).collect())
}

async fn files(store: &Store, folder: &str) -> Result<Vec<(String, u64)>, Error> {
    let folder = Path::from(folder);
    let listed: Result<Vec<_>, _> = store.objects.list(Some(&folder)).try_collect().await;
    let listed = listed.map_err(|error| Error::store(format!("list {folder}"), &error))?;
    let direct = listed.into_iter().filter_map(|meta| {
        let mut below = meta.location.prefix_match(&folder)?;
        let file = below.next()?.as_ref().to_owned();
        below.next().is_none().then_some((file, meta.size))
    });
    Ok(direct.collect())
}
