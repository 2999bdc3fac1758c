//! The processes of a pod, found by its control groups, and signals to them.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::{FaultError, Result, crash};
use crate::cgroup;
use crate::cluster::Testbed;
use crate::layout::Node;
use crate::process;

/// Processes of one run of a container: the id is another one when the container is started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Selection {
    node: Node,
    container_id: String,
    /// The name of the program; all of them if there is none.
    process: Option<String>,
}

pub(super) async fn select(
    bed: &Testbed,
    namespace: &str,
    pod: &str,
    container: Option<&str>,
    process: Option<&str>,
) -> Result<Selection> {
    let found = read_pod(bed, namespace, pod).await?;
    let node = node_of(bed, &found)?;
    let pod = format!("{namespace}/{pod}");
    let (container, container_id) = container_of(&found, &pod, container)?;
    let selection = Selection { node, container_id, process: process.map(str::to_owned) };
    let all = cgroup::processes_in(node, &selection.container_id);
    if all.is_empty() {
        return Err(FaultError::ContainerNotRunning { pod, container });
    }
    if let Some(process) = process
        && selection.processes().is_empty()
    {
        let there = all.iter().filter_map(|&id| names(id).into_iter().next()).collect();
        return Err(FaultError::NoSuchProcess { pod, container, process: process.to_owned(), there });
    }
    Ok(selection)
}

impl Selection {
    /// None if that run of the container is over.
    fn processes(&self) -> Vec<u32> {
        let mut ids = cgroup::processes_in(self.node, &self.container_id);
        if let Some(wanted) = &self.process {
            ids.retain(|&id| names(id).contains(wanted));
        }
        ids
    }

    pub async fn kill(&self) -> Result<()> {
        process::kill_and_wait(&self.processes()).await.map_err(FaultError::machine("kill the processes"))
    }

    /// Looks again after each round: a process may have started another one just before it stopped.
    pub fn pause(&self) -> Result<()> {
        let mut stopped = Vec::new();
        loop {
            let mut running = self.processes();
            running.retain(|id| !stopped.contains(id));
            if running.is_empty() {
                return Ok(());
            }
            signal_all(&running, Signal::STOP)?;
            stopped.extend(running);
        }
    }

    pub fn resume(&self) -> Result<()> {
        signal_all(&self.processes(), Signal::CONT)
    }
}

fn signal_all(ids: &[u32], signal: Signal) -> Result<()> {
    ids.iter()
        .try_for_each(|&id| process::signal(id, signal))
        .map_err(FaultError::machine("signal the processes"))
}

pub(super) async fn read_pod(bed: &Testbed, namespace: &str, pod: &str) -> Result<Pod> {
    let client = bed.client().await.map_err(FaultError::machine("reach the API server"))?;
    Api::<Pod>::namespaced(client, namespace)
        .get_opt(pod)
        .await
        .map_err(FaultError::api(format_args!("pod {namespace}/{pod}")))?
        .ok_or_else(|| FaultError::NoSuchPod { namespace: namespace.to_owned(), pod: pod.to_owned() })
}

/// Where a pod was placed.
pub(super) fn node_of(bed: &Testbed, pod: &Pod) -> Result<Node> {
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(name) => crash::find(bed, name),
        None => Err(FaultError::PodNotRunning { pod: title(pod) }),
    }
}

pub(super) fn title(pod: &Pod) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

/// All processes of a pod, its sandbox's included. With the driver `cgroupfs` the group is named after the uid.
pub(super) fn processes_of_pod(node: Node, pod: &Pod) -> Vec<u32> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    cgroup::processes_in(node, &format!("pod{uid}"))
}

/// The container's name and the id of its present run.
fn container_of(pod: &Pod, title: &str, wanted: Option<&str>) -> Result<(String, String)> {
    let names = container_names(pod);
    let name = match wanted {
        Some(wanted) => names.iter().find(|name| *name == wanted),
        None => names.first(),
    };
    let Some(name) = name else {
        let container = wanted.unwrap_or_default().to_owned();
        return Err(FaultError::NoSuchContainer { pod: title.to_owned(), container, there: names });
    };
    let run = statuses(pod).find(|status| status.name == *name).and_then(|status| {
        status.state.as_ref()?.running.as_ref()?;
        status.container_id.as_deref()?.strip_prefix("containerd://")
    });
    match run {
        Some(id) => Ok((name.clone(), id.to_owned())),
        None => Err(FaultError::ContainerNotRunning { pod: title.to_owned(), container: name.clone() }),
    }
}

/// Containers proper first, as they are meant when none is named.
fn container_names(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let main = spec.containers.iter().map(|container| container.name.clone());
    let init = spec.init_containers.iter().flatten().map(|container| container.name.clone());
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| container.name.clone());
    main.chain(init).chain(ephemeral).collect()
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.iter().flat_map(|status| {
        let lists = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        lists.into_iter().flatten().flatten()
    })
}

/// The names a process goes by: its program's file, and what it calls itself (which the kernel cuts at 15 bytes).
fn names(id: u32) -> Vec<String> {
    let file = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let first_word =
        line.split(|&byte| byte == 0).next().map(|word| String::from_utf8_lossy(word).into_owned());
    let own = std::fs::read_to_string(format!("/proc/{id}/comm")).ok().map(|name| name.trim().to_owned());
    let program = std::fs::read_link(format!("/proc/{id}/exe")).ok().and_then(file);
    [program, first_word.map(PathBuf::from).and_then(file), own].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(first_state: &str) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "default", "name": "db-0"},
            "spec": {
                "containers": [{"name": "etcd"}, {"name": "side"}],
                "initContainers": [{"name": "join"}],
            },
            "status": {
                "containerStatuses": [
                    {"name": "side", "containerID": "containerd://22", "image": "", "imageID": "", "ready": true,
                     "restartCount": 0, "state": {"running": {}}},
                    {"name": "etcd", "containerID": "containerd://11", "image": "", "imageID": "", "ready": true,
                     "restartCount": 0, "state": {first_state: {"exitCode": 1}}},
                ],
                "initContainerStatuses": [
                    {"name": "join", "containerID": "containerd://33", "image": "", "imageID": "", "ready": true,
                     "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
                ],
            },
        }))
        .expect("a pod")
    }

    fn id_of(pod: &Pod, container: Option<&str>) -> std::result::Result<String, String> {
        container_of(pod, "default/db-0", container).map(|(_, id)| id).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_container_is_meant_when_none_is_named() {
        assert_eq!(id_of(&pod("running"), None), Ok("11".into()));
        assert_eq!(id_of(&pod("running"), Some("side")), Ok("22".into()));
    }

    #[test]
    fn a_container_that_is_missing_or_does_not_run_is_refused_by_name() {
        let error = id_of(&pod("running"), Some("sidecar"));
        assert_eq!(error, Err("pod default/db-0 has no container `sidecar`; it has etcd, side, join".into()));
        let error = id_of(&pod("terminated"), None);
        assert_eq!(error, Err("container `etcd` of pod default/db-0 is not running".into()));
        assert!(id_of(&pod("running"), Some("join")).is_err());
    }

    #[test]
    fn a_process_goes_by_the_name_of_its_program() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let found = names(child.id());
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(found.contains(&"sleep".to_owned()), "{found:?}");
    }
}
