//! The form that a pod template was rendered from: for members that were created before forms were recorded, and for a
//! template whose form nobody recorded yet.

use k8s_openapi::api::core::v1::{Container, PodSecurityContext, PodSpec, PodTemplateSpec};

use super::Form;
use crate::agent::environment;
use crate::api::PodTemplate;
use crate::desired::{ETCD, SIDECAR, is_default_spreading, pod_security, stay_on_lost_nodes};
use crate::etcd_config::MemberConfig;
use crate::version::Version;

impl Form {
    /// None for a template that is not ours.
    pub fn read(template: &PodTemplateSpec) -> Option<Self> {
        let spec = template.spec.as_ref()?;
        let container = |name: &str| spec.containers.iter().find(|it| it.name == name);
        let etcd = container(ETCD)?;
        let (repository, version) = etcd.image.as_deref()?.rsplit_once(":v")?;
        let ours = stay_on_lost_nodes();
        let tolerations =
            spec.tolerations.iter().flatten().filter(|it| !ours.contains(it)).cloned().collect();
        let spreading = spec.topology_spread_constraints.clone().unwrap_or_default();
        let pod = PodTemplate {
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            tolerations,
            affinity: spec.affinity.clone(),
            topology_spread_constraints: if is_default_spreading(&spreading) {
                Vec::new()
            } else {
                spreading
            },
            priority_class_name: spec.priority_class_name.clone(),
            image_pull_secrets: spec.image_pull_secrets.clone().unwrap_or_default(),
            security_context: spec.security_context.clone().and_then(own),
            ..PodTemplate::default()
        };
        let config = config(etcd)?;
        Some(Self {
            version: Version::parse(version)?,
            repository: repository.to_owned(),
            resources: etcd.resources.clone().unwrap_or_default(),
            options: config.options,
            pod,
            debug_image: container(SIDECAR).and_then(|it| it.image.clone()),
            transport: config.transport,
        })
    }
}

/// The previous cluster whose volumes the members of this template were allowed to adopt.
pub fn adopts(template: &PodTemplateSpec) -> Option<String> {
    member_config(template.spec.as_ref()?)?.adopts
}

/// What the member of a pod is configured with.
pub fn member_config(spec: &PodSpec) -> Option<MemberConfig> {
    config(spec.containers.iter().find(|it| it.name == ETCD)?)
}

fn config(etcd: &Container) -> Option<MemberConfig> {
    let variable = etcd.env.iter().flatten().find(|it| it.name == environment::CONFIG)?;
    serde_json::from_str(variable.value.as_deref()?).ok()
}

/// None if users chose nothing.
fn own(rendered: PodSecurityContext) -> Option<PodSecurityContext> {
    (rendered != pod_security(None)).then_some(rendered)
}
