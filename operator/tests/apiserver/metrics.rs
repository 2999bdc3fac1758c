//! Metrics of an operator at work, and who can read them, as a real API server decides it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etcd_operator::http;
use etcd_operator::metrics::server::{Protection, Source, serve};
use etcd_operator::metrics::{FORMAT, Metrics};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::operated::Workplace;
use crate::{as_operator, kubectl, shared};

/// In every certificate of these tests.
const HOST: &str = "etcd-operator-metrics.etcd-operator-system.svc";
const LIMIT: Duration = Duration::from_secs(60);

/// A port that serves metrics. Its certificate is in files, so that clients can check it.
struct Served {
    address: SocketAddr,
    trusted: CertificateDer<'static>,
    directory: Scratch,
    task: JoinHandle<()>,
}

struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn write_certificate(directory: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    let pem = certificate.self_signed(&key).expect("a certificate").pem();
    std::fs::write(directory.join("tls.key"), key.serialize_pem()).expect("it is written");
    std::fs::write(directory.join("tls.crt"), &pem).expect("it is written");
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("it was just made")
}

impl Served {
    async fn with(reviewer: Client, metrics: Metrics) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("etcd-operator-metrics-{}-{number}", std::process::id());
        let directory = Scratch(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&directory.0).expect("a directory");
        let trusted = write_certificate(&directory.0);
        let protection = Protection::tls(Source::Files(directory.0.clone()), reviewer).expect("it is usable");
        let listener = http::listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let task = tokio::spawn(serve(listener, metrics, protection, std::future::pending()));
        Self { address, trusted, directory, task }
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let response = self.response(path, token).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn response(&self, path: &str, token: Option<&str>) -> Response<hyper::body::Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let stream = self.connector().connect(server_name(), stream).await.expect("a handshake");
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let request = Request::get(path).header("host", HOST);
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        sender.send_request(request).await.expect("a response")
    }

    fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone()).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from(HOST).expect("a name")
}

/// A service account and a token of it.
async fn account(admin: &Client, namespace: &str, name: &str) -> String {
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
    accounts.create(&PostParams::default(), &account).await.expect("it is new");
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let issued = accounts.create_token_request(name, &PostParams::default(), &request).await;
    issued.expect("a token").status.expect("a token").token
}

pub async fn metrics_are_for_users_that_the_api_server_allows_to_read_them() {
    let api = shared::bare().await;
    let admin = api.client().await.expect("a client");
    let namespace = shared::namespace(&admin).await;
    let served = Served::with(as_operator(&api).await, Metrics::default()).await;

    let (status, text) = served.get("/metrics", None).await;
    assert_eq!((status, text.contains("Bearer TOKEN")), (StatusCode::UNAUTHORIZED, true), "{text}");
    let (status, text) = served.get("/metrics", Some("nonsense")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{text}");

    let token = account(&admin, &namespace, "prometheus").await;
    let (status, text) = served.get("/metrics", Some(&token)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let user = format!("system:serviceaccount:{namespace}:prometheus");
    assert!(text.contains(&user) && text.contains("etcd-operator-metrics-reader"), "{text}");
    assert!(!text.contains("etcd_operator_"), "{text}");

    let bound = format!("--serviceaccount={namespace}:prometheus");
    let role = "--clusterrole=etcd-operator-metrics-reader";
    kubectl(&api, &["create", "clusterrolebinding", &namespace, role, &bound]).await;
    let granted = async {
        loop {
            let (status, text) = served.get("/metrics", Some(&token)).await;
            if status == StatusCode::OK {
                break text;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let text = tokio::time::timeout(LIMIT, granted).await.expect("the right takes effect");
    assert!(text.contains("etcd_operator_build_info{version=") && text.ends_with("# EOF\n"), "{text}");
    let response = served.response("/metrics", Some(&token)).await;
    assert_eq!(response.headers()["content-type"], FORMAT);
    for path in ["/", "/metrics/", "/debug/pprof", "/healthz"] {
        assert_eq!(served.get(path, Some(&token)).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

pub async fn without_the_right_to_review_nobody_reads_metrics_and_the_response_names_it() {
    let api = shared::bare().await;
    let admin = api.client().await.expect("a client");
    let namespace = shared::namespace(&admin).await;
    let token = account(&admin, &namespace, "prometheus").await;
    // The rights of this account are those of an operator without `config/metrics`: none to review.
    let mut config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(api.kubeconfig()).expect("it is there"),
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .expect("it can be used");
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:prometheus"));
    let reviewer = etcd_operator::client::build(config).expect("a client");
    let served = Served::with(reviewer, Metrics::default()).await;
    let (status, text) = served.get("/metrics", Some(&token)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(text.contains("tokenreviews") && text.contains("config/metrics"), "{text}");
}

pub async fn a_certificate_in_files_is_read_again_when_it_changes() {
    let api = shared::bare().await;
    let mut served = Served::with(as_operator(&api).await, Metrics::default()).await;
    assert_eq!(served.get("/metrics", None).await.0, StatusCode::UNAUTHORIZED);
    served.trusted = write_certificate(&served.directory.0);
    assert_eq!(served.get("/metrics", None).await.0, StatusCode::UNAUTHORIZED, "it serves the new one");
    std::fs::write(served.directory.0.join("tls.key"), "nonsense").expect("it is written");
    assert_eq!(served.get("/metrics", None).await.0, StatusCode::UNAUTHORIZED, "it keeps the last good one");
}

pub async fn the_series_of_a_cluster_come_with_it_and_vanish_with_it() {
    let there = Workplace::new().await;
    let metrics = &there.on.metrics;
    there.create("counted", json!({"size": 3})).await;
    there.until_armed("counted", 3).await;
    let labels = format!("namespace=\"{}\",name=\"counted\"", there.namespace);
    let until = async |what: &str, holds: &dyn Fn(&str) -> bool| {
        let waiting = async {
            while !holds(&metrics.text()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting)
            .await
            .unwrap_or_else(|_| panic!("never {what}: {}", metrics.text()));
    };
    for expected in [
        format!("etcd_operator_cluster_wanted_members{{{labels}}} 3.0"),
        format!("etcd_operator_cluster_phase{{{labels},phase=\"Creating\"}} 1.0"),
        format!("etcd_operator_cluster_condition{{{labels},condition=\"Ready\",status=\"false\"}} 1.0"),
        format!(
            "etcd_operator_cluster_effects_total{{{labels},effect=\"AllowBootstrap\",outcome=\"done\"}} 1.0"
        ),
        format!("etcd_operator_cluster_waits{{{labels},reason=\"Bootstrapping\"}} 1.0"),
        "etcd_operator_leader 1.0".to_owned(),
    ] {
        until(&expected, &|text| text.lines().any(|line| line == expected)).await;
    }
    let certificates = format!("etcd_operator_cluster_certificate_expiry_timestamp_seconds{{{labels},");
    until("certificates", &|text| text.matches(&certificates).count() == 6).await;
    let text = metrics.text();
    assert!(text.contains("etcd_operator_api_requests_total{verb=\"watch\",outcome=\"ok\"}"), "{text}");

    there
        .all::<etcd_operator_core::api::EtcdCluster>()
        .delete("counted", &Default::default())
        .await
        .expect("it is deleted");
    until("gone", &|text| !text.contains(&labels)).await;
}
