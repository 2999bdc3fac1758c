//! A control plane, the stand-in for a kubelet, and a namespace of its own for each run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use etcd_operator_core::agent::{environment, path};
use etcd_operator_core::member::MAX_SIZE;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::Ordinal;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount, VolumeMount};
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testbed::api_only::ApiOnly;
use testbed::image::standard;
use testbed::shell::run;
use testbed::stand_in::{Files, Place, Settings, StandIn};
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::inside;

pub const CLUSTER: &str = "kv";
pub const DOMAIN: &str = "cluster.local";
const NAMESPACES: &str = "run-";
/// No other images of etcd exist. The second one is what a user edits the repository to.
const REPOSITORIES: [&str; 2] = ["quay.io/coreos/etcd", "registry.example.org/etcd"];
/// Of the operator, whatever its tag.
const OPERATOR: &str = "ghcr.io/etcd-k8s-operator/etcd-operator";
pub const OPERATOR_IMAGE: &str = "ghcr.io/etcd-k8s-operator/etcd-operator:dev";
/// A shell, for pods of tests.
pub const BUSYBOX: &str = "docker.io/library/busybox:latest";
/// The last part of the address that all pods of Jobs in a namespace have: nothing connects to them.
const OF_JOBS: u8 = 250;
const LIMIT: Duration = Duration::from_secs(60);

pub struct World {
    pub runtime: Runtime,
    pub admin: Client,
    pub kubeconfig: PathBuf,
    pub stand_in: StandIn,
    _api: ApiOnly,
}

/// The same for all tests.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

impl World {
    fn start() -> Self {
        inside::furnish();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let begun = Instant::now();
        let (api, admin) = runtime.block_on(async {
            let api = ApiOnly::start().await.expect("a control plane starts");
            let config = inside::root().join("config/everything").display().to_string();
            kubectl(&api, &["apply", "--server-side", "-k", &config]).await;
            kubectl(&api, &["wait", "--for=condition=Established", "crd", "--all"]).await;
            let admin = api.client().await.expect("an administrator's client");
            (api, admin)
        });
        let program = |version: &str| {
            let built = runtime.block_on(testbed::build::ensure_etcd(version)).expect("it is built");
            REPOSITORIES.map(|it| (format!("{it}:v{version}"), built.dir.clone()))
        };
        let programs: BTreeMap<String, PathBuf> =
            inside::VERSIONS.iter().flat_map(|it| program(it)).collect();
        let (agent, of_image) = (inside::program("etcd-agent"), programs.clone());
        let settings = Settings {
            directory: api.directory().join("stand-in"),
            address,
            command: Box::new(move |pod, place| command(Command::new(&agent), pod, place, &programs)),
            image: Box::new(move |name| image(name, &of_image)),
            refresh_delay: Duration::from_millis(50),
            probe_every: Duration::from_millis(50),
        };
        let stand_in = {
            let _inside = runtime.enter();
            StandIn::start(admin.clone(), settings)
        };
        eprintln!("control plane ready after {:.1} s", begun.elapsed().as_secs_f64());
        Self { runtime, admin, kubeconfig: api.kubeconfig(), stand_in, _api: api }
    }

    /// A namespace in which pods can be created, and whose pods have names.
    pub async fn namespace(&self) -> String {
        static COUNT: AtomicU16 = AtomicU16::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAMESPACES}{number}");
        let names = names(&name);
        // That of the peer Service leads to all of them: etcd looks for the address of a caller there.
        let of_pod = |it: Ordinal| {
            [names.pod_host(it), names.peer_host()].map(|host| (inside::address(number, it.0), host))
        };
        inside::add_names(&Ordinal::below(MAX_SIZE).flat_map(of_pod).collect::<Vec<_>>());
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        Api::all(self.admin.clone()).create(&PostParams::default(), &namespace).await.expect("it is new");
        let accounts: Api<ServiceAccount> = self.all(&name);
        let there = |it: Option<&ServiceAccount>| it.is_some();
        let waiting = tokio::time::timeout(LIMIT, await_condition(accounts, "default", there)).await;
        waiting.expect("it appears").expect("the watch goes on");
        name
    }

    pub fn all<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), namespace)
    }
}

async fn kubectl(api: &ApiOnly, arguments: &[&str]) {
    let program = api.kubectl().display().to_string();
    let kubeconfig = api.kubeconfig().display().to_string();
    let line = [&[program.as_str(), "--kubeconfig", &kubeconfig], arguments].concat();
    run(&line).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error:#}"));
}

/// Only members of runs are started, what tries their next form, and Jobs; the operator's own pod is not.
fn address(pod: &Pod) -> Option<IpAddr> {
    if pod.owner_references().iter().any(|owner| owner.kind == "Job") {
        return address_in(&pod.namespace()?, OF_JOBS);
    }
    let name = pod.name_any();
    let behind = name.strip_prefix(CLUSTER)?.strip_prefix('-')?;
    let ordinal = behind.strip_prefix("preflight-").unwrap_or(behind).parse().ok()?;
    address_in(&pod.namespace()?, ordinal)
}

/// Of the cluster in the namespace of a run.
pub fn names(namespace: &str) -> Names {
    Names::new(namespace, CLUSTER, DOMAIN)
}

/// Of a pod in the namespace of a run.
pub fn address_in(namespace: &str, ordinal: u8) -> Option<IpAddr> {
    let run = namespace.strip_prefix(NAMESPACES)?.parse().ok()?;
    Some(inside::address(run, ordinal).into())
}

/// The files of an image, with the programs of etcd by its name.
fn image(name: &str, etcd: &BTreeMap<String, PathBuf>) -> Option<Files> {
    if let Some(programs) = etcd.get(name) {
        let file = |it| (format!("/usr/local/bin/{it}"), programs.join(it));
        return Some(["etcd", "etcdctl", "etcdutl"].map(file).into());
    }
    match name.rsplit_once(':') {
        Some((OPERATOR, _)) => {
            Some(["etcd-agent", "etcd-backup"].map(|it| (format!("/{it}"), inside::program(it))).into())
        }
        _ => (name == BUSYBOX).then(|| [("/bin/sh".to_owned(), standard::BUSYBOX.into())].into()),
    }
}

/// What the pod's first container runs, with the paths of this machine. None if there is no such image.
fn command(
    mut agent: Command,
    pod: &Pod,
    place: &Place,
    etcd: &BTreeMap<String, PathBuf>,
) -> Option<Command> {
    let spec = pod.spec.clone().unwrap_or_default();
    let container = spec.containers.into_iter().next().expect("a pod has a container");
    let etcd = etcd.get(&container.image.unwrap_or_default())?.join("etcd");
    if container.command == Some(vec!["etcd".into()]) {
        let mut command = Command::new(etcd);
        command.args(container.args.unwrap_or_default()).env_clear();
        return Some(command);
    }
    agent.arg("start").env_clear();
    for variable in container.env.unwrap_or_default() {
        let field = variable.value_from.and_then(|it| it.field_ref).map(|it| it.field_path);
        let value = match field.as_deref() {
            Some("metadata.name") => Some(pod.name_any()),
            Some("status.podIP") => Some(place.address.to_string()),
            _ => variable.value,
        };
        agent.env(variable.name, value.unwrap_or_default());
    }
    let mounts = container.volume_mounts.unwrap_or_default();
    for (variable, mount_path) in [
        (environment::VOLUME, path::VOLUME),
        (environment::RUN, path::RUN),
        (environment::ORDER, path::ORDER),
    ] {
        let mount = mounts.iter().find(|mount| mount.mount_path == mount_path).expect("it is mounted");
        agent.env(variable, &place.volumes[&mount.name]);
    }
    agent
        .env(environment::TLS, tls_directory(&mounts, place))
        .env(environment::LISTEN, place.address.to_string())
        .env(environment::ETCD, etcd)
        .env(environment::TERMINATION_LOG, &place.termination_log);
    Some(agent)
}

/// With a link for each Secret where the pod would mount it.
fn tls_directory(mounts: &[VolumeMount], place: &Place) -> PathBuf {
    let directory = place.directory.join("tls");
    std::fs::create_dir_all(&directory).expect("it can be created");
    for mount in mounts {
        let Ok(name) = Path::new(&mount.mount_path).strip_prefix(path::TLS) else { continue };
        let linked = symlink(&place.volumes[&mount.name], directory.join(name));
        // A container that starts again finds it.
        assert!(linked.is_ok() || directory.join(name).exists(), "{linked:?}");
    }
    directory
}
