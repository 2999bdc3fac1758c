//! Waiting for the cluster: by watches where there is one, by asking again where there is none.
//!
//! Every wait has a limit, and says at the end of it what was seen last.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::progress::told;

/// Between two questions to something that cannot be watched.
const PAUSE: Duration = Duration::from_millis(100);
/// Before a broken watch is opened again: the API server may be away on purpose.
const REOPEN: Duration = Duration::from_millis(300);

/// Objects by name; `None` until the first list is complete.
pub type Seen<K> = Option<BTreeMap<String, K>>;

/// What a test may ask of a Kubernetes kind here.
pub trait Watchable: Resource + Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static {}
impl<K: Resource + Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static> Watchable for K {}

/// Keeps the selected objects current until the receiver is dropped.
pub fn follow<K: Watchable>(api: Api<K>, selected: watcher::Config) -> watch::Receiver<Seen<K>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, selected));
        let mut listed = BTreeMap::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = sender.closed() => return,
            };
            match event {
                Some(Ok(Event::Init)) => listed.clear(),
                Some(Ok(Event::InitApply(object))) => {
                    listed.insert(object.name_any(), object);
                }
                Some(Ok(Event::InitDone)) => {
                    sender.send_replace(Some(std::mem::take(&mut listed)));
                }
                Some(Ok(Event::Apply(object))) => {
                    sender.send_modify(|seen| {
                        seen.get_or_insert_default().insert(object.name_any(), object);
                    });
                }
                Some(Ok(Event::Delete(object))) => {
                    sender.send_modify(|seen| {
                        seen.get_or_insert_default().remove(&object.name_any());
                    });
                }
                Some(Err(_)) => tokio::time::sleep(REOPEN).await,
                None => return,
            }
        }
    });
    receiver
}

/// Waits until the named object, or its absence, is as asked for.
pub async fn object<K: Watchable>(
    api: Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>> {
    let selected = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let all = objects(api, selected, what, limit, |seen| holds(seen.get(name))).await?;
    Ok(all.into_values().next())
}

/// Waits until the object exists and is as asked for.
pub async fn present<K: Watchable>(
    api: Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    holds: impl Fn(&K) -> bool,
) -> Result<K> {
    object(api, name, what, limit, |seen| seen.is_some_and(&holds))
        .await?
        .with_context(|| format!("{name} is deleted"))
}

pub async fn gone<K: Watchable>(api: Api<K>, name: &str, what: &str, limit: Duration) -> Result<()> {
    object(api, name, what, limit, |seen| seen.is_none()).await.map(drop)
}

/// Waits until the selected objects together are as asked for.
pub async fn objects<K: Watchable>(
    api: Api<K>,
    selected: watcher::Config,
    what: &str,
    limit: Duration,
    holds: impl Fn(&BTreeMap<String, K>) -> bool,
) -> Result<BTreeMap<String, K>> {
    let mut followed = follow(api, selected);
    let reached = {
        let waiting = followed.wait_for(|seen| seen.as_ref().is_some_and(&holds));
        told(what, tokio::time::timeout(limit, waiting)).await.map(|seen| seen.map(|seen| seen.clone()))
    };
    match reached {
        Ok(seen) => Ok(seen.context("the watch ended")?.unwrap_or_default()),
        Err(_) => {
            bail!("timed out after {limit:?}: {what}; last seen: {}", describe(followed.borrow().as_ref()))
        }
    }
}

/// Asks again and again until the answer is yes. An error counts as "not yet" and is told at the end.
pub async fn until(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    let asking = async {
        loop {
            let answer = ask().await;
            if matches!(answer, Ok(true)) {
                return Ok(());
            }
            if began.elapsed() > limit {
                return match answer {
                    Err(error) => Err(error.context(format!("timed out after {limit:?}: {what}"))),
                    Ok(_) => bail!("timed out after {limit:?}: {what}"),
                };
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    told(what, asking).await
}

pub async fn pod_ready(api: Api<Pod>, name: &str, limit: Duration) -> Result<Pod> {
    present(api, name, &format!("pod {name} is ready"), limit, is_ready).await
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// How often the containers of a pod were started anew, all together.
pub fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// The statuses, which is where the answer to "why not?" usually stands.
fn describe<K: Serialize>(seen: Option<&BTreeMap<String, K>>) -> String {
    let Some(seen) = seen else { return "nothing, the API server did not respond".into() };
    if seen.is_empty() {
        return "no such object".into();
    }
    let status =
        |object: &K| serde_json::to_value(object).ok().and_then(|value| value.get("status").cloned());
    let statuses: BTreeMap<_, _> = seen.iter().map(|(name, object)| (name, status(object))).collect();
    serde_json::to_string(&statuses).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("it is a pod")
    }

    #[test]
    fn a_pod_that_goes_away_is_not_ready() {
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(is_ready(&pod(json!({"metadata": {"name": "a"}, "status": status}))));
        let leaving = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!is_ready(&pod(json!({"metadata": leaving, "status": status}))));
        assert!(!is_ready(&pod(json!({"metadata": {"name": "a"}}))));
    }

    #[test]
    fn the_last_state_is_told_by_status() {
        let seen = BTreeMap::from([(
            "a".to_owned(),
            pod(json!({"metadata": {"name": "a"}, "status": {"phase": "Pending"}})),
        )]);
        assert!(describe(Some(&seen)).contains("Pending"));
        assert_eq!(describe::<Pod>(Some(&BTreeMap::new())), "no such object");
    }

    #[tokio::test]
    async fn an_endless_no_ends_with_the_last_error() {
        let error = until("rain", Duration::ZERO, async || bail!("dry")).await.expect_err("it never rains");
        assert_eq!(format!("{error:#}"), "timed out after 0ns: rain: dry");
    }
}
