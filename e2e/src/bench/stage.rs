//! Where a benchmark takes place: a namespace, the operator, and clients that write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use etcd_operator_core::api::EtcdCluster;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::change::Change;
use super::crowd;
use super::footprint::{Figure, Process};
use super::operation::{Operation, Subject};
use super::part::Part;
use super::samples::{Sample, Samples};
use crate::history::{Endpoints, History, Load};
use crate::install::Operator;
use crate::operated::Operated;
use crate::plain::{self, Plain};
use crate::progress::Progress;
use crate::{FIELD_MANAGER, wait, workspace};

const NAME: &str = "kv";
pub(super) const LIMIT: Duration = Duration::from_secs(180);
/// The data of the cluster that goes to one member and back: sixteen megabytes.
const VALUES: usize = 32;
const VALUE_BYTES: usize = 512 * 1024;
/// etcd lets no member come or go before all others have been connected for five seconds. What an operation has to
/// wait for is not charged to the next.
pub(super) const REST: Duration = Duration::from_secs(6);
/// Until an operator that has just been busy rests.
const QUIET: Duration = Duration::from_secs(15);

pub struct Stage {
    pub client: Client,
    pub operator: Operator,
    pub progress: Progress,
    pub runs: u8,
    pub samples: Samples,
    pub figures: Vec<Figure>,
}

impl Stage {
    /// What the operator needs before there was any cluster: memory that it has used once, it keeps.
    pub async fn rest(&mut self) -> Result<()> {
        tokio::time::sleep(QUIET).await;
        let process = Process::of(&self.operator).await?;
        self.figures.push(process.idle()?);
        Ok(())
    }

    /// All runs of one part, in a namespace of its own.
    pub async fn play(&mut self, part: Part) -> Result<()> {
        let namespace = part.namespace();
        self.fresh(namespace).await?;
        self.warm_up(part).await?;
        for run in 1..=self.runs {
            self.progress.step(format!("{namespace}: run {run} of {}", self.runs));
            match part {
                Part::Create => self.create(namespace).await?,
                Part::Scale => self.scale(namespace).await?,
                Part::Data => self.there_and_back(namespace).await?,
                Part::Stop => self.stop_and_start(namespace).await?,
                Part::Roll => self.roll(namespace).await?,
                Part::Backup => self.backup(namespace).await?,
                Part::Crowd => self.crowd(namespace, run == self.runs).await?,
            }
        }
        self.remove(namespace).await
    }

    /// Once and not counted, so that images are on the nodes.
    async fn warm_up(&mut self, part: Part) -> Result<()> {
        let namespace = part.namespace();
        let plain = Plain::new(namespace, "plain", 1);
        plain.create(&self.client, LIMIT).await?;
        plain.delete(&self.client, LIMIT).await?;
        for version in part.versions() {
            let subject = Subject::operated(Operation::Create { size: 1 }, version);
            let (cluster, _) = self.born(namespace, 1, subject).await?;
            self.gone(&cluster).await?;
        }
        Ok(())
    }

    async fn create(&mut self, namespace: &str) -> Result<()> {
        for size in [1, 3] {
            let subject = Subject::operated(Operation::Create { size }, plain::VERSION);
            let plain = Plain::new(namespace, "plain", usize::from(size));
            let began = Instant::now();
            plain.apply(&self.client).await?;
            plain.serving(&self.client, LIMIT, |_| {}).await?;
            self.keep(subject.plain(), Sample { time: began.elapsed(), ..Sample::default() });
            plain.delete(&self.client, LIMIT).await?;

            for subject in [subject, subject.without_tls()] {
                let (cluster, sample) = self.born(namespace, size, subject).await?;
                self.keep(subject, sample);
                self.gone(&cluster).await?;
            }
        }
        Ok(())
    }

    async fn scale(&mut self, namespace: &str) -> Result<()> {
        for etcd in Part::Scale.versions() {
            let subject = |operation| Subject::operated(operation, etcd);
            self.scale_through(namespace, &[1, 3, 5, 3, 1], subject).await?;
        }
        let subject = |operation| Subject::operated(operation, plain::VERSION).without_tls();
        self.scale_through(namespace, &[1, 3, 1], subject).await
    }

    /// A cluster that is created with the first of these sizes.
    async fn scale_through(
        &mut self,
        namespace: &str,
        sizes: &[u8],
        subject: impl Fn(Operation) -> Subject,
    ) -> Result<()> {
        let first = sizes[0];
        let (cluster, _) = self.born(namespace, first, subject(Operation::Create { size: first })).await?;
        for step in sizes.windows(2) {
            let (from, to) = (step[0], step[1]);
            let subject = subject(Operation::Scale { from, to });
            tokio::time::sleep(REST).await;
            let writers = self.writers(self.endpoints(&cluster), subject).await?;
            let sample = self.scaled(&cluster, to).await?;
            let sample = judged(sample, writers).await?;
            self.keep(subject, sample);
        }
        self.gone(&cluster).await
    }

    async fn there_and_back(&mut self, namespace: &str) -> Result<()> {
        let subject = Subject::operated(Operation::ThereAndBack, plain::VERSION);
        let (cluster, _) = self.born(namespace, 3, subject).await?;
        fill(&cluster).await?;
        tokio::time::sleep(REST).await;
        let writers = self.writers(self.endpoints(&cluster), subject).await?;
        let there = self.scaled(&cluster, 1).await?;
        let back = self.scaled(&cluster, 3).await?;
        let both = Sample {
            time: there.time + back.time,
            status_lag: there.status_lag.max(back.status_lag),
            ..back
        };
        let sample = judged(both, writers).await?;
        self.keep(subject, sample);
        self.gone(&cluster).await
    }

    async fn stop_and_start(&mut self, namespace: &str) -> Result<()> {
        for size in [1, 3] {
            let [stop, start] = [Operation::Stop { from: size }, Operation::Start { to: size }]
                .map(|operation| Subject::operated(operation, plain::VERSION));
            let (cluster, _) = self.born(namespace, size, stop).await?;
            tokio::time::sleep(REST).await;
            let sample = self.scaled(&cluster, 0).await?;
            self.keep(stop, sample);
            let sample = self.scaled(&cluster, size).await?;
            self.keep(start, sample);
            self.gone(&cluster).await?;
        }
        Ok(())
    }

    async fn crowd(&mut self, namespace: &str, last: bool) -> Result<()> {
        let subject = Subject::operated(Operation::Crowd, plain::VERSION);
        self.fresh(namespace).await?;
        let sample = crowd::plain(&self.client, namespace).await?;
        self.keep(subject.plain(), sample);
        self.fresh(namespace).await?;
        let sample = crowd::operated(&self.client, namespace, subject, self.progress).await?;
        self.keep(subject, sample);
        if last {
            self.progress.step("measuring the operator while nothing changes");
            tokio::time::sleep(QUIET).await;
            let process = Process::of(&self.operator).await?;
            self.figures.extend(process.with_crowd().await?);
        }
        Ok(())
    }

    pub(super) fn keep(&mut self, subject: Subject, sample: Sample) {
        let Sample { time, status_lag, write_gap, failed } = sample;
        let part = |what: &str, time: Option<Duration>| {
            time.map(|time| format!(", {what} {} ms", time.as_millis())).unwrap_or_default()
        };
        self.progress.step(format!(
            "{subject}: {:.2} s{}{}{}",
            time.as_secs_f64(),
            part("status lag", status_lag),
            part("write gap", write_gap),
            failed.map(|failed| format!(", failed operations {failed}")).unwrap_or_default()
        ));
        self.samples.add(subject, sample);
    }

    /// From the write of the object on.
    pub(super) async fn born(
        &self,
        namespace: &str,
        size: u8,
        subject: Subject,
    ) -> Result<(Operated, Sample)> {
        let expected = Operated::existing(&self.client, namespace, NAME, self.progress);
        let change = Change::expect(&expected).await?;
        let began = Instant::now();
        let cluster =
            Operated::create(&self.client, namespace, NAME, spec(size, subject), self.progress).await?;
        let sample = change.done(began, size).await?;
        Ok((cluster, sample))
    }

    /// From the edit of the size on.
    async fn scaled(&self, cluster: &Operated, size: u8) -> Result<Sample> {
        let change = Change::expect(cluster).await?;
        let began = Instant::now();
        cluster.scale(size).await?;
        change.done(began, size).await
    }

    pub(super) async fn gone(&self, cluster: &Operated) -> Result<()> {
        cluster.delete().await?;
        let what = format!("{} and its volumes are deleted", cluster.name);
        wait::gone(cluster.api::<EtcdCluster>(), &cluster.name, &what, LIMIT).await?;
        let selected = watcher::Config::default().labels(&cluster.selector());
        wait::objects(cluster.api::<Pod>(), selected.clone(), &what, LIMIT, BTreeMap::is_empty).await?;
        let claims = cluster.api::<PersistentVolumeClaim>();
        wait::objects(claims, selected.clone(), &what, LIMIT, BTreeMap::is_empty).await?;
        // The next cluster of this name is not to wait for what Kubernetes has not collected yet.
        wait::objects(cluster.api::<Secret>(), selected.clone(), &what, LIMIT, BTreeMap::is_empty).await?;
        wait::objects(cluster.api::<Service>(), selected, &what, LIMIT, BTreeMap::is_empty).await.map(drop)
    }

    pub(super) fn endpoints(&self, cluster: &Operated) -> Endpoints {
        Endpoints::of_cluster(self.client.clone(), &cluster.namespace, &cluster.name)
    }

    /// What they see is kept, run by run: a gap is explained by what each client did in it.
    pub(super) async fn writers(&self, endpoints: Endpoints, subject: Subject) -> Result<History> {
        let run = self.samples.of(subject).len() + 1;
        let file = format!("bench/history-{subject}-{run}.jsonl").replace([' ', ','], "-");
        let history = History::start(endpoints, Load::default(), workspace::results().join(file)).await?;
        history.goes_on(LIMIT).await?;
        Ok(history)
    }

    /// Whatever was there is gone: an interrupted benchmark may have left something.
    async fn fresh(&self, namespace: &str) -> Result<()> {
        self.remove(namespace).await?;
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let force = PatchParams::apply(FIELD_MANAGER).force();
        let made = self.namespaces().patch(namespace, &force, &Patch::Apply(&wanted)).await;
        made.map(drop).with_context(|| format!("cannot create namespace {namespace}"))
    }

    pub async fn remove(&self, namespace: &str) -> Result<()> {
        let namespaces = self.namespaces();
        if namespaces.get_opt(namespace).await?.is_none() {
            return Ok(());
        }
        let deleted = namespaces.delete(namespace, &DeleteParams::background()).await;
        deleted.map(drop).with_context(|| format!("cannot delete namespace {namespace}"))?;
        wait::gone(namespaces, namespace, &format!("namespace {namespace} is deleted"), LIMIT).await
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }
}

/// As the plain one has it: volumes of the same size, which go with their cluster.
pub fn spec(size: u8, subject: Subject) -> Value {
    let storage = json!({"size": "1Gi", "onDelete": "Delete"});
    let mut spec = json!({"size": size, "version": subject.etcd, "storage": storage});
    // TLS is on by default, which is what is measured.
    if !subject.tls {
        spec["security"] = json!({"tls": {"enabled": false}});
    }
    spec
}

async fn fill(cluster: &Operated) -> Result<()> {
    let members = cluster.members().await?;
    let member = members.first().context("the cluster has no members")?;
    for number in 0..VALUES {
        member.put(&format!("data/{number}"), vec![b'x'; VALUE_BYTES]).await?;
    }
    Ok(())
}

/// What clients saw meanwhile. A promise that was broken is no measurement.
pub(super) async fn judged(sample: Sample, writers: History) -> Result<Sample> {
    writers.goes_on(LIMIT).await?;
    let verdict = writers.stop(LIMIT).await?;
    let failed = Some(verdict.failed + verdict.unknown);
    Ok(Sample { write_gap: Some(verdict.longest_gap), failed, ..sample })
}
