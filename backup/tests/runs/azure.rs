//! Azure, by Microsoft's own emulator. It needs Node.js, so `make test` does not run it: `docs/testbed.md` says how to.

use etcd_operator_core::backup::report::{Done, Reason};
use object_store::ClientOptions;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use serde_json::json;

use crate::cluster::{Cluster, VERSION};
use crate::program::Place;
use crate::stores::comes_back;

/// Every Azurite has this account.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The program has no verb for it: whoever owns the account does this.
async fn create(endpoint: &str, container: &str) {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = http::Method::PUT;
    *request.uri_mut() = format!("{endpoint}/{container}?restype=container").parse().expect("a URL");
    request.headers_mut().insert(http::header::CONTENT_LENGTH, http::HeaderValue::from_static("0"));
    let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).expect("a key"));
    AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).expect("a signature");
    let options = ClientOptions::new().with_allow_http(true);
    let client = ReqwestConnector::default().connect(&options).expect("a client");
    let response = client.execute(request).await.expect("a response");
    assert!(response.status().is_success(), "{response:?}");
}

#[tokio::test]
#[ignore = "needs Azurite and AZURITE_ENDPOINT, see docs/testbed.md"]
async fn azure_is_a_store_too() {
    let endpoint =
        std::env::var("AZURITE_ENDPOINT").expect("such as http://127.0.0.1:10000/devstoreaccount1");
    let container = format!("backups-{}", std::process::id());
    create(&endpoint, &container).await;
    let cluster = Cluster::start(VERSION, 1).await;
    let mut place = Place::azure(&endpoint, &container, ACCOUNT, KEY);
    assert_eq!(place.done(&["probe"]).await, Done::Probe { conditional_puts: true });
    let copy = comes_back(&mut place, &cluster).await;

    // More than one part.
    cluster.fill(20).await;
    place.set("recipients", json!([]));
    let large = place.take().await;
    assert!(large.bytes > 20 << 20, "{large:?}");
    let verified = place.done(&["verify", large.name.as_str()]).await;
    assert_eq!(verified, Done::Verify { name: large.name.clone(), content: true });
    place.set("retention", json!({"maxCopies": 1}));
    let pruned = place.done(&["prune"]).await;
    let deleted = vec![copy.name];
    let expected = Done::Prune {
        deleted,
        deleted_count: 1,
        kept: 1,
        unreadable: 0,
        without_manifest: 0,
        segments_deleted: 0,
    };
    assert_eq!(pruned, expected);
    place.done(&["delete", large.name.as_str()]).await;
    assert_eq!(place.list().await, []);

    place.set_environment("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=");
    place.refused(&["probe"], Reason::StoreDenied).await;
    place.set_environment("AZURE_STORAGE_ACCOUNT_KEY", KEY);
    place.set_store("container", "other");
    let message = place.refused(&["probe"], Reason::StoreRejected).await;
    assert!(message.contains("the store responds ContainerNotFound: "), "{message}");
}
