//! The testbed with nodes: brought up, found again, taken down.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use kube::Api;

use crate::build::{self, Programs};
use crate::control_plane::{self, Addresses, Controllers, apply};
pub use crate::dns::DnsProfile;
pub use crate::instance::Config;
use crate::instance::{Condition, Kind, Owner, Record, condition};
use crate::layout::{Layout, Node};
use crate::process::until;
use crate::{addons, dns, down, image, machine, network, node, preflight, volumes};

/// A running cluster.
#[derive(Clone, Debug)]
pub struct Testbed {
    layout: Layout,
    config: Config,
    addresses: Addresses,
    programs: Programs,
}

impl Testbed {
    /// Brings the testbed up. One that runs with the same configuration is used as it is; what a former one
    /// left behind is removed first; what could not be brought up completely is taken down again.
    pub async fn up(config: Config) -> Result<Self> {
        if !(1..=Node::MOST).contains(&config.nodes) {
            bail!("cannot start {} nodes: choose 1 to {}", config.nodes, Node::MOST);
        }
        let layout = Layout::cluster();
        match condition(&layout) {
            Condition::Absent => {}
            Condition::LeftOver => {
                eprintln!("removing the remains of a previous testbed");
                down::remove(&layout).await?;
            }
            Condition::InUse => {
                bail!("another process is starting the testbed: wait until it finishes, or stop it")
            }
            Condition::Running => return Self::reuse(config),
        }
        preflight::check(preflight::Need::Cluster).await?;
        let programs = build::ensure_base().await?;
        image::ensure_base(&programs).await?;
        let bed = Self { layout, config, addresses: Addresses::on_bridge(), programs };
        let outcome = tokio::select! {
            outcome = bed.bring_up() => outcome,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        if let Err(error) = outcome {
            let logs = down::keep_logs(&bed.layout);
            down::remove(&bed.layout).await.context("cannot clean up after the failed start")?;
            return Err(match logs {
                Some(path) => {
                    error.context(format!("the testbed did not start; see the logs in {}", path.display()))
                }
                None => error,
            });
        }
        Ok(bed)
    }

    fn reuse(config: Config) -> Result<Self> {
        let bed = Self::attach()?;
        if bed.config != config {
            bail!(
                "a testbed with {} node(s) and DNS profile {} is running: run `make \
                 testbed-down` first",
                bed.config.nodes,
                bed.config.dns
            );
        }
        Ok(bed)
    }

    /// The testbed that runs now.
    pub fn attach() -> Result<Self> {
        let layout = Layout::cluster();
        match (condition(&layout), Record::load(&layout)) {
            (Condition::Running, Some(Record { kind: Kind::Cluster(config), addresses, programs, .. })) => {
                Ok(Self { layout, config, addresses, programs })
            }
            (Condition::LeftOver, _) => bail!("the testbed is broken: run `make testbed-up` to replace it"),
            (Condition::InUse, _) => bail!("another process is starting the testbed: wait until it finishes"),
            (Condition::Running | Condition::Absent, _) => {
                bail!("no testbed is running: run `make testbed-up`")
            }
        }
    }

    /// Takes down whatever there is.
    pub async fn down() -> Result<()> {
        down::remove(&Layout::cluster()).await
    }

    async fn bring_up(&self) -> Result<()> {
        let began = Instant::now();
        let say = |what: &str| eprintln!("{:5.1} s  {what}", began.elapsed().as_secs_f32());
        let layout = &self.layout;
        let mut record = Record {
            kind: Kind::Cluster(self.config.clone()),
            addresses: self.addresses.clone(),
            programs: self.programs.clone(),
            ready: false,
            owner: Some(Owner::this_process()),
        };
        record.create(layout)?;
        machine::prepare(layout).await?;
        network::create().await?;
        let authority = control_plane::credentials(layout, &self.addresses)?;
        control_plane::start_store(layout, &self.programs, &self.addresses).await?;
        self.start_apiserver().await?;
        addons::start(layout).await?;
        node::write_shared(layout)?;
        for node in self.nodes() {
            node::create(layout, node, &authority, &self.addresses).await?;
            node::start_runtime(layout, node).await?;
        }
        let client = control_plane::wait_ready(layout).await?;
        say("API server ready");
        control_plane::start_controller_manager(layout, &self.programs, Controllers::All).await?;
        control_plane::start_scheduler(layout, &self.programs).await?;
        for node in self.nodes() {
            node::start_agents(layout, node, &self.programs).await?;
        }
        dns::start(layout, &self.programs, self.config.dns).await?;
        dns::apply_service(&client).await?;
        for class in volumes::storage_classes() {
            apply(Api::all(client.clone()), &class).await?;
        }
        try_join_all(self.nodes().into_iter().map(|node| node::wait_ready(&client, layout, node))).await?;
        say(&format!("{} node(s) ready", self.config.nodes));
        let what = || "cluster DNS does not respond".to_owned();
        until(Duration::from_secs(30), Duration::from_millis(100), what, async || dns::answers().await)
            .await?;
        say("cluster DNS answers");
        record.ready = true;
        record.owner = None;
        record.save(layout)
    }

    /// Starts the API server (again).
    pub async fn start_apiserver(&self) -> Result<()> {
        control_plane::start_apiserver(&self.layout, &self.programs, &self.addresses).await
    }

    /// Starts a node's daemons again after [`node::kill`].
    pub async fn restart_node(&self, node: Node) -> Result<()> {
        node::start_runtime(&self.layout, node).await?;
        node::start_agents(&self.layout, node, &self.programs).await
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn nodes(&self) -> Vec<Node> {
        Node::first(self.config.nodes).collect()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// The program `kubectl` of the cluster's own version.
    pub fn kubectl(&self) -> PathBuf {
        self.programs.kubernetes.join("kubectl")
    }

    pub async fn client(&self) -> Result<kube::Client> {
        control_plane::client(&self.layout).await
    }
}
