//! What a test works with.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::Value;
use testbed::cluster::Testbed;
use testbed::fault::{self, Fault, Injected};
use tokio::sync::OnceCell;

use crate::evidence;
use crate::history::{Endpoints, History, Load};
use crate::install::Operator;
use crate::kubectl::Kubectl;
use crate::operated::Operated;
use crate::plain::Plain;
use crate::progress::Progress;
use crate::target::Cluster;

/// How long clients may take to write for the first time.
const WRITERS_LIMIT: Duration = Duration::from_secs(60);

/// A testbed that is up.
#[derive(Clone)]
pub struct Up {
    pub bed: Testbed,
    /// Empty until a test asks for it.
    pub operator: Arc<OnceCell<Operator>>,
}

/// What a test gets: a cluster, and a namespace of its own in it.
pub struct Context {
    pub test: &'static str,
    /// `None` for [`Topology::Bare`].
    pub cluster: Option<(Up, Client)>,
    pub namespace: String,
    pub progress: Progress,
    /// The faults of this test, for the case that it does not undo them itself.
    pub injected: RefCell<Vec<Injected>>,
}

impl Context {
    pub fn bed(&self) -> &Testbed {
        &self.cluster().0.bed
    }

    pub fn client(&self) -> &Client {
        &self.cluster().1
    }

    fn cluster(&self) -> &(Up, Client) {
        self.cluster.as_ref().expect("a test without a testbed must not use one")
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.bed().kubectl(), Some(self.bed().kubeconfig()))
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client().clone(), &self.namespace)
    }

    pub fn plain(&self, size: usize) -> Plain {
        Plain::new(&self.namespace, "etcd", size)
    }

    /// The operator of this build, installed once in each testbed, and brought back if a test sent it away.
    pub async fn operator(&self) -> Result<&Operator> {
        let Up { bed, operator, .. } = &self.cluster().0;
        let installing = async || {
            let operator = Operator::install(&Cluster::of_testbed(bed.clone()).await?, None).await?;
            operator.ready().await?;
            self.step(format!("the operator is running: {}", operator.tag.as_deref().unwrap_or_default()));
            Ok::<_, anyhow::Error>(operator)
        };
        let operator = operator.get_or_try_init(installing).await.context("cannot install the operator")?;
        operator.start().await?;
        Ok(operator)
    }

    /// An EtcdCluster of this test's own, run by the operator of this build. The spec is a JSON object.
    pub async fn operated(&self, name: &str, spec: Value) -> Result<Operated> {
        self.operator().await?;
        Operated::create(self.client(), &self.namespace, name, spec, self.progress).await
    }

    /// Sends clients to the cluster that write and read until they are stopped, and lets them begin.
    pub async fn writers(&self, cluster: &Operated) -> Result<History> {
        let history = self.history(&cluster.name).await?;
        history.goes_on(WRITERS_LIMIT).await?;
        Ok(history)
    }

    /// Sends clients to an `EtcdCluster` of this test. What they record is evidence.
    pub async fn history(&self, cluster: &str) -> Result<History> {
        self.history_at(Endpoints::of_cluster(self.client().clone(), &self.namespace, cluster)).await
    }

    pub async fn history_at(&self, endpoints: Endpoints) -> Result<History> {
        let directory = evidence::directory(self.test);
        let file =
            (1..).map(|number| directory.join(format!("history-{number}.jsonl"))).find(|file| !file.exists());
        History::start(endpoints, Load::default(), file.context("too many histories")?).await
    }

    pub fn step(&self, text: impl AsRef<str>) {
        self.progress.step(text);
    }

    pub async fn inject(&self, fault: Fault) -> Result<Injected> {
        let injected = fault::inject(self.bed(), fault).await?;
        self.injected.borrow_mut().push(injected.clone());
        self.step(format!("injected: {}", injected.id));
        Ok(injected)
    }

    pub async fn undo(&self, injected: &Injected) -> Result<()> {
        injected.undo(self.bed()).await?;
        self.step(format!("reverted: {}", injected.id));
        Ok(())
    }
}
