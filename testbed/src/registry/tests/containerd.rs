//! The archives and the registry with a real containerd of our own (Debian: containerd; and root, to unpack).

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::*;
use crate::process::until;
use crate::shell::run;

/// A containerd without Kubernetes, all of whose files are in one directory.
struct Containerd {
    socket: PathBuf,
    hosts: PathBuf,
    child: Child,
}

impl Containerd {
    /// None, with a printed reason, where it cannot run.
    async fn start(scratch: &Scratch, registry: &Registry) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: containerd needs root");
            return None;
        }
        let dir = scratch.path().join("containerd");
        let (socket, hosts) = (dir.join("socket"), dir.join("hosts"));
        std::fs::create_dir_all(hosts.join("_default")).expect("a directory");
        std::fs::write(hosts.join("_default/hosts.toml"), hosts_toml(registry.address)).expect("a file");
        let at = |name: &str| dir.join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = {:?}\n",
            at("root"),
            at("state"),
            at("socket"),
            at("opt"),
        );
        std::fs::write(dir.join("config.toml"), config).expect("a file");
        let log = std::fs::File::create(dir.join("log")).expect("a file");
        let child = Command::new("containerd")
            .args(["--config", &at("config.toml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        let Ok(child) = child else {
            eprintln!("skipped: there is no containerd");
            return None;
        };
        let containerd = Self { socket, hosts, child };
        let what = || format!("containerd: {}", std::fs::read_to_string(dir.join("log")).unwrap_or_default());
        until(Duration::from_secs(20), Duration::from_millis(50), what, async || {
            containerd.ctr(&["version"]).await.map(|_| true)
        })
        .await
        .expect("containerd answers");
        Some(containerd)
    }

    async fn ctr(&self, words: &[&str]) -> Result<String> {
        let socket = self.socket.display().to_string();
        let line: Vec<_> = ["ctr", "-a", &socket].into_iter().chain(words.iter().copied()).collect();
        tokio::time::timeout(Duration::from_secs(60), run(&line)).await?
    }

    async fn pull(&self, name: &str) -> Result<String> {
        let hosts = self.hosts.display().to_string();
        self.ctr(&["images", "pull", "--hosts-dir", &hosts, name]).await
    }

    /// The digest that it has for a name.
    async fn digest(&self, name: &str) -> Option<String> {
        let list = self.ctr(&["images", "list", &format!("name=={name}")]).await.expect("a list");
        Some(list.lines().nth(1)?.split_whitespace().nth(2)?.to_owned())
    }

    async fn stop(mut self) {
        self.child.kill().await.expect("it was running");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_pulls_by_tag_and_digest_and_imports() {
    let scratch = Scratch::new();
    let images = scratch.path().join("images");
    let registry = Registry::over(&[&images]).await;
    let Some(containerd) = Containerd::start(&scratch, &registry).await else { return };

    let written = write(&etcd(&scratch, "v3.6.1"), &images);
    for name in ["quay.io/coreos/etcd:v3.6.1", "gcr.io/etcd-development/etcd:v3.6.1"] {
        containerd.pull(name).await.expect("it is pulled by tag");
        assert_eq!(containerd.digest(name).await, Some(written.digest.to_string()), "{name}");
    }
    containerd
        .pull(&format!("quay.io/coreos/etcd@{}", written.digest))
        .await
        .expect("it is pulled by digest");

    let latest = "localhost:5000/team/operator:latest";
    for content in ["one", "two"] {
        let written = write(&operator(&scratch, content), &images);
        containerd.pull(latest).await.expect("it is pulled");
        assert_eq!(containerd.digest(latest).await, Some(written.digest.to_string()), "{content}");
    }

    let error = containerd.pull("quay.io/coreos/etcd:v3.9.9").await.expect_err("there is none");
    assert!(format!("{error:#}").contains("not found"), "{error:#}");

    let names = ["docker.io/library/box:latest", "docker.io/library/box:1"];
    let image =
        Image::new(names.map(name)).text("/etc/motd", "imported, not pulled").link("/motd", "etc/motd");
    let written = write(&image, scratch.path());
    containerd.ctr(&["images", "import", &written.path.display().to_string()]).await.expect("it is imported");
    for name in names {
        assert_eq!(containerd.digest(name).await, Some(written.digest.to_string()), "{name}");
    }
    containerd.stop().await;
}
