//! The configuration files of a node's daemons.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::image;
use crate::layout::{
    CLUSTER_DOMAIN, DNS_SERVICE, HOST_ADDRESS, Layout, Node, POD_BRIDGE, POD_SUBNET, REGISTRY_PORT,
};

/// Where distributions put the CNI plugins.
const CNI_PLUGINS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin"];

pub fn write(layout: &Layout, node: Node) -> Result<()> {
    let home = layout.node_home(node);
    let file = |name: &str, text: String| {
        let path = home.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    file("cni/10-testbed.conflist", pod_network(&home, node))?;
    file("containerd.toml", containerd(layout, &home))?;
    file("kubelet.yaml", kubelet(layout, &home, node))?;
    file("proxy.yaml", proxy(layout, node))
}

/// Pods keep their own address between nodes (no masquerading): etcd's peers must see it.
fn pod_network(home: &Path, node: Node) -> String {
    json!({"cniVersion": "1.0.0", "name": "testbed", "plugins": [{
        "type": "bridge", "bridge": POD_BRIDGE, "isGateway": true, "ipMasq": false, "hairpinMode": true,
        "ipam": {"type": "host-local", "dataDir": home.join("cni-state"),
                 "ranges": [[{"subnet": node.pod_subnet()}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }]})
    .to_string()
}

/// `restrict_oom_score_adj` decides whether any pod starts where root lacks CAP_SYS_RESOURCE.
/// State that containerd would keep elsewhere is moved below our directory, where `down` removes it.
fn containerd(layout: &Layout, home: &Path) -> String {
    let plugins =
        CNI_PLUGINS.iter().map(Path::new).find(|path| path.exists()).unwrap_or(Path::new(CNI_PLUGINS[0]));
    let (dir, home, plugins) = (layout.dir().display(), home.display(), plugins.display());
    let pause = image::PAUSE;
    format!(
        r#"version = 2
root = "{home}/containerd"
state = "{home}/containerd-run"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{dir}/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{home}/runc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
"#
    )
}

/// `resolvConf` is an empty file of ours, so that no pod ever asks the machine's resolver. `podLogsDir` must
/// differ per node: a kubelet deletes logs of pods it does not know.
fn kubelet(layout: &Layout, home: &Path, node: Node) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address(),
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", home.display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.pki().join("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": resolv_conf(layout),
        "podLogsDir": home.join("pod-logs"),
        "readOnlyPort": 0,
        "healthzBindAddress": node.address(),
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {
            "memory.available": "200Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
        },
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 16,
        // Two nodes' worth of clusters start at once in benchmarks; the default of 5 a second would be measured.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "registryPullQPS": 0,
        "serializeImagePulls": false,
    })
    .to_string()
}

/// Binds to the bridge alone and leaves the machine's connection tracking as it is.
fn proxy(layout: &Layout, node: Node) -> String {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": layout.kubeconfig_of("kube-proxy")},
        "hostnameOverride": node.name(),
        "clusterCIDR": POD_SUBNET,
        "nodePortAddresses": ["primary"],
        "healthzBindAddress": format!("{}:10256", node.address()),
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"localhostNodePorts": false},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
    .to_string()
}

fn resolv_conf(layout: &Layout) -> PathBuf {
    layout.dir().join("resolv.conf")
}

/// What all nodes share: the empty resolver file, and the rule that every pull, whatever the image's name
/// says, asks our own registry and no other machine.
pub fn write_shared(layout: &Layout) -> Result<()> {
    std::fs::write(resolv_conf(layout), "").context("cannot write resolv.conf")?;
    let registries = layout.dir().join("registries/_default");
    std::fs::create_dir_all(&registries).context("cannot create the directory of the registries")?;
    let hosts = crate::registry::hosts_toml(format!("{HOST_ADDRESS}:{REGISTRY_PORT}"));
    std::fs::write(registries.join("hosts.toml"), hosts).context("cannot write hosts.toml")
}
