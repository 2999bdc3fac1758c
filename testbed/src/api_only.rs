//! A control plane without nodes, on loopback: ready in seconds, several at once, for tests of the API.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use rustix::process::Signal;

use crate::build;
use crate::control_plane::{self, Addresses, Controllers};
use crate::instance::{Condition, Kind, Owner, Record, condition};
use crate::layout::Layout;
use crate::{down, preflight, process};

/// etcd, API server and controller manager. It lives as long as this value, unless [`ApiOnly::detach`]ed.
#[derive(Debug)]
pub struct ApiOnly {
    layout: Layout,
    kubectl: PathBuf,
    detached: bool,
}

impl ApiOnly {
    /// Starts one under a name of its own.
    pub async fn start() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::start_named(&format!("api-{}-{number}", std::process::id())).await
    }

    pub async fn start_named(name: &str) -> Result<Self> {
        preflight::check(preflight::Need::ApiOnly).await?;
        let programs = build::ensure_base().await?;
        for layout in Layout::all() {
            let api_only = Record::load(&layout).is_none_or(|record| record.kind == Kind::ApiOnly);
            if api_only && condition(&layout) == Condition::LeftOver {
                down::remove(&layout).await?;
            }
        }
        let layout = Layout::instance(name);
        anyhow::ensure!(!layout.exists(), "a testbed named {name} exists: run `testbed down` to remove it");
        let addresses = Addresses::on_loopback()?;
        let mut record = Record {
            kind: Kind::ApiOnly,
            addresses: addresses.clone(),
            programs: programs.clone(),
            ready: false,
            owner: Some(Owner::this_process()),
        };
        record.create(&layout)?;
        // From here on dropping it cleans up.
        let api = Self { layout, kubectl: programs.kubernetes.join("kubectl"), detached: false };
        control_plane::credentials(&api.layout, &addresses)?;
        control_plane::start_store(&api.layout, &programs, &addresses).await?;
        control_plane::start_apiserver(&api.layout, &programs, &addresses).await?;
        control_plane::wait_ready(&api.layout).await?;
        control_plane::start_controller_manager(&api.layout, &programs, Controllers::WithoutNodes).await?;
        record.ready = true;
        record.save(&api.layout)?;
        Ok(api)
    }

    /// Lets it outlive this process; `testbed down` ends it.
    pub fn detach(mut self) -> Result<Layout> {
        if let Some(record) = Record::load(&self.layout) {
            Record { owner: None, ..record }.save(&self.layout)?;
        }
        self.detached = true;
        Ok(self.layout.clone())
    }

    /// The directory of everything that belongs to it, which ends with it.
    pub fn directory(&self) -> &Path {
        self.layout.dir()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    pub fn kubectl(&self) -> PathBuf {
        self.kubectl.clone()
    }

    pub async fn client(&self) -> Result<kube::Client> {
        control_plane::client(&self.layout).await
    }
}

impl Drop for ApiOnly {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        let ids = process::ours(&self.layout);
        for &id in &ids {
            // A process that cannot be signalled is left to `testbed down`, which says so.
            let _ = process::signal(id, Signal::KILL);
        }
        // They write into the directory until they are gone, which takes a few milliseconds.
        for _ in 0..200 {
            if !ids.iter().any(|&id| process::alive(id)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(self.layout.dir());
        let _ = std::fs::remove_dir(Layout::root());
    }
}
