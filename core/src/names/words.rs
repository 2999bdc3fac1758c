//! The words of status and events, each once. `docs/status.md` explains every one of them.

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
        /// Whether the cluster is as the spec wants it.
        READY = "Ready";
        /// Whether a quorum serves, so that clients can read and write.
        AVAILABLE = "Available";
        /// True while something is done or awaited.
        RECONCILING = "Reconciling";
        /// True while nothing more will happen until somebody changes something.
        STALLED = "Stalled";
        /// True when it is known that too few members can serve; Unknown when nobody answers.
        QUORUM_LOST = "QuorumLost";
        /// True while `spec.paused` keeps the operator from acting; absent otherwise.
        PAUSED = "Paused";
        /// False while TLS is asked for and not in effect; absent when nobody asks for it.
        TLS_READY = "TLSReady";
        /// True while something in the spec has no effect or may surprise; absent otherwise.
        SPEC_WARNING = "SpecWarning";
        /// True while the PodDisruptionBudget lets no member go, so that drains wait for ever; absent otherwise.
        DRAINS_BLOCKED = "DrainsBlocked";
    }
}

/// Reasons of conditions.
pub mod reason {
    words! {
        NOT_IMPLEMENTED_YET = "NotImplementedYet";
        /// The spec breaks a rule that the API server did not keep.
        INVALID_SPEC = "InvalidSpec";

        // How the cluster is.
        NOT_FORMED_YET = "NotFormedYet";
        ALL_MEMBERS_SERVE = "AllMembersServe";
        MEMBERS_NOT_SERVING = "MembersNotServing";
        /// The members are not yet those that are wanted.
        SCALING = "Scaling";
        STOPPING = "Stopping";
        STOPPED = "Stopped";
        DELETING = "Deleting";
        QUORUM_SERVES = "QuorumServes";
        QUORUM_LOST = "QuorumLost";
        PODS_CANNOT_START = "PodsCannotStart";
        STEP_UNDER_WAY = "StepUnderWay";
        /// The last step failed and is tried again.
        STEP_FAILED = "StepFailed";
        /// The operator's worker for this cluster panicked and restarts.
        WORKER_PANICKED = "WorkerPanicked";
        NOTHING_TO_DO = "NothingToDo";
        NOTHING_REFUSED = "NothingRefused";

        // What is awaited.
        PAUSED = "Paused";
        FORMING = "Forming";
        /// No member answers; whether they serve each other is not known.
        NO_ANSWER = "NoAnswer";
        POD_NOT_READY = "PodNotReady";
        CATCHING_UP = "CatchingUp";
        STARTING = "Starting";
        TOO_FEW_VOTERS = "TooFewVoters";
        /// etcd does not take the next step yet.
        AWAITING_ETCD = "AwaitingEtcd";
        AWAITING_RECOVERY = "AwaitingRecovery";
        INSPECTING_VOLUMES = "InspectingVolumes";
        COMPARING_DATA = "ComparingData";
        PODS_ENDING = "PodsEnding";
        VOLUMES_GOING = "VolumesGoing";
        /// What a former cluster of the same name left.
        LEFTOVERS_GOING = "LeftoversGoing";
        NAMESPACE_ENDING = "NamespaceEnding";

        // What is refused.
        FOREIGN_VOLUMES = "ForeignVolumes";
        FORMATION_FAILED = "FormationFailed";
        UNKNOWN_MEMBER = "UnknownMember";
        FOREIGN_CLUSTER = "ForeignCluster";
        QUORUM_WOULD_BE_LOST = "QuorumWouldBeLost";
        LAST_VOTER = "LastVoter";
        DATA_LOST = "DataLost";
        STOP_NEEDS_QUORUM = "StopNeedsQuorum";
        NO_SUCCESSOR = "NoSuccessor";
        HASHES_DIFFER = "HashesDiffer";

        // What is noticed.
        TLS_NOT_IN_EFFECT = "TLSNotInEffect";
        NO_EFFECT_YET = "NoEffectYet";
        NOT_ROLLED_OUT = "NotRolledOut";
        EVEN_SIZE = "EvenSize";
        KNOWN_DEFECTS = "KnownDefects";
        UNTESTED_VERSION = "UntestedVersion";
        VOLUME_BELOW_QUOTA = "VolumeBelowQuota";
        NO_MEMBER_TO_SPARE = "NoMemberToSpare";
    }
}

/// Reasons of events, beside those of conditions that turn.
pub mod event {
    words! {
        BOOTSTRAP_PREPARED = "BootstrapPrepared";
        BOOTSTRAP_ORDERED = "BootstrapOrdered";
        BOOTSTRAP_FINISHED = "BootstrapFinished";
        BOOTSTRAP_WITHDRAWN = "BootstrapWithdrawn";
        CLUSTER_FORMED = "ClusterFormed";
        PODS_CREATED = "PodsCreated";
        PODS_REMOVED = "PodsRemoved";
        POD_DELETED = "PodDeleted";
        MEMBER_ADDED = "MemberAdded";
        MEMBER_PROMOTED = "MemberPromoted";
        MEMBER_REMOVED = "MemberRemoved";
        LEADER_MOVED = "LeaderMoved";
        VOLUME_ADOPTED = "VolumeAdopted";
        VOLUME_DELETED = "VolumeDeleted";
        RELEASED = "Released";
        RUNNING = "Running";
        STOPPED = "Stopped";
        QUORUM_REGAINED = "QuorumRegained";
        PAUSED = "Paused";
        RESUMED = "Resumed";
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
