//! What the operator itself costs: memory, processor time, and room.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use testbed::cgroup;
use testbed::layout::Node;

use super::operation::CROWD;
use crate::install::{self, Operator};

/// Long enough that a few hundredths of a second of work are seen.
const WATCHED: Duration = Duration::from_secs(60);
/// The unit of processor times in /proc, the same on every x86-64.
const TICKS_PER_SECOND: f64 = 100.0;

/// With the program for backups, which has a quarter of it.
const IMAGE_MEGABYTES: f64 = 30.0;

/// One figure that is no time of an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: Unit,
    pub at_most: Option<f64>,
    pub missed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// A million bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// Of one core.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Percent => format!("{value:.2} %"),
        }
    }
}

impl Figure {
    fn new(name: impl Into<String>, value: f64, unit: Unit, at_most: impl Into<Option<f64>>) -> Self {
        let at_most = at_most.into();
        let value = (value * 1000.0).round() / 1000.0;
        Self { name: name.into(), value, unit, at_most, missed: at_most.is_some_and(|most| value > most) }
    }
}

/// The sizes of what is installed.
pub fn shipped(programs: Option<&Path>) -> Result<Vec<Figure>> {
    let [operator, agent, backup, image] = install::sizes(programs)?.map(|bytes| bytes as f64 / 1e6);
    Ok(vec![
        Figure::new("binary", operator, Unit::Megabytes, 16.0),
        Figure::new("agent binary", agent, Unit::Megabytes, None),
        Figure::new("backup binary", backup, Unit::Megabytes, None),
        Figure::new("image with all three", image, Unit::Megabytes, IMAGE_MEGABYTES),
    ])
}

/// The operator's process, seen from the machine.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    id: u32,
}

impl Process {
    /// Found by the control group of its container.
    pub async fn of(operator: &Operator) -> Result<Self> {
        let pods = operator.ready_pods().await?;
        ensure!(pods.len() == 1, "{} operator pods are ready, expected one", pods.len());
        let (node, container) = place_of(&pods[0]).context("the operator's pod has no running container")?;
        let found = cgroup::processes_in(node, &container);
        let id = *found.first().context("the operator's container has no running process")?;
        Ok(Self { id })
    }

    pub fn idle(self) -> Result<Figure> {
        Ok(Figure::new("resident memory, no cluster", self.resident_megabytes()?, Unit::Megabytes, 15.0))
    }

    /// While nothing changes.
    pub async fn with_crowd(self) -> Result<Vec<Figure>> {
        let before = self.ticks()?;
        tokio::time::sleep(WATCHED).await;
        let used = (self.ticks()? - before) / TICKS_PER_SECOND;
        let share = 100.0 * used / WATCHED.as_secs_f64();
        let memory = self.resident_megabytes()?;
        let seconds = WATCHED.as_secs();
        Ok(vec![
            Figure::new(format!("resident memory, {CROWD} clusters"), memory, Unit::Megabytes, 25.0),
            Figure::new(format!("CPU, {CROWD} settled clusters, {seconds} s"), share, Unit::Percent, 0.1),
        ])
    }

    fn resident_megabytes(self) -> Result<f64> {
        let status = self.read("status")?;
        resident_kibibytes(&status)
            .map(|kib| kib * 1024.0 / 1e6)
            .context("cannot read the operator's memory (VmRSS)")
    }

    fn ticks(self) -> Result<f64> {
        ticks(&self.read("stat")?).context("cannot read the operator's CPU times")
    }

    fn read(self, file: &str) -> Result<String> {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.id)).context("the operator has exited")
    }
}

fn place_of(pod: &Pod) -> Option<(Node, String)> {
    let node = Node::by_name(pod.spec.as_ref()?.node_name.as_deref()?)?;
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let id = containers.first()?.container_id.as_deref()?.strip_prefix("containerd://")?;
    Some((node, id.to_owned()))
}

fn resident_kibibytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// In user and in kernel mode. Fields are counted after the name, which may hold spaces.
fn ticks(stat: &str) -> Option<f64> {
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        assert_eq!(resident_kibibytes("Name:\tx\nVmRSS:\t    9216 kB\n"), Some(9216.0));
        let stat = "7 (etcd operator) S 1 7 7 0 -1 4194560 500 0 3 0 42 8 0 0 20 0 1 0 100 9 9";
        assert_eq!(ticks(stat), Some(50.0));
    }

    #[test]
    fn a_figure_knows_whether_it_is_too_much() {
        assert!(Figure::new("binary", 15.1, Unit::Megabytes, 15.0).missed);
        assert!(!Figure::new("binary", 15.0, Unit::Megabytes, 15.0).missed);
        assert_eq!(Unit::Megabytes.show(9.04), "9.0 MB");
    }
}
