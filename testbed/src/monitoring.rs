//! A real Prometheus, of the machine, for tests of metrics, alerts and dashboards.

mod discovery;
mod of_testbed;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub use self::of_testbed::{Command, Firing, Monitoring, run};
use crate::layout::{Layout, MARK};
use crate::stand_in::Processes;
use crate::store::free_port;

const PROGRAM: &str = "prometheus";
const START_LIMIT: Duration = Duration::from_secs(60);

/// It ends with this value, and so does what it has recorded.
pub struct Prometheus {
    processes: Processes,
    address: SocketAddr,
}

/// What a query returned of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: Value,
    pub value: String,
}

impl Prometheus {
    /// Reads and evaluates every second.
    pub async fn start(scrape_configs: &Value, rule_files: &[PathBuf]) -> Result<Self> {
        let processes = Processes::new("testbed-prometheus").context("cannot create a directory")?;
        Self::start_with(processes, None, scrape_configs, rule_files).await
    }

    /// Files can be named relative to the directory of the process. The `down` of an instance ends it, too.
    async fn start_with(
        mut processes: Processes,
        instance: Option<&Layout>,
        scrape_configs: &Value,
        rule_files: &[PathBuf],
    ) -> Result<Self> {
        let address = free_port(processes.address(0))?;
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": rule_files,
            "scrape_configs": scrape_configs,
        });
        let directory = processes.directory();
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config.to_string()).context("cannot write the configuration")?;
        let mut command = program(&file, &directory.join("data"), address);
        if let Some(instance) = instance {
            command.env(MARK, instance.dir());
        }
        processes.start(0, command).context("cannot run prometheus")?;
        let mut prometheus = Self { processes, address };
        let began = Instant::now();
        while prometheus.query("vector(1)").await.is_err() {
            if let Some(status) = prometheus.processes.ended(0) {
                bail!("prometheus ended ({status}):\n{}", prometheus.log());
            }
            if began.elapsed() > START_LIMIT {
                bail!("prometheus does not respond:\n{}", prometheus.log());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(prometheus)
    }

    /// The series that a query returns now.
    pub async fn query(&self, query: &str) -> Result<Vec<Series>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let (_, body) = response.split_once("\r\n\r\n").context("no body")?;
        let answer: Value = serde_json::from_str(body).with_context(|| format!("not JSON: {body}"))?;
        let Some(found) = answer["data"]["result"].as_array() else {
            bail!("prometheus rejects {query}: {}", answer["error"]);
        };
        let series = |it: &Value| {
            let value = it["value"][1].as_str()?.to_owned();
            Some(Series { labels: it["metric"].clone(), value })
        };
        Ok(found.iter().filter_map(series).collect())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn log(&self) -> String {
        self.processes.log(0)
    }
}

/// Rules whose alerts fire as soon as their conditions hold. The minutes that they have are for promtool's cases.
pub fn at_once(rules: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(minutes) => line.replace(minutes, "1s") + "\n",
        None => line.to_owned() + "\n",
    };
    rules.lines().map(line).collect()
}

fn program(config: &Path, data: &Path, address: SocketAddr) -> Program {
    let mut program = Program::new(PROGRAM);
    program
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address={address}"));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_wait_for_nothing_and_stay_the_same_otherwise() {
        let rules = "- alert: A\n  expr: up == 0\n  for: 10m\n- alert: B\n  expr: up == 1\n";
        assert_eq!(at_once(rules), rules.replace("10m", "1s"));
    }
}
