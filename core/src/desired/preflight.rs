//! The pod that tries a form: on the node of a member it runs etcd with the arguments of that member and `--version`, which
//! makes etcd check all of them and start nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Desired;
use super::pod::{ETCD, container_security, pod_security, small_resources, tolerations};
use crate::agent::path;
use crate::etcd_config::{InitialState, LocalConfig, arguments};
use crate::names::{FIELD_MANAGER, PREFLIGHT_LABEL, PROOF_ANNOTATION};
use crate::observed::Ordinal;

/// A large image takes minutes on a slow line, and etcd a second then.
const DEADLINE_SECONDS: i64 = 600;

impl Desired<'_> {
    /// None for arguments that no version accepts, which no valid spec has.
    ///
    /// It names its node, so no scheduler is asked: whether a member could be placed there again is another question, and
    /// one on a cordoned node would never be answered. The kubelet still checks the resources. Its labels match no selector
    /// of members, and its end needs no confirmation by a kubelet that might be down.
    pub fn preflight(&self, ordinal: Ordinal, node: &str) -> Option<Pod> {
        let form = &self.intent.form;
        let template = &form.pod;
        let labels = [
            ("app.kubernetes.io/name", "etcd-preflight"),
            ("app.kubernetes.io/managed-by", FIELD_MANAGER),
            (PREFLIGHT_LABEL, &self.names.cluster),
        ];
        let metadata = ObjectMeta {
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            annotations: Some(BTreeMap::from([(PROOF_ANNOTATION.into(), form.proof().to_string())])),
            ..self.metadata(self.names.preflight(ordinal))
        };
        let etcd = Container {
            name: ETCD.into(),
            image: Some(form.image()),
            command: Some(vec![ETCD.into()]),
            args: Some(self.arguments(ordinal)?),
            resources: Some(small_resources()),
            security_context: Some(container_security()),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        };
        let spec = PodSpec {
            node_name: Some(node.into()),
            containers: vec![etcd],
            restart_policy: Some("Never".into()),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            termination_grace_period_seconds: Some(0),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(pod_security(template.security_context.as_ref())),
            tolerations: Some(tolerations(template)),
            priority_class_name: template.priority_class_name.clone(),
            image_pull_secrets: Some(template.image_pull_secrets.clone())
                .filter(|secrets| !secrets.is_empty()),
            ..PodSpec::default()
        };
        Some(Pod { metadata, spec: Some(spec), status: None })
    }

    /// As the agent in this member's pod starts etcd.
    fn arguments(&self, ordinal: Ordinal) -> Option<Vec<String>> {
        let local = LocalConfig {
            name: self.names.pod(ordinal),
            host: self.names.pod_host(ordinal),
            listen: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            data_dir: format!("{}/{}", path::VOLUME, path::DATA),
            tls_dir: path::TLS.into(),
        };
        let config = self.member_config(&self.intent.form, None);
        let mut arguments = arguments(&config, &local, InitialState::Known { compares: true }).ok()?;
        arguments.push("--version".into());
        Some(arguments)
    }
}
