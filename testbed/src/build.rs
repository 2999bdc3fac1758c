//! The programs of a testbed, built from Go modules and kept in the cache.

mod compile;
mod etcd_version;
pub(crate) mod go;
mod module;
mod part;
mod progress;
mod store;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cache;
use part::Part;
use store::Store;

/// The versions of etcd that have a module in `testbed/go`, oldest first.
pub const STANDARD_ETCD: [&str; 4] = ["v3.5.21", "v3.5.35", "v3.6.16", "v3.7.3"];

/// What a cluster with nodes runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Programs {
    /// The directory of kube-apiserver, kube-controller-manager, kube-proxy, kube-scheduler, kubectl, kubelet.
    pub kubernetes: PathBuf,
    pub coredns: PathBuf,
    pub pause: PathBuf,
    /// The directory of the etcd in which the API keeps its objects.
    pub etcd: PathBuf,
}

/// One version of etcd.
#[derive(Clone, Debug)]
pub struct EtcdPrograms {
    /// With its `v`: `v3.5.21`.
    pub version: String,
    /// The directory of etcd, etcdctl, etcdutl.
    pub dir: PathBuf,
}

/// Everything but the etcd of the clusters under test.
pub async fn ensure_base() -> Result<Programs> {
    let store = store().await?;
    Ok(Programs {
        kubernetes: store.ensure(&kubernetes()?).await?,
        etcd: store.ensure(&Part::api_store()?).await?,
        coredns: store.ensure(&Part::coredns()).await?.join("coredns"),
        pause: store.ensure(&Part::pause()).await?.join("pause"),
    })
}

/// Any etcd from 3.5.0 on, given with or without `v`.
pub async fn ensure_etcd(version: &str) -> Result<EtcdPrograms> {
    let part = Part::etcd(version)?;
    let dir = store().await?.ensure(&part).await?;
    Ok(EtcdPrograms { version: part.version.unwrap_or_default(), dir })
}

/// The directory of the program `cert-manager` and of what it defines, for [`crate::cert_manager`].
pub async fn ensure_cert_manager() -> Result<PathBuf> {
    store().await?.ensure(&Part::cert_manager()).await
}

/// The S3 server of [`crate::store`].
pub async fn ensure_versitygw() -> Result<PathBuf> {
    Ok(store().await?.ensure(&Part::versitygw()).await?.join("versitygw"))
}

/// The program of a Go module that lies elsewhere, given by the program's name and the module's files by their path
/// in it. `go.sum` must be complete.
pub async fn ensure_program(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
) -> Result<PathBuf> {
    Ok(store().await?.ensure(&Part::elsewhere(name, files)).await?.join(name))
}

/// Whether [`ensure_base`] has nothing to do.
pub async fn base_is_built() -> Result<bool> {
    let store = store().await?;
    let parts = [kubernetes()?, Part::api_store()?, Part::coredns(), Part::pause()];
    Ok(parts.iter().all(|part| store.holds(part)))
}

/// `TESTBED_KUBERNETES` names a minor version such as `1.34`.
fn kubernetes() -> Result<Part> {
    match std::env::var("TESTBED_KUBERNETES") {
        Ok(minor) => Part::kubernetes(&minor),
        Err(_) => Part::default_kubernetes(),
    }
}

async fn store() -> Result<Store> {
    Ok(Store::new(cache::programs(), go::identity().await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_versions_are_those_of_the_modules() {
        let packages =
            ["go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"];
        for package in packages {
            let required: Vec<_> = module::ETCD.iter().map(|module| module.requires(package)).collect();
            assert_eq!(required, STANDARD_ETCD.map(Some), "{package}");
        }
    }

    #[tokio::test]
    async fn a_version_that_cannot_be_built_is_refused_before_anything_is_done() {
        let error = ensure_etcd("3.4.30").await.expect_err("it is too old");
        assert!(error.to_string().contains("v3.5.0 or later"), "{error}");
    }
}
