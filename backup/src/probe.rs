//! Whether the store can be used at all, found out with a small object before the first snapshot.

use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::manifest::Verification;
use etcd_operator_core::backup::report::Done;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions};

use crate::error::Error;
use crate::store::Store;
use crate::take::random;

const CONTENT: &str = "etcd-backup tests whether it can write here, and deletes this\n";

pub async fn probe(store: &Store, inputs: &Inputs) -> Result<Done, Error> {
    let path = store.root().join(format!("etcd-backup-probe-{:016x}", random()));
    let location = &store.location;
    let failed = |doing: &str, error| Error::store(format!("{doing} in {location}"), &error);
    store.objects.put(&path, CONTENT.into()).await.map_err(|error| failed("write an object", error))?;
    let probed = checks(store, &path, inputs.verification).await;
    // Whatever the checks found, nothing stays.
    let deleted = store.objects.delete(&path).await;
    let conditional_puts = probed.map_err(|(doing, error)| failed(doing, error))?;
    match deleted {
        // Credentials that can only write leave it.
        Err(error) if inputs.verification == Verification::Checksum => {
            eprintln!("cannot delete {path}: {error}");
        }
        deleted => deleted.map_err(|error| failed("delete an object", error))?,
    }
    Ok(Done::Probe { conditional_puts })
}

/// Whether the store refuses to overwrite an object on request.
async fn checks(
    store: &Store,
    path: &Path,
    verification: Verification,
) -> Result<bool, (&'static str, object_store::Error)> {
    if verification == Verification::ReadBack {
        let reading = |error| ("read an object", error);
        let read = store.objects.get(path).await.map_err(reading)?.bytes().await.map_err(reading)?;
        if read != CONTENT {
            let source = "the store returns another content than that was written".into();
            return Err(reading(object_store::Error::Generic { store: "probe", source }));
        }
    }
    let again = PutOptions::from(PutMode::Create);
    match store.objects.put_opts(path, CONTENT.into(), again).await {
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(true),
        Ok(_)
        | Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
            Ok(false)
        }
        Err(error) => Err(("write an object on condition", error)),
    }
}
