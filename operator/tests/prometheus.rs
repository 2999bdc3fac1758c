//! A real Prometheus reads the operator's metrics, and our alerts follow from them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_operator::metrics::Metrics;
use etcd_operator::metrics::server::{Protection, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(60);

/// It ends with the test, and leaves nothing behind.
struct Prometheus {
    process: Child,
    directory: PathBuf,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Prometheus {
    /// That reads the metrics at this address every second.
    async fn reading(metrics: SocketAddr) -> Self {
        let directory = std::env::temp_dir().join(format!("etcd-operator-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/prometheus/rules.yaml");
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "etcd-operator", "honor_labels": true,
                "static_configs": [{"targets": [metrics.to_string()]}],
            }],
        });
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config.to_string()).expect("it is written");
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).expect("a file"))
            .spawn()
            .expect("prometheus runs: make deps installs it");
        Self { process, directory, address }
    }

    /// The values of the series that match.
    async fn query(&self, query: &str) -> Option<Vec<String>> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        let answer: Value = serde_json::from_str(body).ok()?;
        let value = |it: &Value| it["value"][1].as_str().map(str::to_owned);
        answer["data"]["result"].as_array()?.iter().map(value).collect()
    }

    async fn until(&self, query: &str, expected: &[&str]) {
        let (begun, mut last) = (Instant::now(), None);
        while last.as_deref() != Some(&expected.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]) {
            let log = || std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < LIMIT, "{query} is {last:?}, not {expected:?}\n{}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
            last = self.query(query).await;
        }
    }
}

#[tokio::test]
async fn prometheus_reads_the_metrics_and_an_alert_appears_and_clears() {
    let metrics = Metrics::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(serve(listener, metrics.clone(), Protection::None, std::future::pending()));
    let prometheus = Prometheus::reading(address).await;

    prometheus.until("up{job=\"etcd-operator\"}", &["1"]).await;
    prometheus.until("etcd_operator_leader", &["0"]).await;
    prometheus.until("etcd_operator_build_info{version=\"0.1.0\"}", &["1"]).await;
    let absent = "ALERTS{alertname=\"EtcdOperatorAbsent\",severity=\"critical\"}";
    prometheus.until(absent, &["1"]).await;
    let leading = metrics.leading();
    prometheus.until("etcd_operator_leader", &["1"]).await;
    prometheus.until(absent, &[]).await;
    drop(leading);
    prometheus.until(absent, &["1"]).await;
}
