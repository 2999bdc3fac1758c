//! How a form is rendered: another version of the operator renders it in another way, and users choose labels and
//! annotations that are no part of it. The template then changes without a restart, and pods get it with their next one.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde_json::json;

use super::Desired;
use super::pod::INSTALLER;
use crate::form::{Digest, Form, adopts};
use crate::names::RENDERING_ANNOTATION;
use crate::observe::Objects;
use crate::observed::Ordinal;

/// With the digest of all of it.
pub(super) fn marked(mut template: PodTemplateSpec) -> PodTemplateSpec {
    let digest = Digest::of(&json!(template)).to_string();
    let metadata = template.metadata.get_or_insert_default();
    metadata.annotations.get_or_insert_default().insert(RENDERING_ANNOTATION.into(), digest);
    template
}

impl Desired<'_> {
    /// Whether the template of this StatefulSet, which has this form, was rendered as it would be now.
    pub fn is_rendered(&self, set: &StatefulSet, form: &Form) -> bool {
        let there = set.spec.as_ref().map(|spec| &spec.template);
        let wanted = self.template(form, there.and_then(adopts));
        there.is_some_and(|there| rendering(there).is_some() && rendering(there) == rendering(&wanted))
    }
}

fn rendering(template: &PodTemplateSpec) -> Option<&String> {
    template.metadata.as_ref()?.annotations.as_ref()?.get(RENDERING_ANNOTATION)
}

/// The agent in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAgent {
    /// The tag of its image.
    pub version: String,
    /// New pods get another one, and this pod with its next restart.
    pub outdated: bool,
}

pub fn agents(objects: &Objects) -> BTreeMap<Ordinal, PodAgent> {
    let template = objects.set.as_ref().and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let of_new_pods = template.and_then(agent_image);
    let tag = |image: &str| image.rsplit_once(':').map_or(image, |(_, tag)| tag).to_owned();
    let agent = |image: &str| PodAgent {
        version: tag(image),
        outdated: of_new_pods.is_some_and(|of_new_pods| of_new_pods != image),
    };
    let images = objects.pods.iter().filter_map(|(&it, pod)| Some((it, agent_image(pod.spec.as_ref()?)?)));
    images.map(|(ordinal, image)| (ordinal, agent(image))).collect()
}

fn agent_image(pod: &PodSpec) -> Option<&str> {
    let installer = pod.init_containers.iter().flatten().find(|it| it.name == INSTALLER);
    installer.and_then(|it| it.image.as_deref())
}
