//! Rules about who can connect.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{Rule, Server, syntax};
use crate::api::EtcdClusterSpec;

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[Rule {
    at: "security.networkPolicy.clientSelector",
    server: Server::Nothing,
    message: "must be a label selector: keys such as example.org/name, values of at most 63 letters, digits, dots, dashes \
        and underscores, and operators In and NotIn with values, Exists and DoesNotExist without",
    broken: |spec| {
        let policy = spec.security.network_policy.as_ref();
        policy.and_then(|it| it.client_selector.as_ref()).is_some_and(|it| !is_selector(it))
    },
}];

fn is_selector(LabelSelector { match_labels, match_expressions }: &LabelSelector) -> bool {
    let is_label = |(key, value): (&String, &String)| syntax::is_key(key) && syntax::is_label_value(value);
    match_labels.iter().flatten().all(is_label) && match_expressions.iter().flatten().all(is_requirement)
}

fn is_requirement(LabelSelectorRequirement { key, operator, values }: &LabelSelectorRequirement) -> bool {
    let values = values.as_deref().unwrap_or_default();
    let takes_these = match operator.as_str() {
        "In" | "NotIn" => !values.is_empty() && values.iter().all(|it| syntax::is_label_value(it)),
        "Exists" | "DoesNotExist" => values.is_empty(),
        _ => false,
    };
    syntax::is_key(key) && takes_these
}
