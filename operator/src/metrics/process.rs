//! This process: what it uses, whether it leads, and its version.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_operator_core::metrics::{BUILD, CPU, FILES, LEADER, MEMORY, Metric, STARTED};
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::series::{descriptor, value};

/// The unit of times in /proc on every machine that Linux runs on (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub struct Process {
    started: Timestamp,
    leads: Arc<AtomicBool>,
}

impl Process {
    pub fn new(leads: Arc<AtomicBool>) -> Self {
        Self { started: Timestamp::now(), leads }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = if self.leads.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
        let numbers: [(&'static Metric, Option<f64>); 5] = [
            (&LEADER, Some(leads)),
            (&CPU, cpu_seconds()),
            (&MEMORY, resident_bytes()),
            (&FILES, open_files()),
            (&STARTED, Some(self.started.as_duration().as_secs_f64())),
        ];
        for (metric, number) in numbers {
            if let Some(number) = number {
                value(&mut descriptor(&mut encoder, metric)?, metric.kind, number)?;
            }
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        value(&mut descriptor(&mut encoder, &BUILD)?.encode_family(&version)?, BUILD.kind, 1.0)
    }
}

/// Each is left out where it cannot be read.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, can contain spaces. User and system time are the fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = |field: &str| field.parse::<f64>().ok();
    let mut times = fields.split(' ').skip(11);
    Some((ticks(times.next()?)? + ticks(times.next()?)?) / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // The directory that is read is one of them.
    Some(u32::try_from(count.saturating_sub(1)).ok()?.into())
}
