//! The life of one pod: volumes, a process that is started again whenever it exits, and its end.

mod once;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;

use super::contained::{Files, Refused};
use super::processes::log_to;
use super::status::{self, Container, Exit};
use super::volumes::Mounted;
use super::{Node, Place};
use crate::process;

/// How soon a process is started again that exited more than once. A kubelet waits ten seconds, and then longer.
const BACK_OFF: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(20);
/// In the directory of a pod.
const LOG: &str = "log";
/// Of a log, where a container that failed left no message (`FallbackToLogsOnError`).
const MESSAGE_BYTES: usize = 2048;

/// Until the pod is deleted, or the task is dropped with it.
pub async fn run(node: Arc<Node>, pod: watch::Receiver<Pod>, address: IpAddr) {
    let failed = node.failed.subscribe();
    let mut life = Life { node, pod, address, failed };
    if let Err(error) = life.run().await
        && !is_gone(&error)
    {
        eprintln!("stand-in kubelet: pod {}: {error:#}", life.current().name_any());
    }
}

struct Life {
    node: Arc<Node>,
    pod: watch::Receiver<Pod>,
    address: IpAddr,
    failed: watch::Receiver<BTreeSet<String>>,
}

enum Ended {
    Exited(Exit),
    Deleted,
    NodeFailed,
}

impl Life {
    async fn run(&mut self) -> Result<()> {
        let mut mounted = loop {
            match Mounted::of(&self.current(), &self.node, &self.directory())? {
                Some(mounted) => break mounted,
                None => tokio::time::sleep(TICK).await,
            }
        };
        self.bind().await?;
        let mut container = Container { restarts: 0, last: None, started: Timestamp::now(), ready: false };
        if !mounted.can_be_written(&self.node) {
            self.report(&container.creating()).await?;
        }
        while !mounted.can_be_written(&self.node) {
            self.node_returned().await?;
            if self.is_deleted() {
                return self.delete().await;
            }
            tokio::time::sleep(TICK).await;
        }
        if once::runs_once(&self.current()) {
            return self.run_once(mounted).await;
        }
        loop {
            self.node_returned().await?;
            if self.is_deleted() {
                return self.delete().await;
            }
            mounted.refresh(&self.node, Duration::ZERO)?;
            let Some(mut process) = self.start(&mounted)? else {
                self.report(&container.without_image()).await?;
                self.deleted_or_node_failed().await?;
                continue;
            };
            container.started = Timestamp::now();
            self.report(&container.running()).await?;
            match self.supervise(&mut process, &mut container, &mut mounted).await? {
                Ended::Deleted => {
                    self.terminate(&mut process).await?;
                    return self.delete().await;
                }
                Ended::NodeFailed => {
                    process.kill().await?;
                    container = Container { restarts: container.restarts + 1, ready: false, ..container };
                    continue;
                }
                Ended::Exited(exit) if self.runs_once() => {
                    self.report(&container.finished(&exit)).await?;
                    return Ok(());
                }
                Ended::Exited(exit) => {
                    container = Container {
                        restarts: container.restarts + 1,
                        last: Some(exit),
                        ready: false,
                        ..container
                    };
                }
            }
            if container.restarts > 1 {
                self.back_off(&container).await?;
            }
        }
    }

    fn node_has_failed(&self) -> bool {
        self.pod.borrow().uid().is_some_and(|uid| self.failed.borrow().contains(&uid))
    }

    /// At once, if it has not failed.
    async fn node_returned(&mut self) -> Result<()> {
        while self.node_has_failed() {
            self.failed.changed().await?;
        }
        Ok(())
    }

    fn current(&self) -> Pod {
        self.pod.borrow().clone()
    }

    fn runs_once(&self) -> bool {
        let policy = self.current().spec.and_then(|spec| spec.restart_policy);
        policy.as_deref() == Some("Never")
    }

    fn directory(&self) -> PathBuf {
        self.node.settings.directory.join("pods").join(self.current().uid().unwrap_or_default())
    }

    fn image(&self, container: &k8s_openapi::api::core::v1::Container) -> Result<Files, Refused> {
        let image = container.image.clone().unwrap_or_default();
        let missing = || Refused("ImagePullBackOff", format!("Back-off pulling image \"{image}\""));
        (self.node.settings.image)(&image).ok_or_else(missing)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.node.client.clone(), &self.current().namespace().unwrap_or_default())
    }

    /// What a scheduler does.
    async fn bind(&self) -> Result<()> {
        let pod = self.current();
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            return Ok(());
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.name_any(), "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": status::NODE},
        });
        let (name, parameters) = (pod.name_any(), PostParams::default());
        let bound: Result<Value, _> =
            self.pods().create_subresource("binding", &name, &parameters, &binding).await;
        bound.map(drop).context("cannot bind the pod")
    }

    fn start(&self, mounted: &Mounted) -> Result<Option<Child>> {
        let pod = self.current();
        let directory = self.directory();
        std::fs::create_dir_all(&directory).context("cannot create the directory of the pod")?;
        let termination_log = directory.join("termination-log");
        let _ = std::fs::remove_file(&termination_log);
        let (address, volumes) = (self.address, mounted.paths.clone());
        let place = Place { address, directory, volumes, termination_log };
        let Some(mut command) = (self.node.settings.command)(&pod, &place) else { return Ok(None) };
        log_to(command.as_std_mut(), &place.directory.join(LOG))?;
        command.kill_on_drop(true).spawn().map(Some).context("cannot start the process")
    }

    async fn supervise(
        &mut self,
        process: &mut Child,
        container: &mut Container,
        mounted: &mut Mounted,
    ) -> Result<Ended> {
        let mut tick = tokio::time::interval(self.node.settings.probe_every);
        loop {
            if self.node_has_failed() {
                return Ok(Ended::NodeFailed);
            }
            if self.is_deleted() {
                return Ok(Ended::Deleted);
            }
            tokio::select! {
                changed = self.failed.changed() => changed?,
                ended = process.wait() => {
                    let message = std::fs::read_to_string(self.directory().join("termination-log"));
                    let code = ended?.code().unwrap_or(137);
                    let message = match message.unwrap_or_default() {
                        none if none.is_empty() && code != 0 => end_of(&self.directory().join(LOG)),
                        left => left,
                    };
                    return Ok(Ended::Exited(Exit { code, message }));
                }
                changed = self.pod.changed() => changed?,
                _ = tick.tick() => {
                    mounted.refresh(&self.node, self.node.settings.refresh_delay)?;
                    let ready = status::probe(&self.current(), self.address).await;
                    if ready != container.ready {
                        container.ready = ready;
                        self.report(&container.running()).await?;
                    }
                }
            }
        }
    }

    /// Less long if it is deleted meanwhile.
    async fn back_off(&mut self, container: &Container) -> Result<()> {
        self.report(&container.backing_off()).await?;
        let end = Instant::now() + BACK_OFF;
        while !self.is_deleted() {
            tokio::select! {
                () = tokio::time::sleep_until(end) => break,
                changed = self.pod.changed() => changed?,
            }
        }
        Ok(())
    }

    async fn deleted_or_node_failed(&mut self) -> Result<()> {
        while !self.is_deleted() && !self.node_has_failed() {
            tokio::select! {
                changed = self.failed.changed() => changed?,
                changed = self.pod.changed() => changed?,
            }
        }
        Ok(())
    }

    fn is_deleted(&self) -> bool {
        self.pod.borrow().metadata.deletion_timestamp.is_some()
    }

    /// SIGTERM, and SIGKILL when the time is over that the pod has, which a second deletion can shorten.
    async fn terminate(&mut self, process: &mut Child) -> Result<()> {
        let begun = Instant::now();
        let Some(id) = process.id() else { return Ok(()) };
        process::signal(id, Signal::TERM)?;
        loop {
            let seconds = self.pod.borrow_and_update().metadata.deletion_grace_period_seconds.unwrap_or(0);
            let end = begun + Duration::from_secs(seconds.unsigned_abs());
            tokio::select! {
                ended = process.wait() => return ended.map(drop).map_err(Into::into),
                () = tokio::time::sleep_until(end) => return process.kill().await.map_err(Into::into),
                changed = self.pod.changed() => changed?,
            }
        }
    }

    async fn delete(&self) -> Result<()> {
        let pod = self.current();
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let now = DeleteParams::default().grace_period(0).preconditions(preconditions);
        self.pods().delete(&pod.name_any(), &now).await?;
        Ok(())
    }

    async fn report(&self, container: &Value) -> Result<()> {
        let pod = self.current();
        let change = Patch::Merge(status::of_pod(&pod, self.address, container));
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &change).await?;
        Ok(())
    }
}

fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(MESSAGE_BYTES)..]).into_owned()
}

/// Somebody else deleted the pod, or has another one under its name.
fn is_gone(error: &anyhow::Error) -> bool {
    error.is::<watch::error::RecvError>()
        || matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
}
