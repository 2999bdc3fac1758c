//! The vocabulary of status and events, each word once. `docs/status.md` explains every one of them.

/// Names for words, and the list of them all.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident = $word:literal;)*) => {
        $($(#[$about])* pub const $name: &str = $word;)*
        pub const ALL: &[&str] = &[$($name),*];
    };
}

/// Types of conditions, in the order in which they are written. Those of others are neither written nor compared.
pub mod condition {
    words! {
        /// Whether the cluster is as its spec describes it.
        READY = "Ready";
        /// Whether a quorum serves, so that clients can read and write.
        AVAILABLE = "Available";
        /// True while the operator works or waits.
        RECONCILING = "Reconciling";
        /// True while nothing more happens until somebody changes something.
        STALLED = "Stalled";
        /// True when it is known that too few members can serve; Unknown when no member responds.
        QUORUM_LOST = "QuorumLost";
        /// True while a restarted member or a preflight pod keeps a rollout from going on; Unknown while it still has time;
        /// absent without a rollout.
        ROLLOUT_STALLED = "RolloutStalled";
        /// True while volumes do not have the size or the class that the spec asks for; absent otherwise.
        VOLUMES_DIFFER = "VolumesDiffer";
        /// True while `spec.paused` keeps the operator from making changes; absent otherwise.
        PAUSED = "Paused";
        /// True while a Service, the PodDisruptionBudget, the NetworkPolicy or a message to an agent cannot be written; absent
        /// otherwise.
        WRITE_FAILED = "WriteFailed";
        /// Whether TLS is in effect as the spec asks for, with certificates that are valid; absent without TLS.
        TLS_READY = "TLSReady";
        /// Whether etcd's authentication is as the spec asks for; absent if it is neither asked for nor enabled.
        AUTH_READY = "AuthReady";
        /// True while something in the spec has no effect or deserves attention; absent otherwise.
        SPEC_WARNING = "SpecWarning";
        /// True while the PodDisruptionBudget blocks every eviction, so that drains never finish; absent otherwise.
        DRAINS_BLOCKED = "DrainsBlocked";
        /// Whether members are spread over zones and nodes as well as possible; Unknown without the right to read nodes;
        /// absent with fewer than two members.
        MEMBERS_SPREAD = "MembersSpread";
        /// Whether the EtcdBackups of the cluster take copies; Unknown before the first one; absent if there are none.
        BACKUP_HEALTHY = "BackupHealthy";
        /// Of an EtcdBackup: whether the continuous archive has everything; Unknown while its archiver does not respond; absent
        /// without one.
        ARCHIVING = "Archiving";
        /// Whether all members returned the same hash of their data when the operator compared them last; absent before the first
        /// comparison, with one member, and if `spec.maintenance.consistencyCheck` disables it.
        DATA_CONSISTENT = "DataConsistent";
    }
}

/// Reasons of conditions.
pub mod reason {
    words! {
        NOT_IMPLEMENTED = "NotImplemented";
        /// The spec breaks a rule that the API server did not enforce.
        INVALID_SPEC = "InvalidSpec";

        // The state of the cluster.
        NOT_BOOTSTRAPPED = "NotBootstrapped";
        ALL_MEMBERS_SERVING = "AllMembersServing";
        MEMBERS_NOT_SERVING = "MembersNotServing";
        /// The members are not yet those that the spec asks for.
        SCALING = "Scaling";
        STOPPING = "Stopping";
        STOPPED = "Stopped";
        DELETING = "Deleting";
        /// The spec was edited, and the operator leaves volumes or members with the previous values.
        NOT_ROLLED_OUT = "NotRolledOut";
        /// The operator restarts members, one at a time, to apply an edit.
        ROLLING_OUT = "RollingOut";
        VERSION_PATH = "VersionPathRefused";
        APPROVAL_REQUIRED = "ApprovalRequired";
        /// The operator has to restart a member for a reason of its own, which stops writes.
        CONSENT_REQUIRED = "ConsentRequired";
        /// Members are defragmented in the next maintenance window.
        AWAITING_WINDOW = "AwaitingWindow";
        /// Volumes grow while members use them.
        VOLUMES_RESIZING = "VolumesResizing";
        /// The storage or the API server rejects another size of a volume.
        VOLUME_RESIZE_FAILED = "VolumeResizeFailed";
        /// The operator replaces members, one at a time, because their volumes have another class.
        STORAGE_CLASS_CHANGING = "StorageClassChanging";
        /// The operator deletes the StatefulSet without its pods and creates it again.
        STATEFULSET_RECREATING = "StatefulSetRecreating";
        QUORUM_AVAILABLE = "QuorumAvailable";
        QUORUM_LOST = "QuorumLost";
        /// No member responds; whether they serve each other is not known.
        MEMBERS_UNREACHABLE = "MembersUnreachable";
        /// etcd has raised an alarm and rejects requests.
        ALARM_ACTIVE = "AlarmActive";
        /// A Service, the PodDisruptionBudget, the NetworkPolicy or a message to an agent cannot be written.
        WRITE_FAILED = "WriteFailed";
        WORKER_PANICKED = "WorkerPanicked";
        /// The operator has no right to read an object of the cluster.
        OBJECTS_NOT_READABLE = "ObjectsNotReadable";
        PROGRESSING = "Progressing";
        /// The last step failed and is retried.
        STEP_FAILED = "StepFailed";
        UP_TO_DATE = "UpToDate";
        NOT_STALLED = "NotStalled";

        // What the operator waits for.
        PAUSED = "Paused";
        /// The copy that precedes another version.
        AWAITING_BACKUP = "AwaitingBackup";
        BOOTSTRAPPING = "Bootstrapping";
        NO_LEADER = "NoLeader";
        POD_MISSING = "PodMissing";
        POD_CREATION_FAILED = "PodCreationFailed";
        POD_TERMINATING = "PodTerminating";
        POD_UNSCHEDULABLE = "PodUnschedulable";
        POD_START_FAILED = "PodStartFailed";
        POD_STARTING = "PodStarting";
        VOLUME_PENDING = "VolumePending";
        ADDRESS_NOT_PUBLISHED = "AddressNotPublished";
        PREVIOUS_MEMBER_RUNNING = "PreviousMemberRunning";
        AGENT_WAITING = "AgentWaiting";
        /// An agent cannot use the certificates of its pod.
        CERTIFICATES_UNUSABLE = "CertificatesUnusable";
        BOOTSTRAP_RESULT_PENDING = "BootstrapResultPending";
        CATCHING_UP = "CatchingUp";
        MEMBER_STARTING = "MemberStarting";
        TOO_FEW_VOTERS = "TooFewVoters";
        /// etcd rejects the next step for now.
        STEP_REJECTED = "StepRejected";
        /// The PodDisruptionBudget allows no restart for now.
        EVICTION_REJECTED = "EvictionRejected";
        /// Members serve that are not connected to each other.
        PEERS_DISCONNECTED = "PeersDisconnected";
        AWAITING_RECOVERY = "AwaitingRecovery";
        /// The node of a member is lost, and the operator replaces the member or waits with that.
        NODE_LOST = "NodeLost";
        INSPECTING_VOLUMES = "InspectingVolumes";
        COMPARING_DATA = "ComparingData";
        PODS_TERMINATING = "PodsTerminating";
        VOLUMES_TERMINATING = "VolumesTerminating";
        /// Objects of a previous cluster of the same name.
        PREVIOUS_OBJECTS_TERMINATING = "PreviousObjectsTerminating";
        NAMESPACE_TERMINATING = "NamespaceTerminating";

        // Recovery from a lost quorum.
        /// One member continues alone, with the consent of a user.
        RECOVERING_QUORUM = "RecoveringQuorum";
        /// Consent to the loss of data does not fit this loss.
        CONSENT_WITHOUT_EFFECT = "ConsentWithoutEffect";
        /// With consent, and not safe yet.
        RECOVERY_REFUSED = "RecoveryRefused";

        // What stops a rollout.
        IMAGE_PULL_FAILED = "ImagePullFailed";
        /// etcd does not accept its new arguments, or the new image cannot be run.
        PREFLIGHT_FAILED = "PreflightFailed";
        MEMBER_CRASHING = "MemberCrashing";
        /// The image contains another version of etcd than its tag says.
        VERSION_MISMATCH = "VersionMismatch";

        // What the operator refuses.
        FOREIGN_VOLUMES = "ForeignVolumes";
        /// The spec asks for less than volumes have.
        VOLUMES_CANNOT_SHRINK = "VolumesCannotShrink";
        /// The volume of the only member cannot get another class.
        STORAGE_CLASS_NEEDS_MEMBERS = "StorageClassNeedsMembers";
        BOOTSTRAP_FAILED = "BootstrapFailed";
        UNKNOWN_MEMBER = "UnknownMember";
        CLUSTER_ID_MISMATCH = "ClusterIDMismatch";
        QUORUM_AT_RISK = "QuorumAtRisk";
        LAST_VOTER = "LastVoter";
        DATA_LOST = "DataLost";
        QUORUM_REQUIRED = "QuorumRequired";
        NO_SUCCESSOR = "NoSuccessor";
        /// The data needs the quota of the database.
        DATABASE_FULL = "DatabaseFull";
        /// Members have different data.
        DATA_MISMATCH = "DataMismatch";
        DATA_EQUAL = "DataEqual";

        // TLS and its certificates.
        CERTIFICATES_VALID = "CertificatesValid";
        CERTIFICATES_PENDING = "CertificatesPending";
        CERTIFICATE_EXPIRED = "CertificateExpired";
        /// A certificate should have been renewed, and expires before long.
        RENEWAL_OVERDUE = "RenewalOverdue";
        /// Members do not serve renewed certificates yet.
        RENEWAL_UNDER_WAY = "RenewalUnderWay";
        /// A member serves a previous certificate for longer than a kubelet needs to update its pod.
        PREVIOUS_CERTIFICATE_SERVED = "PreviousCertificateServed";
        /// An authority gives way to its successor.
        ROTATING_AUTHORITIES = "RotatingAuthorities";
        /// The key that signs certificates is gone.
        AUTHORITY_LOST = "CertificateAuthorityLost";
        /// The certificate that a user gives cannot be used.
        CERTIFICATE_REJECTED = "CertificateRejected";
        /// cert-manager has not issued the certificate of the client port.
        CERTIFICATE_NOT_ISSUED = "CertificateNotIssued";
        /// The API server does not serve the API of cert-manager.
        CERT_MANAGER_MISSING = "CertManagerMissing";
        /// Members were created with another transport than the spec asks for.
        TLS_NOT_IN_EFFECT = "TLSNotInEffect";
        /// The operator changes the transport to what the spec asks for.
        SWITCHING_TLS = "SwitchingTLS";

        // etcd's authentication.
        AUTH_ENABLED = "AuthEnabled";
        /// The operator creates users and enables authentication.
        AUTH_PENDING = "AuthPending";
        /// Authentication is enabled, and the spec asks for the opposite.
        AUTH_NOT_WANTED = "AuthNotWanted";
        /// etcd rejects the operator, because its user does not have the root role.
        ACCESS_DENIED = "AccessDenied";
        /// The password of root is not that of the Secret.
        ROOT_PASSWORD_PENDING = "RootPasswordPending";
        /// The Secret with the password of root cannot be used.
        ROOT_PASSWORD_MISSING = "RootPasswordMissing";
        ROOT_PASSWORD_INEFFECTIVE = "RootPasswordIneffective";

        // What deserves attention.
        KNOWN_DEFECTS = "KnownDefects";
        VOLUME_BELOW_QUOTA = "VolumeBelowQuota";
        SHORT_CERTIFICATES = "ShortCertificates";
        /// Clients can connect without TLS, although it is enabled.
        PLAIN_CLIENTS_ALLOWED = "PlainClientsAllowed";
        UNTESTED_VERSION = "UntestedVersion";
        /// The API server does not serve the API of the Prometheus operator.
        PROMETHEUS_OPERATOR_MISSING = "PrometheusOperatorMissing";
        POD_MONITOR_NOT_READABLE = "PodMonitorNotReadable";
        NO_EFFECT = "NoEffect";
        EVEN_SIZE = "EvenSize";
        NO_SPARE_MEMBER = "NoSpareMember";

        // How members are spread over failure domains.
        SPREAD_EVENLY = "SpreadEvenly";
        /// The spread is the best possible, and the failure of one zone or node still costs the quorum.
        TOO_FEW_DOMAINS = "TooFewFailureDomains";
        SHARED_DOMAIN = "SharedFailureDomain";
        NODES_NOT_READABLE = "NodesNotReadable";
        NOT_ALL_SCHEDULED = "NotAllScheduled";
        CUSTOM_PLACEMENT = "CustomPlacement";

        // Backups.
        BACKUP_COMPLETED = "BackupCompleted";
        /// Of a cluster: the last run of one of its EtcdBackups took no copy, or nothing starts one.
        BACKUP_FAILED = "BackupFailed";
        /// No copy was taken yet, or none is known to be.
        NO_BACKUP_YET = "NoBackupYet";
        BACKUP_RUNNING = "BackupRunning";
        /// An attempt failed for a passing reason and is repeated.
        RETRY_PENDING = "RetryPending";
        SUSPENDED = "Suspended";
        CLUSTER_NOT_FOUND = "ClusterNotFound";
        /// Another EtcdBackup takes a copy of the same cluster.
        OTHER_BACKUP_RUNNING = "OtherBackupRunning";
        /// The cluster does not allow backups from this namespace.
        NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed";
        /// A version that took no backups accepted it.
        AWAITING_EDIT = "AwaitingEdit";
        /// The copy is stored, and outdated copies could not be deleted.
        RETENTION_FAILED = "RetentionFailed";
        INVALID_CONFIGURATION = "InvalidConfiguration";
        STORE_UNREACHABLE = "StoreUnreachable";
        STORE_DENIED = "StoreDenied";
        STORE_REJECTED = "StoreRejected";
        ETCD_UNAVAILABLE = "EtcdUnavailable";
        COPY_DAMAGED = "CopyDamaged";
        COPY_NOT_FOUND = "CopyNotFound";
        /// It might be intact, but not for this: its identity is missing, or its etcd is newer.
        COPY_UNUSABLE = "CopyUnusable";
        /// The volume has no room, or cannot be written.
        OUTPUT_FAILED = "OutputFailed";
        INTERRUPTED = "Interrupted";
        /// The pod of a run is gone.
        RUN_LOST = "RunLost";
        RUN_TIMED_OUT = "RunTimedOut";
        OUT_OF_MEMORY = "OutOfMemory";
        /// For another reason; the message has it.
        RUN_FAILED = "RunFailed";

        // The continuous archive.
        ARCHIVE_CURRENT = "ArchiveCurrent";
        /// The archiver works, and has not stored or confirmed anything for a while.
        ARCHIVE_BEHIND = "ArchiveBehind";
        ARCHIVER_STARTING = "ArchiverStarting";
        ARCHIVER_NOT_RESPONDING = "ArchiverNotResponding";
        /// The archive cannot begin or continue without a new full copy.
        COPY_NEEDED = "CopyNeeded";
        /// Revisions are missing in the archive, or are other ones than those of the cluster.
        CHAIN_BROKEN = "ChainBroken";
        /// The etcd that replays what the archive has failed.
        REPLAY_FAILED = "ReplayFailed";

        // Restores.
        RESTORE_COMPLETED = "RestoreCompleted";
        /// Of an EtcdRestore and of the cluster that waits for its data.
        RESTORE_RUNNING = "RestoreRunning";
        BACKUP_NOT_FOUND = "BackupNotFound";
        CLUSTER_EXISTS = "ClusterExists";
        /// The cluster was deleted before its data was restored, or is another one.
        CLUSTER_GONE = "ClusterGone";
        /// Consent to replace the data of another cluster than the one that is there.
        REPLACEMENT_REFUSED = "ReplacementRefused";
        /// Of a cluster: its volumes have data that an EtcdRestore has replaced.
        VOLUMES_REPLACED = "VolumesReplaced";
    }
}

/// Reasons of events, beside those of conditions that change.
pub mod event {
    words! {
        BOOTSTRAP_PREPARED = "BootstrapPrepared";
        BOOTSTRAP_ALLOWED = "BootstrapAllowed";
        BOOTSTRAP_FINISHED = "BootstrapFinished";
        MAJORITY_LOST = "MajorityLost";
        RECOVERY_STARTED = "RecoveryStarted";
        RECOVERY_COMPLETED = "RecoveryCompleted";
        RECOVERY_ENDED = "RecoveryEnded";
        BOOTSTRAP_CANCELLED = "BootstrapCancelled";
        CLUSTER_BOOTSTRAPPED = "ClusterBootstrapped";
        PODS_CREATED = "PodsCreated";
        STATEFULSET_RECREATED = "StatefulSetRecreated";
        PODS_REMOVED = "PodsRemoved";
        POD_DELETED = "PodDeleted";
        PREFLIGHT_STARTED = "PreflightStarted";
        MEMBER_RESTARTED = "MemberRestarted";
        DOWNGRADE_ENABLED = "DowngradeEnabled";
        DOWNGRADE_CANCELLED = "DowngradeCancelled";
        ROLLOUT_FINISHED = "RolloutFinished";
        ROLLOUT_STALLED = "RolloutStalled";
        MEMBER_ADDED = "MemberAdded";
        MEMBER_PROMOTED = "MemberPromoted";
        PEER_URLS_UPDATED = "PeerURLsUpdated";
        MEMBER_REMOVED = "MemberRemoved";
        LEADER_MOVED = "LeaderMoved";
        HISTORY_COMPACTED = "HistoryCompacted";
        MEMBER_DEFRAGMENTED = "MemberDefragmented";
        ALARM_DISARMED = "AlarmDisarmed";
        CERTIFICATE_ISSUED = "CertificateIssued";
        /// The members get the certificate that a user gives.
        CERTIFICATE_COPIED = "CertificateCopied";
        AUTH_ENABLED = "AuthEnabled";
        AUTH_DISABLED = "AuthDisabled";
        ROOT_PASSWORD_CHANGED = "RootPasswordChanged";
        AUTHORITY_ROTATED = "AuthorityRotated";
        VOLUME_ADOPTED = "VolumeAdopted";
        VOLUME_DELETED = "VolumeDeleted";
        CLUSTER_DELETED = "ClusterDeleted";
        RUNNING = "Running";
        STOPPED = "Stopped";
        QUORUM_RECOVERED = "QuorumRecovered";
        PAUSED = "Paused";
        RESUMED = "Resumed";
        BACKUP_STARTED = "BackupStarted";
        RESTORE_STARTED = "RestoreStarted";
        DATA_REPLACED = "DataReplaced";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::Phase;

    fn is_word(text: &str) -> bool {
        let camel_case = text.starts_with(|first: char| first.is_ascii_uppercase());
        camel_case && text.chars().all(|it| it.is_ascii_alphanumeric())
    }

    #[test]
    fn words_are_in_camel_case_and_none_is_there_twice() {
        for words in [condition::ALL, reason::ALL, event::ALL] {
            for word in words {
                assert!(is_word(word), "{word}");
                assert_eq!(words.iter().filter(|it| *it == word).count(), 1, "{word}");
            }
        }
    }

    fn section(heading: &str) -> &'static str {
        let manual = include_str!("../../../docs/status.md");
        let (_, section) = manual.split_once(&format!("\n## {heading}\n")).expect("there is such a section");
        section.split("\n## ").next().unwrap_or_default()
    }

    fn in_backticks(text: &str) -> BTreeSet<&str> {
        text.split('`').skip(1).step_by(2).filter(|it| is_word(it)).collect()
    }

    /// What the tables of a section have in their first column.
    fn explained(heading: &str) -> BTreeSet<&'static str> {
        let cells = section(heading).lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        cells.flat_map(in_backticks).collect()
    }

    #[test]
    fn the_manual_explains_all_these_words_and_no_others() {
        let set = |words: &[&'static str]| words.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(explained("Conditions"), set(condition::ALL));
        assert_eq!(explained("Reasons"), set(reason::ALL));
        // What turns is told by events in words that are explained above.
        let told = in_backticks(section("Events"));
        let known = &(&set(event::ALL) | &set(reason::ALL)) | &set(condition::ALL);
        assert_eq!(set(event::ALL).difference(&told).collect::<Vec<_>>(), [&""; 0], "not explained");
        assert_eq!(told.difference(&known).collect::<Vec<_>>(), [&""; 0], "gone");
        let phases = explained("Phases");
        let gone = phases.iter().find(|it| serde_json::from_value::<Phase>((**it).into()).is_err());
        assert_eq!(gone, None, "no such phase");
    }
}
