//! One test, from its namespace to the time when nothing is left of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::cluster::{Config, Testbed};
use testbed::fault::{self, Undo};
use testbed::image;

use crate::context::{Context, Up};
use crate::operated::becomes_quiet;
use crate::progress::Progress;
use crate::test::{About, Sharing, Test, Topology};
use crate::{evidence, plain, wait, workspace};

/// No test may hang the run. Those that wait for clients to read other certificates, and for Secrets to be read again, take
/// more than ten minutes.
const TEST_LIMIT: Duration = Duration::from_secs(1200);
/// How long the nodes may take to be ready again after a test.
const HEAL_LIMIT: Duration = Duration::from_secs(90);

/// The testbed between two tests.
#[derive(Default)]
pub struct Session {
    up: Option<(Config, Up)>,
}

impl Session {
    /// The testbed as the test needs it. One that is up but different is replaced. Nothing may run.
    pub async fn arrange(&mut self, topology: &Topology) -> Result<Option<Up>> {
        let progress = Progress::start();
        let Topology::Up(wanted) = topology else {
            self.take_down(progress).await?;
            return Ok(None);
        };
        if let Some((config, up)) = &self.up
            && config == wanted
        {
            return Ok(Some(up.clone()));
        }
        if Testbed::attach().is_ok_and(|bed| bed.config() != wanted) {
            self.take_down(progress).await?;
        }
        self.up = None;
        let bed = Testbed::up(wanted.clone()).await?;
        // A run that was interrupted may have left some.
        fault::undo_all(&bed).await?;
        image::ensure_etcd(plain::VERSION).await?;
        progress.step(format!("testbed: {} node(s), DNS profile {}", wanted.nodes, wanted.dns));
        let up = Up { bed, operator: Arc::default() };
        self.up = Some((wanted.clone(), up.clone()));
        Ok(Some(up))
    }

    /// Also one that somebody else brought up: there is room for one. It is said, so that nobody wonders.
    pub async fn take_down(&mut self, progress: Progress) -> Result<()> {
        if let Ok(bed) = Testbed::attach() {
            let Config { nodes, dns } = bed.config();
            progress.step(format!("stopping the testbed with {nodes} node(s) and DNS profile {dns}"));
        }
        self.up = None;
        Testbed::down().await.context("cannot stop the testbed")
    }
}

/// How a test ended, and whether the testbed can be used by the next one.
pub struct Outcome {
    pub result: Result<()>,
    pub testbed_is_usable: bool,
}

impl Outcome {
    /// Of a test that could not begin, or whose end is unknown.
    pub fn failed(error: anyhow::Error) -> Self {
        Self { result: Err(error), testbed_is_usable: false }
    }
}

pub async fn run(test: &Test, up: Option<Up>) -> Outcome {
    let progress = Progress::start();
    evidence::clear(test.name);
    let bed = up.as_ref().map(|up| up.bed.clone());
    let context = match enter(test, up, progress).await {
        Err(error) => return Outcome::failed(error),
        Ok(context) => context,
    };
    let outcome = guarded(run_and_rest(test, &context)).await;
    let namespace = context.cluster.is_some().then_some(context.namespace.as_str());
    let outcome = match outcome {
        Ok(()) => {
            evidence::clear(test.name);
            Ok(())
        }
        Err(error) => {
            let text = format!("{error:#}");
            let kept = evidence::collect(test.name, &text, bed.as_ref(), namespace).await;
            Err(match kept {
                Ok(directory) => anyhow!("{text}\nevidence: {}", workspace::shown(&directory)),
                Err(lost) => anyhow!("{text}\ncannot save evidence: {lost:#}"),
            })
        }
    };
    let Some(bed) = bed else { return Outcome { result: outcome, testbed_is_usable: true } };
    let left = leave(test, &bed, &context).await;
    let testbed_is_usable = left.is_ok();
    Outcome {
        result: outcome.and(left.context("the testbed did not recover after the test")),
        testbed_is_usable,
    }
}

/// A test of the operator ends when nothing happens any more to what it leaves behind.
async fn run_and_rest(test: &Test, context: &Context) -> Result<()> {
    (test.run)(context).await?;
    match &context.cluster {
        Some((_, client)) if test.about != About::Testbed => becomes_quiet(client, &context.namespace).await,
        _ => Ok(()),
    }
}

/// A panic is a failure like any other: faults must be undone after it too.
async fn guarded(work: impl Future<Output = Result<()>>) -> Result<()> {
    let limited = tokio::time::timeout(TEST_LIMIT, work);
    match AssertUnwindSafe(limited).catch_unwind().await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("timed out after {TEST_LIMIT:?}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(anyhow!("panicked: {}", text.unwrap_or("without a message")))
        }
    }
}

async fn enter(test: &Test, up: Option<Up>, progress: Progress) -> Result<Context> {
    let context = |cluster, namespace| Context {
        test: test.name,
        cluster,
        namespace,
        progress,
        injected: RefCell::default(),
    };
    let Some(up) = up else { return Ok(context(None, String::new())) };
    let client = up.bed.client().await?;
    let namespace: Namespace = serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{}-", slug(test.name)),
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }))?;
    let created = Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .context("cannot create the test's namespace")?;
    Ok(context(Some((up, client)), created.name_any()))
}

/// Undoes what the test did. The namespace goes in its own time: the next test has another one.
async fn leave(test: &Test, bed: &Testbed, context: &Context) -> Result<()> {
    match test.sharing {
        // Others may have faults of their own in effect.
        Sharing::Shared => undo_own(bed, context).await?,
        Sharing::Exclusive => fault::undo_all(bed).await.map(drop)?,
    }
    let client = bed.client().await?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let deleted = namespaces.delete(&context.namespace, &DeleteParams::background()).await;
    deleted.context("cannot delete the namespace")?;
    let all_ready = |nodes: &BTreeMap<String, Node>| nodes.values().all(node_is_ready);
    wait::objects(Api::all(client), watcher::Config::default(), "all nodes are ready", HEAL_LIMIT, all_ready)
        .await
        .map(drop)
}

async fn undo_own(bed: &Testbed, context: &Context) -> Result<()> {
    for injected in context.injected.take().iter().rev() {
        if matches!(injected.fault.kind().undo(), Undo::Restores(_)) {
            injected.undo(bed).await?;
        }
    }
    Ok(())
}

pub fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A name that Kubernetes takes, from the end of the test's name.
fn slug(name: &str) -> String {
    let last = name.rsplit("::").next().unwrap_or(name);
    let text: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    text.trim_matches('-').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_can_be_named_after_any_test() {
        assert_eq!(slug("faults::a_killed_process_comes_back"), "a-killed-process-comes-back");
        let long = slug("volumes::a_name_that_is_much_longer_than_kubernetes_would_ever_let_us_have");
        assert!(long.len() <= 40 && !long.ends_with('-'), "{long}");
    }

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let outcome = guarded(async { panic!("out of luck") }).await;
        assert_eq!(outcome.expect_err("failed").to_string(), "panicked: out of luck");
    }
}
