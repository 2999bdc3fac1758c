//! The CustomResourceDefinitions as YAML; `config/crd/crds.yaml` is this text.

use etcd_operator_core::api;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write a CustomResourceDefinition as YAML")]
    Render(#[source] serde_saphyr::ser_error::Error),
}

pub fn yaml() -> Result<String, Error> {
    let mut text = String::from("# Generated from core/src/api by `make fix`.\n");
    for crd in api::definitions() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd).map_err(Error::Render)?);
    }
    Ok(text)
}
