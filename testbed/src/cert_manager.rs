//! cert-manager for a control plane of the testbed: its own controllers as a process, and its own definitions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build;
use crate::stand_in::Processes;

/// It ends with this value; what it has defined stays.
pub struct CertManager {
    processes: Processes,
    directory: PathBuf,
}

impl CertManager {
    /// Builds it, if that was not done before.
    pub async fn prepare() -> Result<Self> {
        let directory = build::ensure_cert_manager().await?;
        let processes = Processes::new("testbed-cert-manager").context("cannot create a directory")?;
        Ok(Self { processes, directory })
    }

    /// The files with the definitions of what users write for issuers in the cluster.
    pub fn definitions(&self) -> [PathBuf; 4] {
        ["certificates", "certificaterequests", "issuers", "clusterissuers"]
            .map(|it| self.directory.join(format!("cert-manager.io_{it}.yaml")))
    }

    /// For one namespace. The definitions have to be there.
    pub fn start(&mut self, kubeconfig: &Path, namespace: &str) -> Result<()> {
        let mut command = Command::new(self.directory.join("cert-manager"));
        command.arg("--kubeconfig").arg(kubeconfig).arg("--namespace").arg(namespace);
        self.processes.start(0, command).context("cannot run cert-manager")
    }

    /// Fails with its last words if it has ended.
    pub fn runs(&mut self) -> Result<()> {
        match self.processes.ended(0) {
            Some(status) => bail!("cert-manager ended ({status}):\n{}", self.processes.log(0)),
            None => Ok(()),
        }
    }
}
