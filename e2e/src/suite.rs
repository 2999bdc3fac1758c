//! All end-to-end tests, in one list.
//!
//! Each shows an effect and, where there is one, its undo. None asserts a time: limits are only there to end a wait.
//! Files in a folder of a group, such as `lifecycle/`, are for the tests of that group only (see [`crate::sources`]).

mod alerts;
mod auth;
mod backups;
mod disturbed;
mod documents;
mod elected;
mod image;
mod lifecycle;
mod membership_faults;
mod operator_faults;
mod rights;
mod rolls;
mod spread;
mod testbed;
mod tls;
mod uninstall;
mod user_guide;
mod volumes;

use std::time::Duration;

use ::testbed::cluster::{Config, DnsProfile};
use ::testbed::fault::Fault;

use crate::plain::CONTAINER;
use crate::runner::Context;
use crate::test::{Test, Topology};

/// For everything that usually takes seconds.
const LIMIT: Duration = Duration::from_secs(90);
/// For what may sit in a restart back-off before.
const BACK_OFF_LIMIT: Duration = Duration::from_secs(240);
const KEY: &str = "e2e/key";
const VALUE: &str = "written before the fault";

pub fn all() -> Vec<Test> {
    let field = Topology::Up(Config { nodes: 3, dns: DnsProfile::Field });
    [
        user_guide::tests(&field),
        documents::tests(&field),
        lifecycle::tests(&field),
        membership_faults::tests(&field),
        rolls::tests(&field),
        spread::tests(&field),
        volumes::tests(&field),
        tls::tests(&field),
        auth::tests(&field),
        backups::tests(&field),
        alerts::tests(&field),
        operator_faults::tests(&field),
        rights::tests(&field),
        image::tests(&field),
        uninstall::tests(&field),
        testbed::tests(&field),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The etcd in a pod of the test.
fn kill(context: &Context, pod: &str) -> Fault {
    Fault::KillProcess {
        pod: pod.into(),
        namespace: context.namespace.clone(),
        container: Some(CONTAINER.into()),
        process: Some("etcd".into()),
    }
}

fn pause(context: &Context, pod: &str) -> Fault {
    Fault::PauseProcess {
        pod: pod.into(),
        namespace: context.namespace.clone(),
        container: Some(CONTAINER.into()),
        process: Some("etcd".into()),
    }
}
