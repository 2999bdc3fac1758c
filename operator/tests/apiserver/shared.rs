//! What tests share: a control plane, one on which an operator works, and the runtime that both live in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use testbed::api_only::ApiOnly;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::installed;
use crate::operated::Operated;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// Each is started by the first test that asks for it.
static BARE: Mutex<Option<Arc<ApiOnly>>> = Mutex::const_new(None);
static OPERATED: Mutex<Option<Arc<Operated>>> = Mutex::const_new(None);

const LIMIT: Duration = Duration::from_secs(60);

pub fn block_on(test: impl Future<Output = ()>) {
    RUNTIME.block_on(test);
}

/// Ends what is shared: an operator that panicked meanwhile shows here.
pub fn end() {
    block_on(async {
        drop(BARE.lock().await.take());
        let operated = OPERATED.lock().await.take();
        if let Some(operated) = operated.and_then(Arc::into_inner) {
            drop(operated.stop().await);
        }
    });
}

/// A control plane without an operator.
pub async fn bare() -> Arc<ApiOnly> {
    let mut bare = BARE.lock().await;
    if bare.is_none() {
        *bare = Some(Arc::new(installed().await));
    }
    Arc::clone(bare.as_ref().expect("it was just started"))
}

/// A control plane with an operator.
pub async fn operated() -> Arc<Operated> {
    let mut operated = OPERATED.lock().await;
    if operated.is_none() {
        *operated = Some(Arc::new(Operated::start().await));
    }
    Arc::clone(operated.as_ref().expect("it was just started"))
}

/// A namespace in which pods can be created.
pub async fn namespace(client: &Client) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("it is new");
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &name);
    let there = |it: Option<&ServiceAccount>| it.is_some();
    let waiting = tokio::time::timeout(LIMIT, await_condition(accounts, "default", there)).await;
    waiting.expect("it appears").expect("the watch goes on");
    name
}
