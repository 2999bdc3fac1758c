//! An application like that of a user: it has the Secret for clients, and nothing else.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::{BACK_OFF_LIMIT, LIMIT};
use crate::{wait, workspace};

const EXAMPLE: &str = "examples/application.yaml";
const DEPLOYMENT: &str = "application";

/// Both are created at once, so the application waits for the cluster. The namespace enforces Pod Security "restricted".
pub async fn reads_and_writes(context: &Context) -> Result<()> {
    context.operator().await?;
    let (kubectl, within) = (context.kubectl(), ["--namespace", context.namespace.as_str()]);
    let file = workspace::root().join(EXAMPLE).display().to_string();
    kubectl.run(&[&within[..], &["apply", "-f", &file]].concat()).await?;
    let cluster = Operated::existing(context.client(), &context.namespace, "store", context.progress);
    cluster.wait_until_settled(3).await?;
    let deployments = Api::<Deployment>::namespaced(context.client().clone(), &context.namespace);
    let available = |it: &Deployment| it.status.as_ref().is_some_and(|it| it.available_replicas == Some(1));
    wait::present(deployments, DEPLOYMENT, "the application runs", BACK_OFF_LIMIT, available).await?;

    let of = |container: &'static str| ["logs", "deployment/application", "--container", container];
    let read = kubectl.run(&[&within[..], &of("read")].concat()).await?;
    ensure!(read.contains("greeting\nhello\n"), "it did not read what it wrote: {read:?}");
    let put = ["exec", "store-0", "-c", "etcd", "--", "etcdctl", "put", "greeting", "again"];
    let seen = async || {
        // Written again and again: the application might not watch yet.
        kubectl.run(&[&within[..], &put].concat()).await?;
        let watched = kubectl.run(&[&within[..], &of("watch")].concat()).await?;
        Ok(watched.contains("PUT\ngreeting\nagain\n"))
    };
    wait::until("the application sees a change", LIMIT, seen).await?;
    context.step("the application writes, reads and watches");
    Ok(())
}
