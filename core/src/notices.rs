//! What the operator accepts with a warning: fields without effect in this version, and risky choices.

use crate::api::{EtcdCluster, PodMonitor};
use crate::asked::ROTATE_CA;
use crate::foreign::NotRead;
use crate::intent::{self, Intent};
use crate::names::{ANNOTATION_OF, Names, reason};
use crate::rules::options::LOG_BYTES;
use crate::tls::{ClientPort, Source, Switch, Transport};
use crate::version::{CRASH_SAFE, Version};

/// etcd's own limit for its database when none is set.
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;

/// The newest minor that the tests run.
const NEWEST_TESTED: Version = Version::new(3, 7, u32::MAX);

/// A third of it is twice as long as kubelets need.
const SHORT_CERTIFICATE_SECONDS: i64 = 600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub kind: Kind,
    /// As in `spec.size`.
    pub field: &'static str,
    pub message: String,
}

/// The most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KnownDefects,
    VolumeBelowQuota,
    /// Certificates can expire before pods get the new ones.
    ShortCertificates,
    PlainClientsAllowed,
    UntestedVersion,
    /// There is no API for the PodMonitor that is asked for.
    PrometheusOperatorMissing,
    /// The PodMonitor that is asked for cannot be read.
    PodMonitorNotReadable,
    /// The field is accepted and has no effect.
    NoEffect,
    EvenSize,
}

impl Kind {
    /// The name under which conditions and events mention it.
    pub fn reason(self) -> &'static str {
        match self {
            Kind::KnownDefects => reason::KNOWN_DEFECTS,
            Kind::VolumeBelowQuota => reason::VOLUME_BELOW_QUOTA,
            Kind::ShortCertificates => reason::SHORT_CERTIFICATES,
            Kind::PlainClientsAllowed => reason::PLAIN_CLIENTS_ALLOWED,
            Kind::UntestedVersion => reason::UNTESTED_VERSION,
            Kind::PrometheusOperatorMissing => reason::PROMETHEUS_OPERATOR_MISSING,
            Kind::PodMonitorNotReadable => reason::POD_MONITOR_NOT_READABLE,
            Kind::NoEffect => reason::NO_EFFECT,
            Kind::EvenSize => reason::EVEN_SIZE,
        }
    }
}

/// The cluster is that from which the intent was made: fields without effect are only there.
pub fn notices(cluster: &EtcdCluster, intent: &Intent) -> Vec<Notice> {
    let mut found = Vec::new();
    found.extend(other_certificates(cluster));
    found.extend(short_certificates(cluster));
    found.extend(plain_clients(intent));
    found.extend(without_effect(cluster));
    found.extend(not_understood(cluster));
    found.extend(nothing_to_rotate(intent));
    found.extend(surprising_size(intent));
    found.extend(surprising_version(intent));
    found.extend(small_volume(intent));
    found
}

/// Nothing waits for a PodMonitor: members are not scraped until there is one.
pub fn pod_monitor(intent: &Intent, not_read: Option<&NotRead>) -> Option<Notice> {
    let is_wanted = intent.pod_monitor == PodMonitor::Enabled;
    let (kind, message) = match not_read.filter(|_| is_wanted)? {
        NotRead::NotAsked => return None,
        NotRead::NoApi => (
            Kind::PrometheusOperatorMissing,
            "the API server does not serve monitoring.coreos.com/v1: install the Prometheus operator, or set this to Disabled; \
             the operator checks again every minute"
                .into(),
        ),
        NotRead::Failed(error) => (
            Kind::PodMonitorNotReadable,
            format!(
                "PodMonitor {} cannot be read: {error}; apply the operator's roles again if a right is missing",
                intent.name
            ),
        ),
    };
    Some(Notice { kind, field: "spec.monitoring.podMonitor", message })
}

fn other_certificates(cluster: &EtcdCluster) -> Vec<Notice> {
    let tls = &cluster.spec.security.tls;
    let clients = Transport::asked_for(tls).clients.is_tls();
    let source = Source::of(tls, &Names::of(cluster, ""));
    let issued = "no effect: the operator issues every certificate that no other source gives";
    let alone = "no effect without certificateSecret or issuerRef: name the source of your certificate there";
    let plain = "no effect: it is for the client port, and clients connect in plain text";
    [
        ("spec.security.tls.certificateSecret", source.is_user() && !clients, plain),
        ("spec.security.tls.issuerRef", source.issuer().is_some() && !clients, plain),
        ("spec.security.tls.caSecret", tls.ca_secret.is_some() && source.is_operator(), alone),
        ("spec.security.tls.autoTLS", !tls.auto_tls, issued),
    ]
    .into_iter()
    .filter(|(_, is_there, _)| tls.enabled && *is_there)
    .map(|(field, _, message)| Notice { kind: Kind::NoEffect, field, message: message.into() })
    .collect()
}

fn short_certificates(cluster: &EtcdCluster) -> Option<Notice> {
    let tls = &cluster.spec.security.tls;
    let seconds = tls.certificates.as_ref()?.validity_seconds;
    (tls.enabled && seconds < SHORT_CERTIFICATE_SECONDS).then(|| Notice {
        kind: Kind::ShortCertificates,
        field: "spec.security.tls.certificates.validitySeconds",
        message: format!(
            "kubelets can take 90 s to bring a renewed certificate into pods, and it is renewed {} s before it expires: \
             set it to {SHORT_CERTIFICATE_SECONDS} or more",
            seconds / 3
        ),
    })
}

fn plain_clients(intent: &Intent) -> Option<Notice> {
    (intent.form.transport.clients == ClientPort::Both).then(|| Notice {
        kind: Kind::PlainClientsAllowed,
        field: "spec.security.tls.plainClients",
        message: "clients can connect in plain text, and then no certificate is checked: set it to Refuse when all \
                  clients use TLS"
            .into(),
    })
}

fn without_effect(cluster: &EtcdCluster) -> Vec<Notice> {
    let storage = &cluster.spec.storage;
    let Some(template) = &storage.volume_claim_template else { return Vec::new() };
    let claim = &template.spec;
    let requested = storage.requested_by_template().and_then(|it| it.bytes());
    let other_size = requested.is_some_and(|it| Some(it) != storage.size_in_effect().bytes());
    let class = storage.storage_class_name.as_ref();
    let other_class = claim.storage_class_name.is_some()
        && class.is_some_and(|_| claim.storage_class_name.as_ref() != class);
    let limits = claim.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let own_volume = "no effect: every member gets an empty volume of its own";
    [
        ("spec.storage.volumeClaimTemplate.spec.volumeName", claim.volume_name.is_some(), own_volume),
        ("spec.storage.volumeClaimTemplate.spec.dataSource", claim.data_source.is_some(), own_volume),
        ("spec.storage.volumeClaimTemplate.spec.dataSourceRef", claim.data_source_ref.is_some(), own_volume),
        (
            "spec.storage.volumeClaimTemplate.spec.resources.limits",
            limits.is_some(),
            "no effect: a volume has the size that it requests",
        ),
        (
            "spec.storage.volumeClaimTemplate.spec.resources.requests",
            other_size,
            "no effect: spec.storage.size is in effect",
        ),
        (
            "spec.storage.volumeClaimTemplate.spec.storageClassName",
            other_class,
            "no effect: spec.storage.storageClassName is in effect",
        ),
    ]
    .into_iter()
    .filter(|(_, is_there, _)| *is_there)
    .map(|(field, _, message)| Notice { kind: Kind::NoEffect, field, message: message.into() })
    .collect()
}

fn not_understood(cluster: &EtcdCluster) -> impl Iterator<Item = Notice> {
    let (_, malformed) = intent::asked(cluster);
    malformed.into_iter().map(|it| Notice {
        kind: Kind::NoEffect,
        field: "metadata.annotations",
        message: format!(
            "{ANNOTATION_OF}{} has no effect: its value has to be {}",
            it.annotation, it.expected
        ),
    })
}

fn nothing_to_rotate(intent: &Intent) -> Option<Notice> {
    let Switch { form, target, .. } = intent.switch;
    (intent.asked.rotation.is_some() && form.is_plain() && target.is_plain()).then(|| Notice {
        kind: Kind::NoEffect,
        field: "metadata.annotations",
        message: format!(
            "{ANNOTATION_OF}{ROTATE_CA} has no effect while all connections are plain text: no authority is in use; \
             the operator rotates the authorities when spec.security.tls enables TLS, unless you remove the annotation"
        ),
    })
}

fn surprising_size(intent: &Intent) -> Option<Notice> {
    let size = intent.size;
    (size > 0 && size.is_multiple_of(2)).then(|| Notice {
        kind: Kind::EvenSize,
        field: "spec.size",
        message: format!("{size} members tolerate no more failures than {}: use an odd size", size - 1),
    })
}

fn surprising_version(intent: &Intent) -> Option<Notice> {
    let version = intent.form.version;
    let (kind, message) = if version < CRASH_SAFE {
        (
            Kind::KnownDefects,
            format!("etcd {version} can lose writes in a crash: use {CRASH_SAFE} or later, which fix this"),
        )
    } else if version > NEWEST_TESTED {
        let Version { major, minor, .. } = NEWEST_TESTED;
        let message = format!(
            "this version of the operator is tested with etcd up to {major}.{minor}, not with {version}"
        );
        (Kind::UntestedVersion, message)
    } else {
        return None;
    };
    Some(Notice { kind, field: "spec.version", message })
}

/// etcd's log lies on the volume too, and a fifth of it is left for the snapshots of slow members.
fn small_volume(intent: &Intent) -> Option<Notice> {
    let volume = intent.storage.bytes;
    let fits = (volume - volume / 5).min(volume.saturating_sub(LOG_BYTES));
    let quota = intent.form.options.quota_backend_bytes.unwrap_or(DEFAULT_QUOTA_BYTES);
    (quota > fits).then(|| Notice {
        kind: Kind::VolumeBelowQuota,
        field: "spec.storage.size",
        message: format!(
            "the database can grow to {} MiB, which leaves too little of the volume for etcd's log: set \
             spec.options.quotaBackendBytes to {fits} or less",
            quota >> 20
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::validate;

    fn told(spec: serde_json::Value) -> Vec<(Kind, &'static str)> {
        let cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
        let intent = validate(&cluster).expect("it is valid");
        notices(&cluster, &intent).into_iter().map(|notice| (notice.kind, notice.field)).collect()
    }

    fn plain(mut spec: serde_json::Value) -> Vec<(Kind, &'static str)> {
        spec["security"] = json!({"tls": {"enabled": false}});
        told(spec)
    }

    #[test]
    fn where_certificates_come_from_is_mentioned_if_it_has_no_effect() {
        let tls = |tls: serde_json::Value| told(json!({"security": {"tls": tls}}));
        assert_eq!(tls(json!({})), []);
        let no_effect = |field| vec![(Kind::NoEffect, field)];
        assert_eq!(tls(json!({"certificateSecret": "s"})), []);
        assert_eq!(tls(json!({"certificateSecret": "s", "caSecret": "ca"})), []);
        let plain = json!({"certificateSecret": "s", "clientTLSEnabled": false});
        assert_eq!(tls(plain), no_effect("spec.security.tls.certificateSecret"));
        assert_eq!(tls(json!({"caSecret": "s"})), no_effect("spec.security.tls.caSecret"));
        assert_eq!(tls(json!({"autoTLS": false})), no_effect("spec.security.tls.autoTLS"));
        assert_eq!(tls(json!({"enabled": false, "caSecret": "s"})), []);
    }

    #[test]
    fn certificates_that_kubelets_cannot_follow_are_mentioned() {
        let seconds =
            |seconds: i64| told(json!({"security": {"tls": {"certificates": {"validitySeconds": seconds}}}}));
        let field = "spec.security.tls.certificates.validitySeconds";
        assert_eq!(seconds(599), [(Kind::ShortCertificates, field)]);
        assert_eq!(seconds(600), []);
    }

    #[test]
    fn a_rotation_in_plain_text_is_mentioned() {
        let told = |tls: serde_json::Value| {
            let spec = serde_json::from_value(json!({"security": {"tls": tls}})).expect("it is a spec");
            let mut cluster = EtcdCluster::new("kv", spec);
            let annotations = [(format!("{ANNOTATION_OF}{ROTATE_CA}"), "t1".to_owned())];
            cluster.metadata.annotations = Some(annotations.into());
            let intent = validate(&cluster).expect("it is valid");
            notices(&cluster, &intent).into_iter().map(|it| (it.kind, it.field)).collect::<Vec<_>>()
        };
        assert_eq!(told(json!({"enabled": false})), [(Kind::NoEffect, "metadata.annotations")]);
        assert_eq!(told(json!({})), []);
        assert_eq!(told(json!({"clientTLSEnabled": false})), []);
    }

    #[test]
    fn parts_of_a_volume_claim_that_do_nothing_are_named() {
        let claim = json!({
            "volumeName": "pv-1", "dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"},
            "resources": {"limits": {"storage": "30Gi"}}, "volumeMode": "Filesystem",
        });
        let spec = "spec.storage.volumeClaimTemplate.spec";
        let told = plain(json!({"storage": {"volumeClaimTemplate": {"spec": claim}}}));
        let expected =
            ["volumeName", "dataSourceRef", "resources.limits"].map(|part| format!("{spec}.{part}"));
        assert_eq!(told.iter().map(|(_, field)| *field).collect::<Vec<_>>(), expected);
        assert!(told.iter().all(|(kind, _)| *kind == Kind::NoEffect));
    }

    #[test]
    fn even_sizes_are_accepted_with_a_word() {
        for size in 0..=9 {
            let expected: &[_] =
                if [2, 4, 6, 8].contains(&size) { &[(Kind::EvenSize, "spec.size")] } else { &[] };
            assert_eq!(plain(json!({"size": size})), expected, "{size}");
        }
    }

    #[test]
    fn versions_with_known_defects_and_those_never_tested_are_accepted_with_a_word() {
        assert_eq!(plain(json!({"version": "3.5.13"})), [(Kind::KnownDefects, "spec.version")]);
        for good in ["3.5.14", "v3.6.0", "3.7.99"] {
            assert_eq!(plain(json!({"version": good})), [], "{good}");
        }
        assert_eq!(plain(json!({"version": "3.8.0"})), [(Kind::UntestedVersion, "spec.version")]);
    }

    #[test]
    fn a_volume_that_the_database_can_outgrow_is_mentioned() {
        let quota = |size: &str, bytes: i64| {
            plain(json!({"storage": {"size": size}, "options": {"quotaBackendBytes": bytes}}))
        };
        let expected = [(Kind::VolumeBelowQuota, "spec.storage.size")];
        assert_eq!(plain(json!({"storage": {"size": "1Gi"}})), expected);
        assert_eq!(plain(json!({"storage": {"size": "2560Mi"}})), []);
        assert_eq!(quota("1Gi", 1 << 29), []);
        assert_eq!(quota("9Gi", 8 << 30), expected);
        assert_eq!(quota("10Gi", 8 << 30), []);
    }

    #[test]
    fn the_quota_that_the_notice_suggests_is_accepted_without_a_notice() {
        for size in ["512Mi", "1Gi", "2Gi", "2500Mi"] {
            let spec = json!({"storage": {"size": size}});
            let cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
            let notices = notices(&cluster, &validate(&cluster).expect("it is valid"));
            let notice =
                notices.iter().find(|it| it.kind == Kind::VolumeBelowQuota).expect("it is mentioned");
            let (_, suggested) = notice.message.rsplit_once("quotaBackendBytes to ").expect("the way out");
            let suggested: i64 = suggested.split(' ').next().unwrap_or_default().parse().expect("a number");
            let told = plain(json!({"storage": {"size": size}, "options": {"quotaBackendBytes": suggested}}));
            assert_eq!(told, [], "{size}: {suggested}");
        }
    }
}
