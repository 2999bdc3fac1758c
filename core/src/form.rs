//! What a member's pod is made from: what users chose, and not how this version of the operator renders it. A restart is
//! needed only where the form of a pod differs from the wanted one, so a new operator alone restarts nothing.

mod read;
mod record;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::api::{PodTemplate, Quantity};
use crate::desired::pod_security;
use crate::etcd_config::MemberOptions;
use crate::names::FORM_ANNOTATION;
use crate::tls::Transport;
use crate::version::Version;
pub use read::{adopts, member_config};
pub use record::{KEY, Record};

/// As fine as the API server keeps amounts in pods: thousandths, in billionths.
const FINEST: u128 = 1_000_000;
/// Far more than two forms of one cluster need to differ.
const DIGEST_BYTES: usize = 8;

/// A field that is added here must be left out where it is not set: otherwise every digest changes, and every member of
/// every cluster restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    #[serde(with = "as_text")]
    pub version: Version,
    pub repository: String,
    #[serde(default)]
    pub resources: ResourceRequirements,
    /// Heartbeat and election are always set.
    #[serde(default)]
    pub options: MemberOptions,
    /// Without labels and annotations, which change without a restart.
    #[serde(default)]
    pub pod: PodTemplate,
    /// The image of the container beside etcd, if there should be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_image: Option<String>,
    #[serde(default, skip_serializing_if = "Transport::is_plain")]
    pub transport: Transport,
}

/// Two forms with the same digest are the same, and so are two renderings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub String);

impl Digest {
    pub fn of(value: &Value) -> Self {
        let bytes = Sha256::digest(value.to_string());
        Self(bytes.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Digest {
    /// As pods and templates carry it; none on those of an operator that recorded no forms.
    pub fn on(metadata: &ObjectMeta) -> Option<Self> {
        metadata.annotations.as_ref()?.get(FORM_ANNOTATION).cloned().map(Self)
    }
}

/// What decisions need to know of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub form: Digest,
    pub version: Version,
    /// From [`Form::proof`].
    #[serde(default)]
    pub proof: Option<Digest>,
    /// The digest of the same form in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Digest>,
}

impl From<&Form> for Wanted {
    fn from(form: &Form) -> Self {
        let plain = Some(form.in_plain_text().digest());
        Self { form: form.digest(), version: form.version, proof: Some(form.proof()), plain }
    }
}

impl Form {
    pub fn image(&self) -> String {
        format!("{}:v{}", self.repository, self.version)
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical())
    }

    pub fn in_plain_text(&self) -> Self {
        Self { transport: Transport::default(), ..self.clone() }
    }

    /// The part of it that a preflight pod can prove: two forms with the same one need no second pod.
    pub fn proof(&self) -> Digest {
        let form = self.canonical();
        Digest::of(&PROVABLE.iter().map(|at| form.pointer(at).cloned()).collect())
    }

    /// The fields of an EtcdCluster in which two forms differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (this, other) = (self.canonical(), other.canonical());
        FIELDS
            .iter()
            .filter(|(_, at)| this.pointer(at) != other.pointer(at))
            .map(|(field, _)| *field)
            .collect()
    }

    /// What means the same is written in one way. Fields are in the order of their names.
    fn canonical(&self) -> Value {
        let mut form = self.clone();
        for amounts in [&mut form.resources.requests, &mut form.resources.limits] {
            amounts
                .iter_mut()
                .flat_map(BTreeMap::values_mut)
                .for_each(|amount| amount.0 = in_thousandths(amount));
        }
        form.pod.security_context = form.pod.security_context.and_then(chosen);
        serde_json::to_value(form).unwrap_or_default()
    }
}

/// Where a field of an EtcdCluster is in a form.
const FIELDS: [(&str, &str); 19] = [
    ("spec.version", "/version"),
    ("spec.repository", "/repository"),
    ("spec.options.quotaBackendBytes", "/options/quotaBackendBytes"),
    ("spec.options.autoCompactionMode", "/options/autoCompaction"),
    ("spec.options.snapshotCount", "/options/snapshotCount"),
    ("spec.options.heartbeatIntervalMilliseconds", "/options/heartbeatIntervalMilliseconds"),
    ("spec.options.electionTimeoutMilliseconds", "/options/electionTimeoutMilliseconds"),
    ("spec.options.extraArguments", "/options/extraArguments"),
    ("spec.resources.requests", "/resources/requests"),
    ("spec.resources.limits", "/resources/limits"),
    ("spec.podTemplate.nodeSelector", "/pod/nodeSelector"),
    ("spec.podTemplate.tolerations", "/pod/tolerations"),
    ("spec.podTemplate.affinity", "/pod/affinity"),
    ("spec.podTemplate.topologySpreadConstraints", "/pod/topologySpreadConstraints"),
    ("spec.podTemplate.priorityClassName", "/pod/priorityClassName"),
    ("spec.podTemplate.imagePullSecrets", "/pod/imagePullSecrets"),
    ("spec.podTemplate.securityContext", "/pod/securityContext"),
    ("spec.debugSidecar", "/debugImage"),
    ("spec.security.tls", "/transport"),
];

/// What a preflight pod has in common with the pods of members.
const PROVABLE: [&str; 6] = [
    "/version",
    "/repository",
    "/options",
    "/pod/imagePullSecrets",
    "/pod/securityContext",
    "/pod/priorityClassName",
];

/// `1` and `1000m` are the same amount, and the API server writes each in its own way.
fn in_thousandths(amount: &Amount) -> String {
    let nano = Quantity::Text(amount.0.clone()).nano();
    nano.map_or_else(|| amount.0.clone(), |nano| format!("{}m", nano.div_ceil(FINEST)))
}

/// What is left of a security context without what every pod has; none if it is what a pod has without one.
fn chosen(own: PodSecurityContext) -> Option<PodSecurityContext> {
    let (rendered, bare) = (pod_security(Some(&own)), pod_security(Some(&PodSecurityContext::default())));
    if rendered == pod_security(None) {
        return None;
    }
    Some(PodSecurityContext {
        run_as_non_root: own.run_as_non_root.filter(|it| Some(*it) != bare.run_as_non_root),
        fs_group_change_policy: own
            .fs_group_change_policy
            .clone()
            .filter(|it| Some(it) != bare.fs_group_change_policy.as_ref()),
        seccomp_profile: own.seccomp_profile.clone().filter(|it| Some(it) != bare.seccomp_profile.as_ref()),
        ..own
    })
}

/// A version as users write it.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::version::Version;

    pub fn serialize<S: Serializer>(version: &Version, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(version)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Version, D::Error> {
        let text = String::deserialize(from)?;
        Version::parse(&text).ok_or_else(|| Error::custom(format!("{text} is no version")))
    }
}

#[cfg(test)]
mod tests;
