//! The control plane: the API's own etcd, API server, controller manager, scheduler, all on the machine itself.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::build::Programs;
use crate::layout::{API_PORT, CLUSTER_DOMAIN, HOST_ADDRESS, KUBERNETES_SERVICE, Layout, SERVICE_SUBNET};
use crate::pki::{Authority, Subject};
use crate::process::{Daemon, first_exit, until};

/// The daemon's name, by which faults find it.
pub const API_SERVER: &str = "apiserver";
const STORE: &str = "etcd";

/// Where the control plane listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    pub host: Ipv4Addr,
    pub api_port: u16,
    pub store_client_port: u16,
    pub store_peer_port: u16,
}

impl Addresses {
    /// On the nodes' bridge, at fixed ports.
    pub fn on_bridge() -> Self {
        Self { host: HOST_ADDRESS, api_port: API_PORT, store_client_port: 12379, store_peer_port: 12380 }
    }

    /// On loopback, at ports that are free now.
    pub fn on_loopback() -> Result<Self> {
        // All three are held until each is known, so that they differ.
        let listeners = [(); 3].map(|()| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let mut ports = Vec::new();
        for listener in &listeners {
            let listener = listener.as_ref().map_err(|error| anyhow::anyhow!("no free port: {error}"))?;
            ports.push(listener.local_addr()?.port());
        }
        Ok(Self {
            host: Ipv4Addr::LOCALHOST,
            api_port: ports[0],
            store_client_port: ports[1],
            store_peer_port: ports[2],
        })
    }

    pub fn server(&self) -> String {
        format!("https://{}:{}", self.host, self.api_port)
    }

    fn store(&self) -> String {
        format!("http://127.0.0.1:{}", self.store_client_port)
    }
}

/// Certificates and kubeconfigs of everything that is not part of a node.
pub fn credentials(layout: &Layout, addresses: &Addresses) -> Result<Authority> {
    let authority = Authority::create(layout)?;
    let mut names: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"]
            .map(String::from)
            .to_vec();
    names.push(format!("kubernetes.default.svc.{CLUSTER_DOMAIN}"));
    names.push(KUBERNETES_SERVICE.to_string());
    if addresses.host != Ipv4Addr::LOCALHOST {
        names.push(addresses.host.to_string());
    }
    authority.issue("apiserver", Subject { name: "kube-apiserver", group: None }, &names)?;
    authority.issue("front-proxy", Subject { name: "front-proxy", group: None }, &[])?;
    authority.service_account_keys()?;
    let server = addresses.server();
    let admin = Subject { name: "admin", group: Some("system:masters") };
    authority.issue_client(&layout.kubeconfig(), &server, "admin", admin)?;
    for component in ["kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        let subject = Subject { name: &format!("system:{component}"), group: None };
        authority.issue_client(&layout.kubeconfig_of(component), &server, component, subject)?;
    }
    Ok(authority)
}

/// The API's own etcd: a throw-away store, so it does not wait for the disk.
pub async fn start_store(layout: &Layout, programs: &Programs, addresses: &Addresses) -> Result<()> {
    let peer = format!("http://127.0.0.1:{}", addresses.store_peer_port);
    Daemon::new(STORE, programs.etcd.join("etcd"))
        .file("data-dir", layout.dir().join("store"))
        .argument("--unsafe-no-fsync")
        .flag("log-level", "warn")
        .flag("listen-client-urls", addresses.store())
        .flag("advertise-client-urls", addresses.store())
        .flag("listen-peer-urls", &peer)
        .flag("initial-advertise-peer-urls", &peer)
        .flag("initial-cluster", format!("default={peer}"))
        .start(layout)
        .await?;
    Ok(())
}

pub async fn start_apiserver(layout: &Layout, programs: &Programs, addresses: &Addresses) -> Result<()> {
    let pki = layout.pki();
    let pki = |name: &str| pki.join(name);
    let mut server = Daemon::new(API_SERVER, programs.kubernetes.join("kube-apiserver"))
        .flag("etcd-servers", addresses.store())
        .flag("bind-address", addresses.host)
        .flag("advertise-address", addresses.host)
        .flag("secure-port", addresses.api_port)
        .flag("service-cluster-ip-range", SERVICE_SUBNET)
        .flag("allow-privileged", true)
        .flag("anonymous-auth", false)
        // The default would allow everybody everything.
        .flag("authorization-mode", "Node,RBAC")
        .flag("enable-admission-plugins", "NodeRestriction")
        // Evictions from a lost node start after 30 s instead of 300 s: tests of lost nodes stay short.
        .flag("default-not-ready-toleration-seconds", 30)
        .flag("default-unreachable-toleration-seconds", 30)
        .file("client-ca-file", pki("ca.crt"))
        .file("tls-cert-file", pki("apiserver.crt"))
        .file("tls-private-key-file", pki("apiserver.key"))
        .file("kubelet-client-certificate", pki("admin.crt"))
        .file("kubelet-client-key", pki("admin.key"))
        .flag("kubelet-preferred-address-types", "InternalIP")
        .flag("service-account-issuer", format!("https://kubernetes.default.svc.{CLUSTER_DOMAIN}"))
        .file("service-account-key-file", pki("service-account.pub"))
        .file("service-account-signing-key-file", pki("service-account.key"))
        .file("requestheader-client-ca-file", pki("ca.crt"))
        .flag("requestheader-allowed-names", "front-proxy")
        .flag("requestheader-username-headers", "X-Remote-User")
        .flag("requestheader-group-headers", "X-Remote-Group")
        .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .file("proxy-client-cert-file", pki("front-proxy.crt"))
        .file("proxy-client-key-file", pki("front-proxy.key"));
    if addresses.host.is_loopback() {
        // A loopback address may not be an endpoint of the Service `kubernetes`.
        server = server.flag("endpoint-reconciler-type", "none");
    }
    server.start(layout).await?;
    Ok(())
}

/// All controllers that run by default, or those that need no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    All,
    /// Nothing judges whether a pod's node is there.
    WithoutNodes,
}

pub async fn start_controller_manager(
    layout: &Layout,
    programs: &Programs,
    controllers: Controllers,
) -> Result<()> {
    let pki = layout.pki();
    let controllers = match controllers {
        Controllers::All => "*",
        Controllers::WithoutNodes => "*,-nodelifecycle,-podgc",
    };
    controller(layout, programs, "kube-controller-manager")
        .flag("controllers", controllers)
        .argument("--use-service-account-credentials")
        .file("service-account-private-key-file", pki.join("service-account.key"))
        .file("root-ca-file", pki.join("ca.crt"))
        .file("cluster-signing-cert-file", pki.join("ca.crt"))
        .file("cluster-signing-key-file", pki.join("ca.key"))
        // By default it holds itself to 20 requests a second, which nine new volumes exceed.
        .flag("kube-api-qps", 500)
        .flag("kube-api-burst", 1000)
        // 50 s by default: a lost node is to be noticed sooner.
        .flag("node-monitor-grace-period", "16s")
        .start(layout)
        .await?;
    Ok(())
}

pub async fn start_scheduler(layout: &Layout, programs: &Programs) -> Result<()> {
    controller(layout, programs, "kube-scheduler").start(layout).await?;
    Ok(())
}

/// What controller manager and scheduler have in common. They serve nothing: several instances may run at once.
fn controller(layout: &Layout, programs: &Programs, name: &str) -> Daemon {
    let kubeconfig = layout.kubeconfig_of(name);
    Daemon::new(name, programs.kubernetes.join(name))
        .flag("leader-elect", false)
        .flag("secure-port", 0)
        .file("kubeconfig", &kubeconfig)
        .file("authentication-kubeconfig", &kubeconfig)
        .file("authorization-kubeconfig", &kubeconfig)
}

/// Waits until the API server says that it is ready, its start-up hooks included. Fails at once if it exits.
pub async fn wait_ready(layout: &Layout) -> Result<kube::Client> {
    let client = client(layout).await?;
    let what =
        || format!("the API server is not ready; see {}", layout.logs().join("apiserver.log").display());
    let ready = until(Duration::from_secs(60), Duration::from_millis(100), what, async || {
        let request = http_get("/readyz")?;
        Ok(client.request_text(request).await.context("/readyz")? == "ok")
    });
    tokio::select! {
        ready = ready => ready.map(|()| client.clone()),
        exited = first_exit(layout, &[STORE, API_SERVER]) => Err(exited),
    }
}

/// A client with the administrator's rights.
pub async fn client(layout: &Layout) -> Result<kube::Client> {
    let path = layout.kubeconfig();
    let kubeconfig = kube::config::Kubeconfig::read_from(&path)
        .with_context(|| format!("cannot read the kubeconfig {}: run `testbed up`", path.display()))?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// Server-side apply of one of the testbed's own objects.
pub async fn apply<K>(api: kube::Api<K>, object: &K) -> Result<()>
where
    K: kube::Resource + Serialize + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    let name = object.meta().name.clone().context("an object has no name")?;
    let parameters = kube::api::PatchParams::apply("testbed").force();
    api.patch(&name, &parameters, &kube::api::Patch::Apply(object))
        .await
        .with_context(|| format!("cannot apply {name}"))?;
    Ok(())
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}
