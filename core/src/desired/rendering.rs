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

/// The pods whose agent comes from another image than that of new pods, with its tag. They get the new one with their next
/// restart.
pub fn other_agents(objects: &Objects) -> BTreeMap<Ordinal, String> {
    let template = objects.set.as_ref().and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let Some(wanted) = template.and_then(agent_image) else { return BTreeMap::new() };
    let images = objects.pods.iter().filter_map(|(&it, pod)| Some((it, agent_image(pod.spec.as_ref()?)?)));
    let tag = |image: &str| image.rsplit_once(':').map_or(image, |(_, tag)| tag).to_owned();
    images.filter(|(_, image)| *image != wanted).map(|(ordinal, image)| (ordinal, tag(image))).collect()
}

fn agent_image(pod: &PodSpec) -> Option<&str> {
    let installer = pod.init_containers.iter().flatten().find(|it| it.name == INSTALLER);
    installer.and_then(|it| it.image.as_deref())
}
