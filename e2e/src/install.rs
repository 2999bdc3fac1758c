//! Installs the operator of this build into a cluster, or brings it up to date there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;
use testbed::cluster::Testbed;
use testbed::image::{Name, Written, standard};

use crate::kubectl::Kubectl;
use crate::target::{Cluster, KIND_CLUSTER, Target, kind};
use crate::{FIELD_MANAGER, wait, workspace};

pub const IMAGE: &str = "ghcr.io/etcd-k8s-operator/etcd-operator";
pub const NAMESPACE: &str = "etcd-operator-system";
pub const DEPLOYMENT: &str = "etcd-operator";
pub const API_GROUP: &str = "etcd.etcd.io";
const SELECTOR: &str = "app.kubernetes.io/name=etcd-operator";
/// Where `make image` has cargo put the static programs, below its target directory.
const STATIC: &str = "x86_64-unknown-linux-musl/release";
const PROGRAMS: [&str; 3] = ["etcd-operator", "etcd-agent", "etcd-backup"];
/// The folder of `config/` that the usual operator is installed from.
const EVERYTHING: &str = "everything";
/// Where `make run` finds the image that members' pods take the agent from.
const AGENT_IMAGE: &str = "deploy/agent-image";
const READY_LIMIT: Duration = Duration::from_secs(180);

/// The operator in a cluster.
#[derive(Clone)]
pub struct Operator {
    client: Client,
    kubectl: Kubectl,
    /// The kustomization that installs it.
    installed_by: PathBuf,
    /// The tag tells the content. `None` in a cluster that pulls what somebody else has pushed.
    pub tag: Option<String>,
    /// How many pods of it the Deployment in `config/` asks for.
    replicas: i32,
}

/// The folder of the kustomizations.
pub fn config() -> Result<PathBuf> {
    let config = workspace::root().join("config");
    ensure!(config.is_dir(), "cannot find {}: run this from the project's directory", config.display());
    Ok(config)
}

/// What an operator needs that runs outside of the cluster: the CRDs, the namespace of its Lease and, where we can
/// provide it, the image that members' pods take the agent from. Its name is returned, and `make run` finds it in a file.
pub async fn for_operator_outside(cluster: &Cluster, programs: Option<&Path>) -> Result<Option<String>> {
    let config = config()?;
    let (namespace, crds) = (config.join("base/namespace.yaml"), config.join("crd/crds.yaml"));
    apply(&cluster.kubectl, &["-f", &shown(&namespace), "-f", &shown(&crds)]).await?;
    match cluster.target {
        Target::Testbed | Target::Kind => {
            let image = format!("{IMAGE}:{}", provide_image(cluster, &static_programs(programs)?).await?);
            let file = workspace::results().join(AGENT_IMAGE);
            std::fs::write(&file, &image).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(Some(image))
        }
        Target::Current => Ok(None),
    }
}

/// Removes the operator and nothing else: clusters, their volumes and the CRDs stay.
pub async fn remove(cluster: &Cluster) -> Result<()> {
    let operator = shown(&config()?.join("operator"));
    cluster.kubectl.run(&["delete", "-k", &operator, "--ignore-not-found"]).await.map(drop)
}

/// The sizes in bytes of the operator's program, of the agent's, of the one for backups, and of the image that
/// [`Operator::install`] has made.
pub fn sizes(programs: Option<&Path>) -> Result<[u64; 4]> {
    let size = |path: &Path| {
        let metadata = std::fs::metadata(path).with_context(|| format!("no {}", path.display()))?;
        anyhow::Ok(metadata.len())
    };
    let [operator, agent, backup] = static_programs(programs)?;
    Ok([size(&operator)?, size(&agent)?, size(&backup)?, size(&archive())?])
}

/// The operator as it is shipped, to be run on this machine.
pub fn program() -> Result<PathBuf> {
    static_programs(None)?.into_iter().next().context("no program")
}

/// The program for backups as it is shipped, to be run on this machine.
pub fn backup_program() -> Result<PathBuf> {
    static_programs(None).map(|[_, _, backup]| backup)
}

impl Operator {
    /// Applies `config/everything`. The image has the static programs of the given directory, or those that
    /// `make image` has built.
    pub async fn install(cluster: &Cluster, programs: Option<&Path>) -> Result<Self> {
        let config = config()?;
        let (installed_by, tag) = match cluster.target {
            Target::Testbed | Target::Kind => {
                let tag = provide_image(cluster, &static_programs(programs)?).await?;
                (overlay(&config, EVERYTHING, &tag)?, Some(tag))
            }
            Target::Current => (config.join(EVERYTHING), None),
        };
        let (client, kubectl) = (cluster.client.clone(), cluster.kubectl.clone());
        let mut operator = Self { client, kubectl, installed_by, tag, replicas: 1 };
        operator.apply().await?;
        operator.replicas = wanted(&operator.deployment().await?.context("the operator is not installed")?);
        Ok(operator)
    }

    /// Installs it once more as it was installed first.
    async fn apply(&self) -> Result<()> {
        apply(&self.kubectl, &["-k", &shown(&self.installed_by)]).await
    }

    /// Replaces it by what another folder of `config/` installs, with the same image. The CRDs stay.
    pub async fn install_as(&self, folder: &str) -> Result<()> {
        let usual = shown(&config()?.join("operator"));
        self.kubectl.run(&["delete", "-k", &usual, "--ignore-not-found"]).await?;
        apply(&self.kubectl, &["-k", &shown(&self.variant(folder)?)]).await?;
        self.ready().await
    }

    /// Removes what [`Self::install_as`] has installed.
    pub async fn remove_as(&self, folder: &str) -> Result<()> {
        let variant = shown(&self.variant(folder)?);
        self.kubectl.run(&["delete", "-k", &variant, "--ignore-not-found"]).await.map(drop)
    }

    fn variant(&self, folder: &str) -> Result<PathBuf> {
        overlay(&config()?, folder, self.tag.as_deref().context("the image comes from elsewhere")?)
    }

    /// Waits until nothing runs but pods of the newest Deployment, and all of them are ready.
    pub async fn ready(&self) -> Result<()> {
        wait::present(self.deployments(), DEPLOYMENT, "the operator is ready", READY_LIMIT, is_rolled_out)
            .await
            .map(drop)
    }

    /// Brings it back if it is scaled to another size, uninstalled, or installed with another image.
    pub async fn start(&self) -> Result<()> {
        match self.deployment().await? {
            Some(deployment) if self.image_is_ours(&deployment) => {
                if wanted(&deployment) != self.replicas {
                    self.scale(self.replicas).await?;
                }
            }
            Some(_) | None => self.apply().await?,
        }
        self.ready().await
    }

    /// Sends it away: when this returns, no operator runs.
    pub async fn stop(&self) -> Result<()> {
        self.scale(0).await?;
        let selected = watcher::Config::default().labels(SELECTOR);
        wait::objects(self.pods(), selected, "the operator is deleted", READY_LIMIT, |pods| pods.is_empty())
            .await
            .map(drop)
    }

    /// Those that are ready.
    pub async fn ready_pods(&self) -> Result<Vec<Pod>> {
        let pods = self.pods().list(&ListParams::default().labels(SELECTOR)).await?;
        Ok(pods.into_iter().filter(wait::is_ready).collect())
    }

    async fn deployment(&self) -> Result<Option<Deployment>> {
        self.deployments().get_opt(DEPLOYMENT).await.context("cannot read the operator's Deployment")
    }

    fn image_is_ours(&self, deployment: &Deployment) -> bool {
        let Some(tag) = &self.tag else { return true };
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let mut images = pod.into_iter().flat_map(|pod| &pod.containers).map(|it| it.image.as_deref());
        images.all(|image| image == Some(&format!("{IMAGE}:{tag}")))
    }

    async fn scale(&self, replicas: i32) -> Result<()> {
        let change = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let scaled = self.deployments().patch(DEPLOYMENT, &parameters, &change).await;
        scaled.map(drop).context("cannot scale the operator's Deployment")
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

/// How many pods it asks for.
fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let wanted = wanted(deployment);
    let all = |count: Option<i32>| count.unwrap_or(0) == wanted;
    status.observed_generation == deployment.metadata.generation
        && all(status.updated_replicas)
        && all(status.ready_replicas)
        && all(status.replicas)
}

async fn apply(kubectl: &Kubectl, what: &[&str]) -> Result<()> {
    let words = [&["apply", "--server-side", "--force-conflicts"], what].concat();
    kubectl.run(&words).await.map(drop)
}

fn static_programs(given: Option<&Path>) -> Result<[PathBuf; 3]> {
    let directory = match given {
        Some(directory) => directory.to_owned(),
        None => {
            let this = std::env::current_exe().context("cannot find the path of this program")?;
            let beside = this.parent().context("this program is not in a directory")?;
            if beside.ends_with(STATIC) { beside.to_owned() } else { beside.with_file_name(STATIC) }
        }
    };
    let programs = PROGRAMS.map(|name| directory.join(name));
    for program in &programs {
        ensure!(program.is_file(), "cannot find {}: run `make image`", program.display());
    }
    Ok(programs)
}

/// Makes the image available to the cluster's nodes, and returns its tag.
///
/// The tag tells the content. So an unchanged image restarts nothing, and a changed one is pulled and rolled out
/// without being told to.
async fn provide_image(cluster: &Cluster, programs: &[PathBuf]) -> Result<String> {
    let archive = archive();
    let unnamed = write(vec![format!("{IMAGE}:dev")], programs, &archive)?;
    let tag = format!("dev-{}", &unnamed.digest.hex()[..12]);
    let names = vec![format!("{IMAGE}:dev"), format!("{IMAGE}:{tag}")];
    match &cluster.testbed {
        Some(bed) => {
            write(names, programs, &bed.layout().images().join("operator.tar"))?;
        }
        None => {
            write(names, programs, &archive)?;
            kind(&["load", "image-archive", &shown(&archive), "--name", KIND_CLUSTER]).await?;
        }
    }
    Ok(tag)
}

/// Lets the testbed's nodes pull the image under another name, as from a registry of the user's.
pub fn provide_image_as(name: &str, testbed: &Testbed) -> Result<()> {
    let archive = testbed.layout().images().join("operator-by-another-name.tar");
    write(vec![name.to_owned()], &static_programs(None)?, &archive).map(drop)
}

fn archive() -> PathBuf {
    workspace::results().join("deploy/operator.tar")
}

fn write(names: Vec<String>, programs: &[PathBuf], path: &Path) -> Result<Written> {
    let names = names.iter().map(|name| name.parse()).collect::<Result<Vec<Name>>>()?;
    standard::operator(names, programs)?.write(path)
}

/// A folder of `config/` with the image's tag set, which stays as it is for those who use it directly.
fn overlay(config: &Path, folder: &str, tag: &str) -> Result<PathBuf> {
    let directory = workspace::results().join(match folder {
        EVERYTHING => "deploy".into(),
        other => format!("deploy-{other}"),
    });
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::fs::write(directory.join("kustomization.yaml"), kustomization(folder, tag))
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    ensure!(
        directory.join("../../config").canonicalize()? == config.canonicalize()?,
        "the path of target/ is not below the project's directory"
    );
    Ok(directory)
}

fn kustomization(folder: &str, tag: &str) -> String {
    format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- ../../config/{folder}\n\
         images:\n- name: {IMAGE}\n  newTag: {tag}\n"
    )
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployment_uses_the_image_that_we_provide() {
        let path = workspace::root().join("config/base/deployment.yaml");
        let deployment = std::fs::read_to_string(path).expect("config/ has a Deployment");
        for said in [
            format!("image: {IMAGE}:dev"),
            format!("namespace: {NAMESPACE}"),
            format!("name: {DEPLOYMENT}"),
            SELECTOR.replace('=', ": "),
        ] {
            assert!(deployment.contains(&said), "no {said:?} in {deployment}");
        }
    }

    #[test]
    fn the_overlay_changes_nothing_but_the_tag() {
        assert!(
            kustomization(EVERYTHING, "dev-1")
                .ends_with(&format!("images:\n- name: {IMAGE}\n  newTag: dev-1\n"))
        );
    }

    #[test]
    fn a_deployment_is_not_rolled_out_while_an_old_pod_is_there() {
        let deployment = |replicas: i32, generation: i64| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 1, "selector": {}, "template": {}},
                "status": {
                    "observedGeneration": generation, "replicas": replicas,
                    "updatedReplicas": 1, "readyReplicas": 1,
                },
            }))
            .expect("a Deployment")
        };
        assert!(is_rolled_out(&deployment(1, 2)));
        assert!(!is_rolled_out(&deployment(2, 2)));
        assert!(!is_rolled_out(&deployment(1, 1)));
    }
}
