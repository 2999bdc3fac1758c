//! A container as a process with a file system and process numbers of its own, so that its command line works as it is.
//!
//! Its root directory has the files of the image, the volumes where the pod mounts them, and of this machine the libraries
//! that programs need which are not static, the names of hosts, public certificates and the usual devices. The mounts are in
//! a namespace that ends with the process, so nothing is left of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Secret, SecretKeySelector};
use kube::ResourceExt;
use tokio::process::{Child, Command};

use super::processes::log_to;
use super::status::NODE;

/// As container runtimes have it, for images that have none of their own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TERMINATION_LOG: &str = "/dev/termination-log";
const LIBRARIES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"];
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
const SETTINGS: [&str; 6] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/ssl"];
/// Mounts everything in its place, and then becomes the program.
const ENTER: &str = r#"
root=$1; shift
while [ "$1" != -- ]; do
  access=$1 from=$2 to=$root$3; shift 3
  if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}"; [ -e "$to" ] || : >"$to"; fi
  mount --rbind "$from" "$to"
  [ "$access" != ro ] || mount -o remount,bind,ro "$to"
done
shift
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"#;

/// The files of an image, by their path in the container, and where they are on this machine.
pub type Files = BTreeMap<String, PathBuf>;

/// One of the pod's namespace, by its name.
pub type FindSecret<'a> = dyn Fn(&str) -> Option<Arc<Secret>> + 'a;

/// Where the files of one container of a pod are on this machine.
pub struct Contained {
    directory: PathBuf,
    termination_log: PathBuf,
}

/// What a kubelet reports instead of starting it: the reason and the message.
#[derive(Debug)]
pub struct Refused(pub &'static str, pub String);

impl Contained {
    pub fn new(pod_directory: &Path, container: &Container) -> Self {
        let directory = pod_directory.join("containers").join(&container.name);
        let path = container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG);
        let termination_log = below(&directory.join("root"), path);
        Self { directory, termination_log }
    }

    /// What the program has left there.
    pub fn termination_log(&self) -> Vec<u8> {
        fs::read(&self.termination_log).unwrap_or_default()
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Everything of the pod's own specification that cannot be done is refused.
    pub fn command(
        &self,
        pod: &Pod,
        container: &Container,
        files: &Files,
        volumes: &BTreeMap<String, PathBuf>,
        secrets: &FindSecret<'_>,
    ) -> Result<Command, Refused> {
        let words: Vec<_> = [&container.command, &container.args].into_iter().flatten().flatten().collect();
        if container.command.as_ref().is_none_or(Vec::is_empty) {
            return Err(refused("has no command, and images have none here"));
        }
        if container.env_from.is_some() || container.working_dir.is_some() {
            return Err(refused("has envFrom or workingDir, which the stand-in does not know"));
        }
        let environment = environment(pod, container, secrets)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--", "sh", "-ec", ENTER, "sh"]).arg(self.directory.join("root"));
        for path in LIBRARIES.into_iter().chain(DEVICES).chain(SETTINGS) {
            let is_link = fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
            if !(is_link && LIBRARIES.contains(&path)) && Path::new(path).exists() {
                command.args(["rw", path, path]);
            }
        }
        for (path, source) in files {
            command.arg("rw").arg(source).arg(path);
        }
        let mut mounts = container.volume_mounts.clone().unwrap_or_default();
        // What is mounted inside of another volume comes after it.
        mounts.sort_by(|one, other| one.mount_path.cmp(&other.mount_path));
        for mount in mounts {
            let volume =
                volumes.get(&mount.name).ok_or_else(|| refused("mounts a volume that the pod lacks"))?;
            let source = volume.join(mount.sub_path.as_deref().unwrap_or_default());
            let access = if mount.read_only == Some(true) { "ro" } else { "rw" };
            command.arg(access).arg(source).arg(mount.mount_path);
        }
        command.arg("--").args(words.into_iter().map(|word| expanded(word, &environment)));
        command.env_clear().envs(environment);
        Ok(command)
    }

    /// Starts it for the first time.
    pub fn start(&self, mut command: Command) -> Result<Child> {
        let root = self.directory.join("root");
        for directory in ["dev", "etc", "proc", "run", "tmp", "usr", "var/tmp"] {
            fs::create_dir_all(root.join(directory)).context("cannot create a root directory")?;
        }
        for library in LIBRARIES {
            if let Ok(target) = fs::read_link(library) {
                let linked = std::os::unix::fs::symlink(target, below(&root, library));
                linked.context("cannot link the libraries")?;
            }
        }
        let log = self.termination_log.parent().context("a termination log is in a directory")?;
        fs::create_dir_all(log).and_then(|()| fs::write(&self.termination_log, ""))?;
        log_to(command.as_std_mut(), &self.log())?;
        command.kill_on_drop(true).spawn().context("cannot start a container")
    }
}

/// The process that is the first of its container, once it is the program of the image.
pub fn first_process(container: &Child) -> Option<u32> {
    let id = container.id()?;
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    let first = children.split_whitespace().next()?.parse().ok()?;
    let has_entered = fs::read_link(format!("/proc/{first}/root")).is_ok_and(|root| root != Path::new("/"));
    has_entered.then_some(first)
}

fn refused(why: &str) -> Refused {
    Refused("CreateContainerConfigError", format!("the container {why}"))
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn environment(
    pod: &Pod,
    container: &Container,
    secrets: &FindSecret<'_>,
) -> Result<BTreeMap<String, String>, Refused> {
    let mut all =
        BTreeMap::from([("PATH".to_owned(), PATH.to_owned()), ("HOSTNAME".to_owned(), pod.name_any())]);
    for EnvVar { name, value, value_from } in container.env.clone().unwrap_or_default() {
        if let Some(source) = value_from.as_ref().and_then(|it| it.secret_key_ref.as_ref()) {
            all.extend(of_secret(pod, source, secrets)?.map(|value| (name, value)));
            continue;
        }
        let field = value_from.map(|it| it.field_ref.map(|it| it.field_path).unwrap_or_default());
        let value = match field.as_deref() {
            None => value.map(|value| expanded(&value, &all)),
            Some("metadata.name") => Some(pod.name_any()),
            Some("metadata.namespace") => pod.namespace(),
            Some("metadata.uid") => pod.uid(),
            Some("spec.nodeName") => Some(NODE.into()),
            Some("status.podIP") => pod.status.as_ref().and_then(|status| status.pod_ip.clone()),
            Some(_) => return Err(refused("has a variable whose source the stand-in does not know")),
        };
        all.insert(name, value.unwrap_or_default());
    }
    Ok(all)
}

/// None if it is optional and missing. The words are those of a kubelet.
fn of_secret(
    pod: &Pod,
    source: &SecretKeySelector,
    secrets: &FindSecret<'_>,
) -> Result<Option<String>, Refused> {
    let SecretKeySelector { name, key, optional } = source;
    let missing = |message: String| match optional {
        Some(true) => Ok(None),
        Some(false) | None => Err(Refused("CreateContainerConfigError", message)),
    };
    let Some(secret) = secrets(name) else { return missing(format!("secret \"{name}\" not found")) };
    match secret.data.as_ref().and_then(|data| data.get(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
        None => {
            let namespace = pod.namespace().unwrap_or_default();
            missing(format!("couldn't find key {key} in Secret {namespace}/{name}"))
        }
    }
}

/// `$(NAME)` is the value of a variable.
fn expanded(text: &str, environment: &BTreeMap<String, String>) -> String {
    environment.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}
