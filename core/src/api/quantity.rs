//! An amount as Kubernetes writes it: `500m`, `10Gi`, or a bare number such as `2`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Kept as it was written. Manifests say `cpu: 2` as often as `cpu: "2"`, and both have to be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Number(i64),
    Text(String),
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            // Said explicitly, because the schema rewriter makes every optional int-or-string nullable. The API
            // server keeps a null in a nullable field instead of filling in the default, and we cannot read that.
            "nullable": false,
            "pattern": r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
        })
    }
}
