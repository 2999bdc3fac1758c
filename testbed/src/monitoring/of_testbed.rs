//! Prometheus for the running testbed, with the scrape configuration and the alerts of `config/prometheus`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Prometheus, at_once, discovery};
use crate::cluster::Testbed;
use crate::layout::Layout;
use crate::say;
use crate::stand_in::Processes;

const SCRAPE: &str = include_str!("../../../config/prometheus/scrape.yaml");
const RULES: &str = include_str!("../../../config/prometheus/rules.yaml");
/// Of the account that reads metrics, and of its binding.
const NAME: &str = "testbed-prometheus";
const NAMESPACE: &str = "kube-system";
/// `config/metrics` has it.
const READER: &str = "etcd-operator-metrics-reader";
const TOKEN: &str = "token";
const TOKEN_SECONDS: i64 = 24 * 3600;
const FOLLOW: Duration = Duration::from_secs(1);

/// It ends with this value; [`Self::end`] removes what it has created in Kubernetes, too.
pub struct Monitoring {
    prometheus: Prometheus,
    client: Client,
    following: JoinHandle<()>,
}

/// When alerts fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firing {
    /// After the minutes for which their conditions have to hold.
    AsShipped,
    AtOnce,
}

impl Monitoring {
    pub async fn start(client: Client, firing: Firing) -> Result<Self> {
        let cluster = Layout::cluster();
        ensure!(cluster.exists(), "no testbed is running: run `testbed up`");
        let processes = Processes::below(cluster.dir(), "prometheus").context("cannot create a directory")?;
        let directory = processes.directory().to_owned();
        let rules = if firing == Firing::AtOnce { at_once(RULES) } else { RULES.to_owned() };
        std::fs::write(directory.join("rules.yaml"), rules).context("cannot write the rules")?;
        std::fs::write(directory.join(TOKEN), token(&client).await?).context("cannot write the token")?;
        discovery::write(&directory, &json!([]))?;
        let prometheus =
            Prometheus::start_with(processes, Some(&cluster), &scraped()?, &["rules.yaml".into()]).await?;
        let pods = Api::<Pod>::all(client.clone());
        let following = tokio::spawn(async move {
            let mut written = json!([]);
            loop {
                // While the API server is down, what is known of pods stays.
                if let Ok(pods) = pods.list(&ListParams::default()).await {
                    let found = discovery::targets(&pods.items);
                    if found != written && discovery::write(&directory, &found).is_ok() {
                        written = found;
                    }
                }
                tokio::time::sleep(FOLLOW).await;
            }
        });
        Ok(Self { prometheus, client, following })
    }

    pub fn prometheus(&self) -> &Prometheus {
        &self.prometheus
    }

    pub async fn end(self) -> Result<()> {
        let bindings = Api::<ClusterRoleBinding>::all(self.client.clone());
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), NAMESPACE);
        bindings.delete(NAME, &DeleteParams::default()).await.context("cannot delete the binding")?;
        accounts.delete(NAME, &DeleteParams::default()).await.context("cannot delete the account")?;
        Ok(())
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// As it is shipped, but for how pods are discovered and where the token is.
fn scraped() -> Result<Value> {
    let mut config: Value =
        serde_saphyr::from_str(SCRAPE).context("config/prometheus/scrape.yaml is not YAML")?;
    for job in config["scrape_configs"].as_array_mut().context("it has no jobs")? {
        let job = job.as_object_mut().context("a job is no object")?;
        job.remove("kubernetes_sd_configs").context("a job discovers no pods")?;
        job.insert("file_sd_configs".into(), json!([{"files": [discovery::FILE]}]));
        if let Some(authorization) = job.get_mut("authorization") {
            authorization["credentials_file"] = TOKEN.into();
        }
    }
    Ok(config["scrape_configs"].take())
}

/// Of an account that is allowed to read the operator's metrics.
async fn token(client: &Client) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let metadata = json!({"name": NAME});
    apply(&accounts, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": READER},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    });
    apply(&Api::<ClusterRoleBinding>::all(client.clone()), binding).await?;
    let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let issued = accounts.create_token_request(NAME, &PostParams::default(), &request).await;
    Ok(issued.context("cannot create a token")?.status.context("no token")?.token)
}

async fn apply<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let parameters = PatchParams::apply("testbed").force();
    let applied = api.patch(NAME, &parameters, &Patch::Apply(&object)).await;
    applied.map(drop).with_context(|| format!("cannot apply {object}"))
}

#[derive(Subcommand)]
pub enum Command {
    /// Run Prometheus until it is interrupted: it reads the operator and the members of all clusters and has our alerts
    Up {
        /// Let alerts fire at once, instead of after the minutes for which their conditions have to hold
        #[arg(long)]
        at_once: bool,
    },
}

pub async fn run(Command::Up { at_once }: Command) -> Result<()> {
    let client = Testbed::attach()?.client().await?;
    let firing = if at_once { Firing::AtOnce } else { Firing::AsShipped };
    let monitoring = Monitoring::start(client, firing).await?;
    say!(
        "Prometheus is running on http://{}, until you interrupt this command.",
        monitoring.prometheus().address()
    );
    say!("  The operator has to be installed with config/metrics, which is part of config/operator.");
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")?;
    monitoring.end().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_jobs_read_the_targets_of_the_testbed_with_their_own_labels() {
        let jobs = scraped().expect("it is YAML");
        let names: Vec<&Value> = jobs.as_array().expect("jobs").iter().map(|job| &job["job_name"]).collect();
        assert_eq!(names, ["etcd-operator", "etcd-members"]);
        assert_eq!(jobs[0]["authorization"]["credentials_file"], TOKEN);
        for job in jobs.as_array().expect("jobs") {
            assert_eq!(job["file_sd_configs"], json!([{"files": [discovery::FILE]}]));
            assert!(job.get("kubernetes_sd_configs").is_none() && job["relabel_configs"].is_array());
        }
    }
}
