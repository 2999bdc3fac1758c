//! The moment when every member of something serves, found by asking each of them on its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;

use crate::access::ClientSecrets;
use crate::etcd::Member;
use crate::{progress, wait};

/// How long a member may take to answer while we look for the moment when all of them do.
const GLANCE: Duration = Duration::from_millis(1000);

/// So many pods of a kind, each of which is to run a member that serves.
pub struct Serving {
    pub pods: Api<Pod>,
    pub selector: String,
    pub count: usize,
    pub secrets: ClientSecrets,
    /// Between two looks. Asking costs the machine something, too.
    pub pause: Duration,
}

impl Serving {
    /// Waits until each member has served a linearizable read, and tells of each as it does.
    pub async fn wait(
        self,
        what: &str,
        limit: Duration,
        mut served: impl FnMut(&Member),
    ) -> Result<Vec<Member>> {
        let Self { pods, selector, count, secrets, pause } = self;
        let followed = wait::follow(pods, watcher::Config::default().labels(&selector));
        let mut serving: BTreeMap<String, Member> = BTreeMap::new();
        let mut last = None;
        let asking = async {
            while serving.len() < count {
                let known = members(followed.borrow().as_ref(), &secrets).into_iter();
                let silent = known.filter(|member| !serving.contains_key(&member.name));
                let asked = silent.map(|member| async move {
                    let served = member.serves(GLANCE).await;
                    (member, served)
                });
                for (member, answer) in join_all(asked.collect::<Vec<_>>()).await {
                    match answer {
                        Ok(()) => {
                            served(&member);
                            serving.insert(member.name.clone(), member);
                        }
                        Err(error) => last = Some(error),
                    }
                }
                tokio::time::sleep(pause).await;
            }
        };
        if progress::told(what, tokio::time::timeout(limit, asking)).await.is_err() {
            let names: Vec<_> = serving.keys().collect();
            bail!("timed out after {limit:?}: {what}; serving: {names:?}; last error: {last:?}");
        }
        Ok(serving.into_values().collect())
    }
}

/// Where the etcd of each pod that stays would answer, in the order of their names. None before the Secrets are known.
pub fn members(pods: Option<&BTreeMap<String, Pod>>, secrets: &ClientSecrets) -> Vec<Member> {
    let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
    let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok();
    let staying = pods.into_iter().flatten().filter(|(_, pod)| stays(pod));
    let member = |name: &String, pod| Some(Member::of_pod(name, address(pod)?, secrets.access_to(pod)?));
    staying.filter_map(|(name, pod)| member(name, pod)).collect()
}
