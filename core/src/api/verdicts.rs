//! What an edit of each field of an EtcdCluster does to a cluster that runs. `docs/api.md` shows it.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It takes effect without a restart.
    Live,
    /// Members restart with it, one at a time.
    Rolling,
    /// Members are replaced, one at a time.
    Replaced,
    /// The API server rejects it.
    Immutable,
    /// It changes nothing.
    None,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::Rolling => "rolling",
            Self::Replaced => "replaced",
            Self::Immutable => "immutable",
            Self::None => "none",
        })
    }
}

impl Verdict {
    pub const ALL: [Self; 5] = [Self::Live, Self::Rolling, Self::Replaced, Self::Immutable, Self::None];

    /// What users can expect.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Live => "the edit takes effect without a restart",
            Self::Rolling => {
                "the operator restarts the members with the edit, one at a time; several edits together cost one restart"
            }
            Self::Replaced => {
                "the operator replaces the members one at a time: each new one receives its data from the others"
            }
            Self::Immutable => {
                "the API server rejects the edit. Before Kubernetes 1.25 it accepts the edit; the operator then changes \
                 nothing and reports the field (`NotRolledOut`)"
            }
            Self::None => "the edit is accepted and has no effect",
        }
    }
}

/// One field, what an edit of it does, and how or why.
#[derive(Clone, Copy, Debug)]
pub struct FieldVerdict {
    /// Below the spec.
    pub field: &'static str,
    pub verdict: Verdict,
    pub note: &'static str,
}

const fn live(field: &'static str, note: &'static str) -> FieldVerdict {
    FieldVerdict { field, verdict: Verdict::Live, note }
}

const fn rolling(field: &'static str) -> FieldVerdict {
    FieldVerdict { field, verdict: Verdict::Rolling, note: "" }
}

const fn replaced(field: &'static str, note: &'static str) -> FieldVerdict {
    FieldVerdict { field, verdict: Verdict::Replaced, note }
}

const fn immutable(field: &'static str, note: &'static str) -> FieldVerdict {
    FieldVerdict { field, verdict: Verdict::Immutable, note }
}

const fn without_effect(field: &'static str, note: &'static str) -> FieldVerdict {
    FieldVerdict { field, verdict: Verdict::None, note }
}

const PATCHED: &str = "on running pods, too";
const VOLUMES_EXIST: &str = "the volumes exist already";
const OWN_CERTIFICATES: &str = "the operator issues what no other source gives";
const OTHER_AUTHORITY: &str = "the operator copies the certificate; members restart one at a time if they do not trust its authority yet";
const CONSENTED: &str = "only while the quorum is lost";
const REISSUED: &str = "the operator issues the certificate of the client port again";

pub const VERDICTS: [FieldVerdict; 58] = [
    rolling("debugSidecar.image"),
    live("externalAccess.nodePort.port", "the Service changes"),
    live("maintenance.consistencyCheck.intervalSeconds", "from the next comparison on"),
    live("maintenance.defragmentation.minFragmentationPercent", "from the next step on"),
    live("maintenance.defragmentation.minSizeBytes", "from the next step on"),
    live("maintenance.windows", "from the next step on"),
    live("monitoring.podMonitor", "the operator creates or deletes it, and annotates running pods"),
    rolling("options.autoCompactionMode"),
    rolling("options.autoCompactionRetention"),
    rolling("options.electionTimeoutMilliseconds"),
    rolling("options.extraArguments"),
    rolling("options.heartbeatIntervalMilliseconds"),
    rolling("options.quotaBackendBytes"),
    rolling("options.snapshotCount"),
    live("paused", "from the next step on"),
    live("podDisruptionBudget", "the operator creates or deletes it"),
    rolling("podTemplate.affinity"),
    live("podTemplate.annotations", PATCHED),
    rolling("podTemplate.imagePullSecrets"),
    live("podTemplate.labels", PATCHED),
    rolling("podTemplate.nodeSelector"),
    rolling("podTemplate.priorityClassName"),
    rolling("podTemplate.securityContext"),
    rolling("podTemplate.tolerations"),
    rolling("podTemplate.topologySpreadConstraints"),
    live("recovery.acceptDataLoss.clusterID", CONSENTED),
    live("recovery.acceptDataLoss.survivor", CONSENTED),
    live("repair.nodeLossGraceSeconds", "from the next step on"),
    rolling("repository"),
    rolling("resources.limits"),
    rolling("resources.requests"),
    live("rollout.strategy", "from the next step on"),
    live("security.auth.enabled", "the operator enables or disables authentication"),
    live("security.auth.rootPasswordSecret", "the operator changes the password of root"),
    live("security.networkPolicy.clientSelector", "the NetworkPolicy changes"),
    without_effect("security.tls.autoTLS", OWN_CERTIFICATES),
    live("security.tls.caSecret", OTHER_AUTHORITY),
    live("security.tls.certificateSecret", OTHER_AUTHORITY),
    live("security.tls.certificates.dnsNames", REISSUED),
    live("security.tls.certificates.ipAddresses", REISSUED),
    live("security.tls.certificates.keyAlgorithm", "with the next renewal"),
    live(
        "security.tls.certificates.validitySeconds",
        "a shorter one at once, a longer one with the next renewal",
    ),
    rolling("security.tls.clientTLSEnabled"),
    rolling("security.tls.enabled"),
    live("security.tls.issuerRef.group", OTHER_AUTHORITY),
    live("security.tls.issuerRef.kind", OTHER_AUTHORITY),
    live("security.tls.issuerRef.name", OTHER_AUTHORITY),
    rolling("security.tls.peerTLSEnabled"),
    rolling("security.tls.plainClients"),
    live("size", "the operator adds or removes members one at a time"),
    live("storage.onDelete", "at the deletion"),
    live("storage.onStop", "at the next stop"),
    live("storage.size", "volumes grow in use; they cannot shrink"),
    replaced("storage.storageClassName", "each new member has a volume of the new class"),
    immutable("storage.volumeClaimTemplate.metadata.annotations", VOLUMES_EXIST),
    immutable("storage.volumeClaimTemplate.metadata.labels", VOLUMES_EXIST),
    immutable("storage.volumeClaimTemplate.spec", VOLUMES_EXIST),
    rolling("version"),
];

#[cfg(test)]
mod tests;
