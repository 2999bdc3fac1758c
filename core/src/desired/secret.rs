//! The Secrets with the certificates of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::metadata::metadata;
use crate::names::Names;
use crate::tls::Purpose;

/// With this content. It needs no valid spec: certificates are renewed while a user corrects one.
pub fn secret(
    purpose: Purpose,
    names: &Names,
    cluster_uid: &str,
    data: BTreeMap<String, ByteString>,
) -> Secret {
    Secret {
        metadata: metadata(names, cluster_uid, names.secret(purpose)),
        type_: Some("kubernetes.io/tls".into()),
        data: Some(data),
        ..Secret::default()
    }
}
