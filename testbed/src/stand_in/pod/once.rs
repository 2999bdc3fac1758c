//! The pod of a Job: its init containers one after the other, then its containers at once, each a single time.

use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::Instant;

use super::{Life, TICK, end_of};
use crate::process;
use crate::stand_in::contained::{Contained, Refused, first_process};
use crate::stand_in::status::{self, Exit, Once};
use crate::stand_in::volumes::Mounted;

/// Of a termination log, as a kubelet: its end.
const MESSAGE_BYTES: usize = 4096;
const KILLED: i32 = 137;

/// Whether a Job owns it that never starts a container twice.
pub fn runs_once(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    policy == Some("Never") && pod.owner_references().iter().any(|owner| owner.kind == "Job")
}

/// One container, and what became of it.
struct Part {
    container: Container,
    place: Contained,
    state: Once,
    process: Option<Child>,
    is_terminated: bool,
}

impl Part {
    fn new(pod: &Life, container: Container) -> Self {
        let place = Contained::new(&pod.directory(), &container);
        let state = Once::Waiting("PodInitializing", String::new());
        Self { container, place, state, process: None, is_terminated: false }
    }

    fn start(&mut self, pod: &Life, mounted: &Mounted) {
        let started = pod.image(&self.container).and_then(|files| {
            let (mut now, node) = (pod.current(), &pod.node);
            // A kubelet knows it before it reports it.
            now.status.get_or_insert_default().pod_ip = Some(pod.address.to_string());
            let namespace = now.namespace().unwrap_or_default();
            let secret = |name: &str| node.secrets.get(&ObjectRef::new(name).within(&namespace));
            let command = self.place.command(&now, &self.container, &files, &mounted.paths, &secret)?;
            self.place.start(command).map_err(|error| Refused("RunContainerError", format!("{error:#}")))
        });
        match started {
            Ok(process) => {
                self.process = Some(process);
                self.state = Once::Running(Timestamp::now());
            }
            Err(Refused(reason, message)) => self.state = Once::Waiting(reason, message),
        }
    }

    /// Whether it did since the last call.
    fn has_just_ended(&mut self) -> Result<bool> {
        let Some(status) = self.process.as_mut().map(Child::try_wait).transpose()?.flatten() else {
            return Ok(false);
        };
        self.end(code(status));
        Ok(true)
    }

    fn end(&mut self, code: i32) {
        self.process = None;
        let text = self.place.termination_log();
        let left = String::from_utf8_lossy(&text[text.len().saturating_sub(MESSAGE_BYTES)..]).into_owned();
        let policy = self.container.termination_message_policy.as_deref();
        let from_log = left.is_empty() && code != 0 && policy == Some("FallbackToLogsOnError");
        let message = if from_log { end_of(&self.place.log()) } else { left };
        self.state = Once::Ended(Exit { code, message });
    }

    /// SIGTERM at first, SIGKILL when there is no time left.
    fn terminate(&mut self, no_time_left: bool) -> Result<()> {
        let Some(container) = &mut self.process else { return Ok(()) };
        if no_time_left {
            container.start_kill()?;
        } else if !self.is_terminated
            && let Some(first) = first_process(container)
        {
            process::signal(first, Signal::TERM)?;
            self.is_terminated = true;
        }
        Ok(())
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(KILLED)
}

/// The containers of a pod, of which the first ones are init containers.
struct Parts {
    all: Vec<Part>,
    init: usize,
}

impl Parts {
    fn of(pod: &Life) -> Self {
        let spec = pod.current().spec.unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default();
        let count = init.len();
        let all = init.into_iter().chain(spec.containers).map(|container| Part::new(pod, container));
        Self { all: all.collect(), init: count }
    }

    /// Those that run at the same time.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (init, all) = (self.init, self.all.len());
        (0..init).map(|one| one..one + 1).chain(std::iter::once(init..all))
    }
}

impl Life {
    pub(super) async fn run_once(&mut self, mut mounted: Mounted) -> Result<()> {
        mounted.refresh(&self.node, Duration::ZERO)?;
        let mut parts = Parts::of(self);
        for group in parts.groups() {
            parts.all[group.clone()].iter_mut().for_each(|part| part.start(self, &mounted));
            self.report_all(&parts).await?;
            self.until_over(&mut parts, group.clone(), &mut mounted).await?;
            self.report_all(&parts).await?;
            let has_succeeded = |part: &Part| matches!(&part.state, Once::Ended(exit) if exit.code == 0);
            if self.is_deleted() || !parts.all[group].iter().all(has_succeeded) {
                break;
            }
        }
        // The API server deletes a pod that has ended without a kubelet, unless it was told to before.
        while !self.is_deleted() {
            self.pod.changed().await?;
        }
        self.delete().await
    }

    /// Returns when nothing of them runs any more, and cannot either.
    async fn until_over(
        &mut self,
        parts: &mut Parts,
        group: Range<usize>,
        mounted: &mut Mounted,
    ) -> Result<()> {
        let mut terminating = None;
        loop {
            if self.node_has_failed() {
                self.end_with_node(&mut parts.all[group.clone()]).await?;
            }
            let mut has_changed = false;
            for part in &mut parts.all[group.clone()] {
                has_changed |= part.has_just_ended()?;
            }
            let is_over = |part: &Part| part.process.is_none();
            let are_waiting = |part: &Part| matches!(part.state, Once::Waiting(..));
            let all = &mut parts.all[group.clone()];
            if all.iter().all(is_over) && (self.is_deleted() || !all.iter().any(are_waiting)) {
                return Ok(());
            }
            if self.is_deleted() {
                let since = *terminating.get_or_insert_with(Instant::now);
                let grace = self.current().metadata.deletion_grace_period_seconds.unwrap_or(0);
                let no_time_left = since.elapsed() >= Duration::from_secs(grace.unsigned_abs());
                all.iter_mut().try_for_each(|part| part.terminate(no_time_left))?;
            } else {
                mounted.refresh(&self.node, self.node.settings.refresh_delay)?;
            }
            if has_changed {
                self.report_all(parts).await?;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// A kubelet that starts again finds that nothing of them runs any more.
    async fn end_with_node(&mut self, parts: &mut [Part]) -> Result<()> {
        for part in &mut *parts {
            if let Some(container) = &mut part.process {
                container.kill().await?;
            }
        }
        self.node_returned().await?;
        parts.iter_mut().filter(|part| part.process.is_some()).for_each(|part| part.end(KILLED));
        Ok(())
    }

    async fn report_all(&self, parts: &Parts) -> Result<()> {
        let pod = self.current();
        let states: Vec<_> =
            parts.all.iter().map(|part| (part.container.name.as_str(), &part.state)).collect();
        let (init, containers) = states.split_at(parts.init);
        let change = Patch::Merge(status::of_containers(&pod, self.address, init, containers));
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &change).await?;
        Ok(())
    }
}
