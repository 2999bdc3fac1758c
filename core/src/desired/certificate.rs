//! In which the operator asks cert-manager for the certificate of the client port.

use kube::core::{DynamicObject, TypeMeta};
use serde_json::json;

use super::Desired;
use crate::tls::{Profile, certificate_resource, certificate_spec};

impl Desired<'_> {
    /// None if the certificate has another source.
    pub fn certificate(&self, profile: &Profile) -> Option<DynamicObject> {
        let spec = certificate_spec(profile, profile.source.issuer()?, &self.names.issued());
        let resource = certificate_resource();
        Some(DynamicObject {
            types: Some(TypeMeta { api_version: resource.api_version, kind: resource.kind }),
            metadata: self.metadata(self.names.issued()),
            data: json!({"spec": spec}),
        })
    }
}
