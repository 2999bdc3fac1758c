//! An admission webhook that runs on the machine, where an operator under development runs too.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use futures::FutureExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::layout::HOST_ADDRESS;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use super::LIMIT;
use crate::runner::Context;
use crate::wait;

const REFUSED: &str = "refused";
const REASON: &str = "not on my watch";

pub async fn decides(context: &Context) -> Result<()> {
    let listener = Listener::bind().await?;
    let url = format!("https://{}/", listener.address()?);
    let authority = listener.certificate.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let router = Router::new().route("/", post(async |body: String| answer(&body)));
        axum::serve(listener, router).with_graceful_shutdown(stopped.map(drop)).await
    });
    register(context, &url, authority).await?;

    let maps = Api::<ConfigMap>::namespaced(context.client().clone(), &context.namespace);
    let map = |name: &str| ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() },
        ..Default::default()
    };
    // The API server takes a moment to learn of a webhook; until then everything is let in.
    wait::until("the webhook rejects", LIMIT, async || {
        let dry = PostParams { dry_run: true, ..Default::default() };
        match maps.create(&dry, &map(REFUSED)).await {
            Err(kube::Error::Api(refusal)) if refusal.message.contains(REASON) => Ok(true),
            Err(error) => bail!("refused for another reason: {error}"),
            Ok(_) => Ok(false),
        }
    })
    .await?;
    context.step("the webhook rejects");
    maps.create(&PostParams::default(), &map("welcome")).await.context("the webhook must let this in")?;
    context.step("the webhook allows");
    // Its open connections answer until they end, too, not only until the listener does.
    drop(stop);
    timeout(LIMIT, server).await.context("the webhook does not stop")???;
    let unanswered = maps.create(&PostParams::default(), &map("late")).await;
    if unanswered.is_ok() {
        bail!("let in without the webhook");
    }
    Ok(())
}

/// Only for the test's own namespace, and gone with it.
async fn register(context: &Context, url: &str, authority: Vec<u8>) -> Result<()> {
    let namespace = Api::<Namespace>::all(context.client().clone()).get(&context.namespace).await?;
    let mut webhook: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {
            "name": context.namespace,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": context.namespace,
                                 "uid": namespace.metadata.uid}],
        },
        "webhooks": [{
            "name": "e2e.etcd.etcd.io", "clientConfig": {"url": url}, "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": context.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                       "operations": ["CREATE"]}],
        }],
    }))?;
    for hook in webhook.webhooks.iter_mut().flatten() {
        hook.client_config.ca_bundle = Some(ByteString(authority.clone()));
    }
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(context.client().clone());
    webhooks.create(&PostParams::default(), &webhook).await.context("cannot register the webhook")?;
    Ok(())
}

fn answer(body: &str) -> ([(axum::http::HeaderName, &'static str); 1], String) {
    let review: Value = serde_json::from_str(body).unwrap_or_default();
    let at = |path: &str| review.pointer(path).cloned().unwrap_or_default();
    let allowed = at("/request/name") != json!(REFUSED);
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": at("/request/uid"), "allowed": allowed, "status": {"message": REASON}},
    });
    ([(CONTENT_TYPE, "application/json")], answer.to_string())
}

/// TLS with a certificate for the machine's address on the bridge.
struct Listener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    /// PEM
    certificate: Vec<u8>,
}

impl Listener {
    async fn bind() -> Result<Self> {
        let signed = rcgen::generate_simple_self_signed([HOST_ADDRESS.to_string()])?;
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der())
            .map_err(|error| anyhow::anyhow!("not a key: {error}"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)?;
        Ok(Self {
            tcp: TcpListener::bind((HOST_ADDRESS, 0)).await.context("cannot listen on the bridge")?,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate: signed.cert.pem().into_bytes(),
        })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // Who does not finish the handshake is no client of ours.
            if let Ok((stream, address)) = self.tcp.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_name_is_refused() {
        let review = |name: &str| json!({"request": {"uid": "1", "name": name}}).to_string();
        let allowed = |name: &str| {
            let (_, answer) = answer(&review(name));
            serde_json::from_str::<Value>(&answer)
                .ok()
                .and_then(|v| v.pointer("/response/allowed")?.as_bool())
        };
        assert_eq!((allowed(REFUSED), allowed("other")), (Some(false), Some(true)));
    }
}
