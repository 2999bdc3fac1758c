//! Rules about the pods of the members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSecurityContext;

use super::{Rule, Server, syntax};
use crate::api::{EtcdClusterSpec, PodTemplate};

/// Labels by which we, the StatefulSet and the Services know the pods.
const OWNED_LABELS: [&str; 7] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
];

const OWNED_PREFIX: &str = "etcd.etcd.io/";

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "podTemplate.labels",
        server: Server::CelFrom(|| {
            let names = OWNED_LABELS.map(|label| format!("'{label}'")).join(", ");
            format!("!self.exists(key, key.startsWith('{OWNED_PREFIX}') || key in [{names}])")
        }),
        message: "the operator sets these labels (etcd.etcd.io/*, app.kubernetes.io/name, instance, component \
            and managed-by, and those of the StatefulSet): use other keys",
        broken: |spec| labels(spec).any(|(key, _)| is_owned_label(key)),
    },
    Rule {
        at: "podTemplate.labels",
        server: Server::Schema,
        message: "must be at most 64 labels; a value has at most 63 letters, digits, dots, dashes and \
            underscores, and a letter or digit at both ends",
        broken: |spec| labels(spec).count() > 64 || labels(spec).any(|(_, it)| !syntax::is_label_value(it)),
    },
    Rule {
        at: "podTemplate.labels",
        server: Server::Nothing,
        message: "keys must look like example.org/name, with at most 63 characters after the slash",
        broken: |spec| labels(spec).any(|(key, _)| !syntax::is_key(key)),
    },
    Rule {
        at: "podTemplate.annotations",
        server: Server::Cel("!self.exists(key, key.startsWith('etcd.etcd.io/'))"),
        message: "the operator sets the annotations under etcd.etcd.io/: use other keys",
        broken: |spec| annotations(spec).any(|(key, _)| is_owned_annotation(key)),
    },
    Rule {
        at: "podTemplate.annotations",
        server: Server::Schema,
        message: "must be at most 64 annotations",
        broken: |spec| annotations(spec).count() > 64,
    },
    Rule {
        at: "podTemplate.annotations",
        server: Server::Nothing,
        message: "keys must look like example.org/name, with at most 63 characters after the slash",
        broken: |spec| annotations(spec).any(|(key, _)| !syntax::is_key(key)),
    },
    Rule {
        at: "podTemplate.nodeSelector",
        server: Server::Schema,
        message: "must be at most 64 labels; a value has at most 63 letters, digits, dots, dashes and \
            underscores, and a letter or digit at both ends",
        broken: |spec| {
            node_selector(spec).count() > 64 || node_selector(spec).any(|(_, it)| !syntax::is_label_value(it))
        },
    },
    Rule {
        at: "podTemplate.nodeSelector",
        server: Server::Nothing,
        message: "keys must look like example.org/name, with at most 63 characters after the slash",
        broken: |spec| node_selector(spec).any(|(key, _)| !syntax::is_key(key)),
    },
    Rule {
        at: "podTemplate.securityContext",
        server: Server::Cel(
            "(!has(self.runAsNonRoot) || self.runAsNonRoot) && \
             (!has(self.runAsUser) || self.runAsUser > 0 && self.runAsUser <= 2147483647)",
        ),
        message: "etcd must not run as root: remove runAsNonRoot or set it to true, and remove runAsUser or set it to \
            1 to 2147483647",
        broken: |spec| {
            context(spec).is_some_and(|it| {
                it.run_as_non_root == Some(false)
                    || it.run_as_user.is_some_and(|user| !(1..=i64::from(i32::MAX)).contains(&user))
            })
        },
    },
    Rule {
        at: "podTemplate.securityContext",
        server: Server::Cel("!has(self.seccompProfile) || self.seccompProfile.type != 'Unconfined'"),
        message: "seccompProfile.type must be RuntimeDefault or Localhost: Pod Security restricted rejects Unconfined",
        broken: |spec| {
            let profile = context(spec).and_then(|it| it.seccomp_profile.as_ref());
            profile.is_some_and(|it| it.type_ == "Unconfined")
        },
    },
    Rule {
        at: "podTemplate.securityContext",
        server: Server::Cel("!has(self.windowsOptions)"),
        message: "etcd runs on Linux nodes: remove windowsOptions",
        broken: |spec| context(spec).is_some_and(|it| it.windows_options.is_some()),
    },
];

pub(crate) fn is_owned_label(key: &str) -> bool {
    key.starts_with(OWNED_PREFIX) || OWNED_LABELS.contains(&key)
}

pub(crate) fn is_owned_annotation(key: &str) -> bool {
    key.starts_with(OWNED_PREFIX)
}

fn context(spec: &EtcdClusterSpec) -> Option<&PodSecurityContext> {
    spec.pod_template.as_ref()?.security_context.as_ref()
}

fn labels(spec: &EtcdClusterSpec) -> impl Iterator<Item = (&String, &String)> {
    entries(spec, |template| &template.labels)
}

fn annotations(spec: &EtcdClusterSpec) -> impl Iterator<Item = (&String, &String)> {
    entries(spec, |template| &template.annotations)
}

fn node_selector(spec: &EtcdClusterSpec) -> impl Iterator<Item = (&String, &String)> {
    entries(spec, |template| &template.node_selector)
}

fn entries(
    spec: &EtcdClusterSpec,
    of: fn(&PodTemplate) -> &BTreeMap<String, String>,
) -> impl Iterator<Item = (&String, &String)> {
    spec.pod_template.iter().flat_map(of)
}
