//! Runs the suite one test at a time, those that need the same testbed one after the other.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::json;
use testbed::cluster::{Config, Testbed};
use testbed::fault;
use testbed::image;

pub use crate::context::Context;
use crate::context::Up;
use crate::passed::Passed;
use crate::progress::Progress;
use crate::{evidence, plain, wait, workspace};

/// No test may hang the run.
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// How long the nodes may take to be ready again after a test.
const HEAL_LIMIT: Duration = Duration::from_secs(90);

/// What a test needs to be there when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Nothing is up: the test brings up and takes down what it wants.
    Bare,
    Up(Config),
}

pub type Run = for<'a> fn(&'a Context) -> LocalBoxFuture<'a, Result<()>>;

pub struct Test {
    pub name: &'static str,
    pub topology: Topology,
    pub smoke: bool,
    pub run: Run,
}

impl Topology {
    /// Part of the short selection that every change runs.
    pub fn smoke(&self, name: &'static str, run: Run) -> Test {
        Test { name, topology: self.clone(), smoke: true, run }
    }

    /// Only part of the full run.
    pub fn full(&self, name: &'static str, run: Run) -> Test {
        Test { name, topology: self.clone(), smoke: false, run }
    }
}

/// The testbed between two tests.
#[derive(Default)]
struct Session {
    up: Option<(Config, Up)>,
}

impl Session {
    /// The testbed as the test needs it. One that is up but different is replaced.
    async fn arrange(&mut self, topology: &Topology, progress: Progress) -> Result<Option<Up>> {
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
    async fn take_down(&mut self, progress: Progress) -> Result<()> {
        if let Ok(bed) = Testbed::attach() {
            let Config { nodes, dns } = bed.config();
            progress.step(format!("stopping the testbed with {nodes} node(s) and DNS profile {dns}"));
        }
        self.up = None;
        Testbed::down().await.context("cannot stop the testbed")
    }
}

/// Puts the tests in order and makes them trials of the test harness.
pub fn trials(tests: Vec<Test>, resume: bool) -> Result<Vec<Trial>> {
    let runtime = Arc::new(tokio::runtime::Runtime::new().context("cannot start the runtime")?);
    let session = Arc::new(Mutex::new(Session::default()));
    let passed = match Passed::load() {
        Err(error) if resume => return Err(error.context("cannot read which tests passed")),
        Err(_) => None, // Not a git tree: nothing can be remembered of it.
        Ok(passed) => Some(passed),
    };
    let passed = Arc::new(Mutex::new(passed));
    let trial = |test: Test| {
        let (runtime, session, passed) = (runtime.clone(), session.clone(), passed.clone());
        Trial::ignorable_test(test.name, move || {
            let mut passed = passed.lock().map_err(|_| "the record of passed tests is broken")?;
            if resume && passed.as_ref().is_some_and(|passed| passed.contains(test.name)) {
                return Ok(Completion::ignored_with("already passed for this source"));
            }
            let mut session = session.lock().map_err(|_| "the session is broken")?;
            let outcome = runtime.block_on(run_one(&test, &mut session));
            let recorded = passed.as_mut().map_or(Ok(()), |passed| passed.record(test.name, outcome.is_ok()));
            outcome.map_err(|error| Failed::from(format!("{error:#}")))?;
            recorded.map_err(|error| Failed::from(format!("{error:#}")))?;
            Ok(Completion::Completed)
        })
    };
    Ok(grouped(tests).into_iter().map(trial).collect())
}

/// Tests on a bare machine first, so that what is up at the end can stay; else in the order of first use.
fn grouped(tests: Vec<Test>) -> Vec<Test> {
    let mut groups: Vec<Vec<Test>> = vec![Vec::new()];
    for test in tests {
        let group = match &test.topology {
            Topology::Bare => groups.first_mut(),
            Topology::Up(_) => groups
                .iter_mut()
                .skip(1)
                .find(|group| group.first().is_some_and(|first| first.topology == test.topology)),
        };
        match group {
            Some(group) => group.push(test),
            None => groups.push(vec![test]),
        }
    }
    groups.into_iter().flatten().collect()
}

async fn run_one(test: &Test, session: &mut Session) -> Result<()> {
    let progress = Progress::start_below_name();
    evidence::clear(test.name);
    let arranged = session.arrange(&test.topology, progress).await;
    let (bed, namespace, outcome) = match arranged {
        Err(error) => (None, None, Err(error.context("cannot prepare the testbed"))),
        Ok(up) => {
            let bed = up.as_ref().map(|up| up.bed.clone());
            match enter(test, up, progress).await {
                Err(error) => (bed, None, Err(error)),
                Ok(context) => {
                    let outcome = guarded((test.run)(&context)).await;
                    (bed, context.cluster.is_some().then_some(context.namespace), outcome)
                }
            }
        }
    };
    let outcome = match outcome {
        Ok(()) => {
            evidence::clear(test.name);
            Ok(())
        }
        Err(error) => {
            let text = format!("{error:#}");
            let kept = evidence::collect(test.name, &text, bed.as_ref(), namespace.as_deref()).await;
            Err(match kept {
                Ok(directory) => anyhow!("{text}\nevidence: {}", workspace::shown(&directory)),
                Err(lost) => anyhow!("{text}\ncannot save evidence: {lost:#}"),
            })
        }
    };
    let Some(bed) = bed else { return outcome };
    let left = leave(&bed, namespace.as_deref()).await;
    if left.is_err() {
        session.up = None;
        let _ = Testbed::down().await;
    }
    outcome.and(left.context("the testbed did not recover after the test"))
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
    let Some(up) = up else {
        return Ok(Context { test: test.name, cluster: None, namespace: String::new(), progress });
    };
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
    Ok(Context { test: test.name, cluster: Some((up, client)), namespace: created.name_any(), progress })
}

/// Undoes what the test did. The namespace goes in its own time: the next test has another one.
async fn leave(bed: &Testbed, namespace: Option<&str>) -> Result<()> {
    fault::undo_all(bed).await?;
    let client = bed.client().await?;
    if let Some(name) = namespace {
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.delete(name, &DeleteParams::background()).await.context("cannot delete the namespace")?;
    }
    let all_ready = |nodes: &std::collections::BTreeMap<String, Node>| nodes.values().all(node_is_ready);
    wait::objects(Api::all(client), watcher::Config::default(), "all nodes are ready", HEAL_LIMIT, all_ready)
        .await
        .map(drop)
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
    use testbed::cluster::DnsProfile;

    use super::*;

    fn test(name: &'static str, topology: Topology) -> Test {
        Test { name, topology, smoke: false, run: |_| Box::pin(async { Ok(()) }) }
    }

    fn up(nodes: u8) -> Topology {
        Topology::Up(Config { nodes, dns: DnsProfile::Fast })
    }

    #[test]
    fn each_testbed_comes_up_once_and_a_bare_machine_comes_first() {
        let tests = vec![
            test("a", up(3)),
            test("b", up(1)),
            test("c", Topology::Bare),
            test("d", up(3)),
            test("e", up(1)),
        ];
        let order: Vec<_> = grouped(tests).into_iter().map(|test| test.name).collect();
        assert_eq!(order, ["c", "a", "d", "b", "e"]);
    }

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
