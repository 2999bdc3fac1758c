//! The Job of an attempt: one pod on the volume of the first member, without a token of Kubernetes. The program for backups fetches the
//! copy, and the agent lets etcd's own tool make the data.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, PersistentVolumeClaim, PodSpec, PodTemplateSpec,
    ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::intent::{Choice, Intent};
use super::mark::{Made, Mark};
use crate::agent::restoration::{self, Restoration};
use crate::agent::{Protocol, path};
use crate::api::{self, EtcdRestore};
use crate::backup::inputs::Inputs;
use crate::backup::{FormatVersion, PROGRAM};
use crate::desired::{Desired, container_security, pod_security};
use crate::etcd_config::peer_url;
use crate::form::Form;
use crate::names::{DATA_VOLUME, FIELD_MANAGER, MANAGED_BY_LABEL, NAME_LABEL};
use crate::observed::Ordinal;
use crate::runs::{
    PodRules, claim_volume, environment, mount, resources, secret_volume, store_mounts, store_volumes,
};
use crate::version::Version;

pub(super) const INSTALL: &str = "install-agent";
pub(super) const FETCH: &str = "fetch";
/// Instead of [`FETCH`], where what follows a copy is restored, too.
pub(super) const REPLAY: &str = "replay";
pub(super) const RESTORE: &str = "restore";
const INSTALL_REPLAY: &str = "install-replay";
const RUN_VOLUME: &str = "run";
const IDENTITY_VOLUME: &str = "identity";
const IDENTITY_DIRECTORY: &str = "/etc/etcd-backup/identity";
/// The key of its Secret.
const IDENTITY_KEY: &str = "identity";
/// The largest copy takes an hour or two; what takes longer does not progress.
const DEADLINE_SECONDS: i64 = 6 * 3600;
const GRACE_SECONDS: i64 = 30;
/// Of the program and of transactions in flight.
const REPLAY_BYTES: u64 = 256 << 20;
/// Its `etcdutl` can raise revisions.
const RAISES_REVISIONS: Version = Version::new(3, 5, 10);
/// Restores for older versions: their data has the same format.
const NEWEST_OF_3_5: Version = Version::new(3, 5, 35);

/// What is the same for every attempt.
pub(super) struct Plan<'a> {
    pub restore: &'a EtcdRestore,
    pub intent: &'a Intent,
    pub desired: &'a Desired<'a>,
    /// The data of a cluster that has some.
    pub replaces: bool,
}

impl Plan<'_> {
    /// As the StatefulSet would create it.
    pub fn claim(&self) -> PersistentVolumeClaim {
        let mut claim = self.desired.claim();
        claim.metadata.name = Some(self.desired.names.claim(Ordinal(0)));
        claim.metadata.namespace = Some(self.desired.names.namespace.clone());
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.extend(Mark::of(self.restore).annotation());
        // Until the cluster continues with it, it belongs to the EtcdRestore.
        claim.metadata.owner_references =
            self.replaces.then(|| vec![OwnerReference { controller: None, ..owner(self.restore) }]);
        claim
    }

    /// Whose data a Job makes in place of other data.
    pub fn made(&self) -> Option<Made> {
        let restoration = restoration(self.restore, self.desired, None);
        let form = &self.desired.intent.form;
        self.replaces.then(|| Made {
            member_id: restoration.member_id().to_string(),
            cluster_id: restoration.cluster_id().to_string(),
            version: form.version.to_string(),
            peer_tls: form.transport.peers.scheme().is_tls(),
        })
    }

    pub fn job(&self, mark: &Mark) -> Job {
        let labels = [(NAME_LABEL, PROGRAM), (MANAGED_BY_LABEL, FIELD_MANAGER)];
        let marked = ObjectMeta {
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            annotations: Some(mark.annotation()),
            ..ObjectMeta::default()
        };
        let metadata = ObjectMeta {
            name: Some(mark.job_name()),
            namespace: Some(self.desired.names.namespace.clone()),
            owner_references: Some(vec![owner(self.restore)]),
            ..marked.clone()
        };
        let spec = JobSpec {
            // Whether an attempt is repeated depends on why it failed.
            backoff_limit: Some(0),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            template: PodTemplateSpec { metadata: Some(marked), spec: Some(self.pod()) },
            ..JobSpec::default()
        };
        Job { metadata, spec: Some(spec), status: None }
    }

    /// Where a member can run: the volume is created there.
    fn pod(&self) -> PodSpec {
        let form = &self.desired.intent.form;
        let member = self.desired.template(form, None).spec.unwrap_or_default();
        let rules = PodRules::of(&member);
        let security = pod_security(rules.security.as_ref());
        let named = |name: &str| Volume { name: name.into(), ..Volume::default() };
        let mut volumes = vec![
            claim_volume(DATA_VOLUME, self.desired.names.claim(Ordinal(0))),
            Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named(RUN_VOLUME) },
        ];
        volumes.extend(store_volumes(&self.intent.store, &security));
        let identity = self.intent.identity.clone();
        volumes.extend(identity.map(|secret| secret_volume(IDENTITY_VOLUME, secret, &security)));
        let mut init_containers = vec![self.install()];
        match self.target() {
            Some(target) => init_containers.extend([self.install_replay(), self.replay(form, &target)]),
            None => init_containers.push(self.fetch()),
        }
        PodSpec {
            init_containers: Some(init_containers),
            containers: vec![self.restore(form)],
            volumes: Some(volumes),
            restart_policy: Some("Never".into()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            security_context: Some(security),
            node_selector: rules.node_selector,
            affinity: form.pod.affinity.clone(),
            tolerations: Some(rules.tolerations).filter(|it| !it.is_empty()),
            priority_class_name: form.pod.priority_class_name.clone(),
            image_pull_secrets: rules.image_pull_secrets,
            ..PodSpec::default()
        }
    }

    fn install(&self) -> Container {
        Container {
            name: INSTALL.into(),
            image: Some(self.desired.agent_image.into()),
            command: Some(vec![format!("/{}", path::PROGRAM), "install".into(), path::RUN.into()]),
            volume_mounts: Some(vec![mount(RUN_VOLUME, path::RUN, false)]),
            resources: Some(resources()),
            security_context: Some(container_security()),
            ..Container::default()
        }
    }

    fn install_replay(&self) -> Container {
        let command = vec![format!("/{PROGRAM}"), "install".into(), path::RUN.into()];
        Container { name: INSTALL_REPLAY.into(), command: Some(command), ..self.install() }
    }

    /// None for a whole copy.
    fn target(&self) -> Option<String> {
        match &self.intent.choice {
            Choice::Newest | Choice::Named(_) => None,
            Choice::Revision(revision) => Some(format!("--to-revision={revision}")),
            Choice::Time(time) => Some(format!("--to-time={time}")),
        }
    }

    fn fetch(&self) -> Container {
        let mut container = self.getting(FETCH, format!("/{PROGRAM}"));
        if let Choice::Named(name) = &self.intent.choice {
            container.command.get_or_insert_default().push(name.to_string());
        }
        container
    }

    /// In the image of etcd, whose program replays what the archive has.
    fn replay(&self, form: &Form, target: &str) -> Container {
        let mut container = self.getting(REPLAY, format!("{}/{PROGRAM}", path::RUN));
        let scratch =
            format!("--scratch={}/{}/{}", path::VOLUME, restoration::DIRECTORY, restoration::SCRATCH);
        let more = [target.to_owned(), scratch, "--etcd=etcd".into(), "--etcdutl=etcdutl".into()];
        container.command.get_or_insert_default().extend(more);
        container.image = Some(image(form));
        container.volume_mounts.get_or_insert_default().push(mount(RUN_VOLUME, path::RUN, true));
        container.resources = Some(with_room(&form.resources));
        container
    }

    /// It checks everything that can be checked before it writes anything, and nothing if the volume is complete.
    fn getting(&self, verb: &str, program: String) -> Container {
        let inputs = serde_json::to_string(&self.inputs()).expect("text and numbers are always JSON");
        let below = |file: &str| format!("{}/{}/{file}", path::VOLUME, restoration::DIRECTORY);
        let version = self.desired.intent.form.version;
        let mut command = vec![
            program,
            verb.into(),
            format!("--output={}", below(restoration::SNAPSHOT)),
            format!("--for-etcd={version}"),
            format!("--unless-exists={}/{}", path::VOLUME, restoration::RESULT),
            format!("--highest={}", below(restoration::HIGHEST)),
        ];
        let mut mounts = vec![mount(DATA_VOLUME, path::VOLUME, false)];
        mounts.extend(store_mounts(&self.intent.store));
        if self.intent.identity.is_some() {
            command.push(format!("--identity={IDENTITY_DIRECTORY}/{IDENTITY_KEY}"));
            mounts.push(mount(IDENTITY_VOLUME, IDENTITY_DIRECTORY, true));
        }
        Container {
            name: verb.into(),
            image: Some(self.desired.agent_image.into()),
            command: Some(command),
            env: Some(environment(&self.intent.store, &inputs)),
            volume_mounts: Some(mounts),
            resources: Some(resources()),
            security_context: Some(container_security()),
            // The program writes its result there; a crash leaves the end of its log.
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        }
    }

    fn restore(&self, form: &Form) -> Container {
        let text = serde_json::to_string(&restoration(self.restore, self.desired, self.intent.bump_revision))
            .expect("text and numbers are always JSON");
        let variable = EnvVar { name: restoration::VARIABLE.into(), value: Some(text), value_from: None };
        Container {
            name: RESTORE.into(),
            image: Some(image(form)),
            command: Some(vec![format!("{}/{}", path::RUN, path::PROGRAM), RESTORE.into()]),
            env: Some(vec![variable]),
            volume_mounts: Some(vec![
                mount(DATA_VOLUME, path::VOLUME, false),
                mount(RUN_VOLUME, path::RUN, true),
            ]),
            resources: Some(form.resources.clone()),
            security_context: Some(container_security()),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        }
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            format_version: FormatVersion::CURRENT,
            store: self.intent.store.store.clone(),
            etcd: None,
            cluster_id: self.intent.cluster.map(|id| id.to_string()),
            compression: self.intent.store.compression,
            recipients: Vec::new(),
            verification: crate::backup::manifest::Verification::ReadBack,
            retention: crate::backup::retention::Retention::default(),
        }
    }
}

/// The first member, with the URL that it is listed with.
pub(super) fn restoration(
    restore: &EtcdRestore,
    desired: &Desired<'_>,
    bump_revision: Option<u64>,
) -> Restoration {
    let scheme = desired.intent.form.transport.peers.scheme();
    Restoration {
        protocol_version: Protocol::CURRENT,
        cluster_uid: desired.intent.uid.clone(),
        restore_uid: restore.uid().unwrap_or_default(),
        name: desired.names.pod(Ordinal(0)),
        peer_url: peer_url(scheme, &desired.names.pod_host(Ordinal(0))),
        bump_revision,
    }
}

fn image(form: &Form) -> String {
    Form { version: restored_with(form.version), ..form.clone() }.image()
}

/// Beside etcd, which has what a member has, the program needs memory.
fn with_room(of_member: &ResourceRequirements) -> ResourceRequirements {
    let mut resources = of_member.clone();
    if let Some(memory) = resources.limits.as_mut().and_then(|limits| limits.get_mut("memory"))
        && let Some(bytes) = api::Quantity::Text(memory.0.clone()).bytes()
    {
        memory.0 = api::Quantity::of_bytes(bytes.saturating_add(REPLAY_BYTES)).to_string();
    }
    resources
}

/// Whose `etcdutl` restores for this version.
pub(super) fn restored_with(version: Version) -> Version {
    if version < RAISES_REVISIONS { NEWEST_OF_3_5 } else { version }
}

fn owner(restore: &EtcdRestore) -> OwnerReference {
    OwnerReference {
        api_version: EtcdRestore::api_version(&()).into_owned(),
        kind: EtcdRestore::kind(&()).into_owned(),
        name: restore.name_any(),
        uid: restore.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
