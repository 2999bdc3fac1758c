//! What happened, in the words of users: one event for each step, and one for each change of the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{EtcdClusterStatus, Phase};
use crate::assess::{Quorum, assess};
use crate::auth;
use crate::decide::{Goal, Reason};
use crate::names::{Names, condition, event, reason};
use crate::observed::{AlarmKind, MemberId, Observed, Ordinal, Verdict};
use crate::plan::{Action, Terms};
use crate::status::find;
use crate::tls::{Cause, Copy, Purpose, Stage};

/// The API server takes notes of up to 1024 bytes.
const LONGEST_NOTE: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub warning: bool,
    /// What happened, in one word.
    pub reason: String,
    /// What the operator did or was doing, in one word.
    pub action: &'static str,
    pub note: String,
}

impl Event {
    pub(crate) fn new(warning: bool, reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self { warning, reason: reason.into(), action, note: shortened(note.into()) }
    }

    pub(crate) fn normal(reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self::new(false, reason, action, note)
    }
}

fn shortened(note: String) -> String {
    if note.len() <= LONGEST_NOTE {
        return note;
    }
    let end = (0..=LONGEST_NOTE).rev().find(|&end| note.is_char_boundary(end)).unwrap_or(0);
    format!("{} ...", &note[..end])
}

/// The event of an action that was carried out. Goal and snapshot are those from which it was decided. Bookkeeping has no
/// event.
pub fn of_action(action: &Action, goal: &Goal, names: &Names, seen: &Observed) -> Option<Event> {
    let terms = Terms::Names { names, seen };
    Some(match action {
        Action::AddFinalizer
        | Action::LabelClaim { .. }
        | Action::RetireClaim { .. }
        | Action::RecordVolumes { .. }
        | Action::SetTemplate { .. }
        | Action::RecordCleared { .. }
        | Action::RecordTls { .. }
        | Action::DeletePreflight { .. }
        | Action::Accept(_)
        // All of them belong to the creation of a cluster.
        | Action::IssueCertificate { purpose: _, cause: Cause::Missing }
        | Action::CopyCertificate { copy: Copy::First | Copy::Held } => return None,
        Action::RotateAuthority { purpose: _, stage: Stage::Accept } if seen.cluster.formed.is_none() => return None,
        Action::IssueCertificate { purpose, cause } => {
            let note = format!("issued the certificate in Secret {}: {}", names.secret(*purpose), cause.words());
            Event::normal(event::CERTIFICATE_ISSUED, "IssueCertificate", note)
        }
        Action::CopyCertificate { copy: Copy::Given } => {
            let server = goal.certificates.get(&Purpose::Server);
            let (from, _) = server.and_then(|it| it.source.secrets()).unwrap_or_default();
            let to = names.secret(Purpose::Server);
            let note = format!("copied the certificate in Secret {from} into Secret {to}");
            Event::normal(event::CERTIFICATE_COPIED, "CopyCertificate", note)
        }
        Action::RotateAuthority { purpose, stage } => {
            let secret = names.secret(*purpose);
            let note = match stage {
                Stage::Introduce => format!("created the next authority in Secret {secret}: members restart to trust it"),
                Stage::Promote => format!("the next authority in Secret {secret} signs from now on"),
                Stage::Withdraw => format!("withdrew the previous authority from Secret {secret}: members restart"),
                Stage::Accept => format!("updated the authorities of the user in Secret {secret}: members restart for that"),
            };
            Event::normal(event::AUTHORITY_ROTATED, "RotateAuthority", note)
        }
        Action::CreatePreflight { ordinal: _, node } => {
            let note = format!("trying the new image and arguments on node {node}, before a member restarts");
            Event::normal(event::PREFLIGHT_STARTED, "RollOut", note)
        }
        // The first record of a cluster follows no rollout, and neither does one of the same form.
        Action::RecordForm { form } if seen.record.as_ref().is_none_or(|it| it.form == *form) => return None,
        Action::RecordForm { form: _ } => {
            let note = format!("all {} members run with the changed spec", seen.replicas());
            Event::normal(event::ROLLOUT_FINISHED, "RollOut", note)
        }
        Action::RemoveFinalizer => Event::normal(
            event::CLUSTER_DELETED,
            "Delete",
            match seen.claims.is_empty() {
                true => "deleted, with all volumes".to_owned(),
                false => {
                    let kept: Vec<_> = seen.claims.keys().map(|&ordinal| names.claim(ordinal)).collect();
                    format!("deleted; volumes kept: {}", kept.join(", "))
                }
            },
        ),
        Action::RecordFormed { cluster } => Event::normal(
            event::CLUSTER_BOOTSTRAPPED,
            "Bootstrap",
            format!("bootstrapped as cluster {cluster}"),
        ),
        Action::CreateOrder { size } => {
            let pods: Vec<_> = Ordinal::below(*size).collect();
            let note = format!("prepared the bootstrap of {}", terms.pods(&pods));
            Event::normal(event::BOOTSTRAP_PREPARED, "Bootstrap", note)
        }
        Action::ArmOrder { uid: _ } => Event::normal(
            event::BOOTSTRAP_ALLOWED,
            "Bootstrap",
            "allowed the pods to bootstrap as soon as they run",
        ),
        Action::DeleteOrder { uid: _ } => match assess(seen).quorum {
            Quorum::NotBootstrapped => {
                Event::normal(event::BOOTSTRAP_CANCELLED, "Bootstrap", "bootstrap cancelled")
            }
            Quorum::Held(_) | Quorum::OtherCluster { .. } | Quorum::Unproven(_) => {
                Event::normal(event::BOOTSTRAP_FINISHED, "Bootstrap", "bootstrap finished")
            }
        },
        Action::PrepareRecovery => Event::normal(
            event::MAJORITY_LOST,
            "Recover",
            "a majority of the members has lost its data: condition QuorumLost describes the way out",
        ),
        Action::ArmRecovery { survivor, .. } => {
            let note = format!("{} continues without the other members, with consent", names.pod(*survivor));
            Event::normal(event::RECOVERY_STARTED, "Recover", note)
        }
        Action::RecordIncarnation { incarnation } => Event::normal(
            event::RECOVERY_COMPLETED,
            "Recover",
            format!("one member serves alone; what only others had is lost (incarnation {incarnation})"),
        ),
        Action::EndRecovery { uid: _ } => {
            Event::normal(event::RECOVERY_ENDED, "Recover", "the order for the recovery is deleted")
        }
        Action::ReplaceData { replacement: data } => Event::normal(
            event::DATA_REPLACED,
            "Restore",
            format!(
                "the cluster continues as {} with the data of EtcdRestore {}; its previous data stays on: {}",
                data.cluster,
                data.restore,
                terms.volumes(&seen.claims.keys().copied().collect::<Vec<_>>())
            ),
        ),
        Action::SetReplicas { replicas } => replicas_set(*replicas, terms, seen),
        Action::AdoptClaim { ordinal, uid: _ } => Event::normal(
            event::VOLUME_ADOPTED,
            "AdoptVolume",
            format!("adopted volume {} of the previous cluster", names.claim(*ordinal)),
        ),
        Action::DeleteClaim { ordinal, uid: _ } => Event::normal(
            event::VOLUME_DELETED,
            "DeleteVolume",
            format!("deleted volume {}", names.claim(*ordinal)),
        ),
        Action::DeletePod { ordinal, uid: _ } => {
            let pod = names.pod(*ordinal);
            match seen.claims.get(ordinal).is_none_or(|claim| claim.terminating) {
                true => {
                    let note = format!("deleted pod {pod}, to recreate it with an empty volume");
                    Event::normal(event::POD_DELETED, "ReplaceMember", note)
                }
                false => restarted(*ordinal, goal, names, seen),
            }
        }
        Action::EnableDowngrade { to, cluster: _ } => {
            let note = format!("etcd prepares its data for {}.{}", to.major, to.minor);
            Event::normal(event::DOWNGRADE_ENABLED, "RollOut", note)
        }
        Action::ForceSnapshots { to, cluster: _ } => {
            let note = format!(
                "every member saves a snapshot, which etcd 3.7 needs: a downgrade to {}.{} is enabled and cancelled again",
                to.major, to.minor
            );
            Event::normal(event::DOWNGRADE_ENABLED, "RollOut", note)
        }
        Action::CancelDowngrade { cluster: _ } => {
            Event::normal(event::DOWNGRADE_CANCELLED, "RollOut", "downgrade cancelled")
        }
        Action::UpdatePeerUrls { ordinal, member, schemes, cluster: _ } => {
            let note =
                format!("etcd lists member {member} ({}) with peer URLs for {schemes}", names.pod(*ordinal));
            Event::normal(event::PEER_URLS_UPDATED, "SwitchTLS", note)
        }
        Action::ForceDeletePod { ordinal, uid: _ } => {
            let loss = seen.pods.get(ordinal).and_then(|pod| pod.loss.as_ref());
            let why = loss.map(|loss| format!(": {loss}")).unwrap_or_default();
            let note = format!("deleted pod {} by force, after its member was removed{why}", names.pod(*ordinal));
            Event::normal(event::POD_DELETED, "ReplaceMember", note)
        }
        Action::EvictPod { ordinal, uid: _ } => restarted(*ordinal, goal, names, seen),
        Action::OrphanSet { uid: _ } => Event::normal(
            event::STATEFULSET_RECREATED,
            "RecreateStatefulSet",
            "deleted the StatefulSet without its pods, to create it again with other volumes",
        ),
        Action::DeleteSet { uid: _ } => Event::normal(event::PODS_REMOVED, "Delete", "deleting all pods"),
        Action::AddLearner { ordinal, cluster: _ } => Event::normal(
            event::MEMBER_ADDED,
            "AddMember",
            format!("added {} as a learner", names.pod(*ordinal)),
        ),
        Action::Promote { ordinal, member, cluster: _ } => {
            let note = format!("promoted {} ({member}) to a voter", names.pod(*ordinal));
            Event::normal(event::MEMBER_PROMOTED, "PromoteMember", note)
        }
        Action::MoveLeader { from, to, cluster: _ } => {
            let note = format!("moved leadership from {} to {}", terms.member(*from), terms.member(*to));
            Event::normal(event::LEADER_MOVED, "MoveLeader", note)
        }
        Action::ChangeAuth { step, cluster: _ } => {
            let reason = match step {
                auth::Step::AddRootRole | auth::Step::AddUser(_) | auth::Step::GrantRootRole(_) => return None,
                auth::Step::Enable => event::AUTH_ENABLED,
                auth::Step::Disable => event::AUTH_DISABLED,
                auth::Step::SetRootPassword => event::ROOT_PASSWORD_CHANGED,
            };
            Event::normal(reason, "ChangeAuthentication", auth_changed(*step, goal))
        }
        Action::Compact { revision, cluster: _ } => {
            let note = format!("compacted the history of keys up to revision {revision}: the database was full");
            Event::new(true, event::HISTORY_COMPACTED, "ReclaimSpace", note)
        }
        Action::Defragment { member, cause, cluster: _ } => {
            let note = format!("defragmented {}, because {}", terms.member(*member), cause.words());
            Event::normal(event::MEMBER_DEFRAGMENTED, "ReclaimSpace", note)
        }
        Action::Disarm { kind, cluster: _ } => {
            let action = match kind {
                AlarmKind::NoSpace => "ReclaimSpace",
                AlarmKind::Corrupt => "RestoreConsistency",
            };
            let note = format!("disarmed the alarm {}: writes succeed again", kind.name());
            Event::normal(event::ALARM_DISARMED, action, note)
        }
        Action::RemoveMember { member, cluster: _ } => {
            let facts = assess(seen);
            let loss = facts.node_loss(*member).map(|loss| format!(": {loss}"));
            let why = loss.or_else(|| differs(*member, seen)).unwrap_or_default();
            let note = format!("removed {} from the members{why}", terms.member(*member));
            Event::normal(event::MEMBER_REMOVED, "RemoveMember", note)
        }
    })
}

/// Why a member is replaced that has other data than the majority.
fn differs(member: MemberId, seen: &Observed) -> Option<String> {
    let Verdict::Minority(members) = seen.etcd.compared.verdict(seen.etcd.members.known()?) else {
        return None;
    };
    let revision = seen.etcd.compared.last.as_ref()?.revision;
    let why = format!(": at revision {revision} its data differed from that of the majority");
    members.contains(&member).then_some(why)
}

fn auth_changed(step: auth::Step, goal: &Goal) -> String {
    match (step, goal.auth.root_password_secret()) {
        (auth::Step::SetRootPassword, Some(secret)) => {
            format!("changed the password of root to that of Secret {secret}")
        }
        (auth::Step::Disable, _) => "disabled etcd authentication, as the spec asks for; users and roles stay".into(),
        _ => "enabled etcd authentication: clients need the rights that you grant to the names in their certificates".into(),
    }
}

fn restarted(ordinal: Ordinal, goal: &Goal, names: &Names, seen: &Observed) -> Event {
    let cost = if assess(seen).restart_stops_writes(ordinal) { ": writes stop until it returns" } else { "" };
    let reason = seen.pods.get(&ordinal).and_then(|pod| Reason::of(pod, goal, seen).next());
    let why = reason.map(|reason| format!(" {}", reason.words())).unwrap_or_default();
    let note = format!("restarting {}{why}{cost}", names.pod(ordinal));
    Event::normal(event::MEMBER_RESTARTED, "RollOut", note)
}

fn replicas_set(replicas: u8, terms: Terms<'_>, seen: &Observed) -> Event {
    let before = seen.replicas();
    let between = |from: u8, to: u8| Ordinal::below(to).skip(usize::from(from)).collect::<Vec<_>>();
    if replicas == before {
        let note = "created the StatefulSet again; its pods run on";
        Event::normal(event::STATEFULSET_RECREATED, "RecreateStatefulSet", note)
    } else if replicas > before {
        let note = format!("creating pods: {}", terms.pods(&between(before, replicas)));
        Event::normal(event::PODS_CREATED, "CreatePods", note)
    } else {
        let note = format!("removing pods: {}", terms.pods(&between(replicas, before)));
        Event::normal(event::PODS_REMOVED, "RemovePods", note)
    }
}

/// The events of a status that follows another. What was reported before is not reported again.
pub fn of_change(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus) -> Vec<Event> {
    let nothing = EtcdClusterStatus::default();
    let change = Change { before: before.unwrap_or(&nothing), after };
    [
        change.phase(),
        change.quorum(),
        change.stalled(),
        change.rollout(),
        change.failing_step(),
        change.node_lost(),
        change.serving(),
        change.pause(),
    ]
    .into_iter()
    .flatten()
    .chain(change.warnings())
    .collect()
}

struct Change<'a> {
    before: &'a EtcdClusterStatus,
    after: &'a EtcdClusterStatus,
}

impl<'a> Change<'a> {
    /// The condition, if it has this value now and did not say the same before.
    fn news(&self, type_: &str, value: &str) -> Option<&'a Condition> {
        let now = find(&self.after.conditions, type_).filter(|it| it.status == value)?;
        let known = find(&self.before.conditions, type_).is_some_and(|then| {
            then.status == now.status && then.reason == now.reason && then.message == now.message
        });
        (!known).then_some(now)
    }

    /// Whether the condition has just taken this value.
    fn turned(&self, type_: &str, value: &str) -> Option<&'a Condition> {
        let was = find(&self.before.conditions, type_).is_some_and(|it| it.status == value);
        find(&self.after.conditions, type_).filter(|it| it.status == value && !was)
    }

    /// Other phases are reported step by step, and a failure by its cause.
    fn phase(&self) -> Option<Event> {
        if self.before.phase == self.after.phase {
            return None;
        }
        match self.after.phase? {
            Phase::Running => {
                let count = |count: Option<i32>| count.unwrap_or(0);
                let (ready, members) = (count(self.after.ready_replicas), count(self.after.replicas));
                let note = format!("{ready} of {members} members are serving");
                Some(Event::normal(event::RUNNING, "Report", note))
            }
            Phase::Stopped => Some(Event::normal(event::STOPPED, "Report", "stopped: no member runs")),
            Phase::Creating | Phase::Scaling | Phase::Upgrading | Phase::Failed | Phase::Deleting => None,
        }
    }

    fn quorum(&self) -> Option<Event> {
        let lost = self.turned(condition::QUORUM_LOST, "True");
        let was_lost =
            find(&self.before.conditions, condition::QUORUM_LOST).is_some_and(|it| it.status == "True");
        let serves = find(&self.after.conditions, condition::AVAILABLE).is_some_and(|it| it.status == "True");
        match lost {
            Some(lost) => Some(Event::new(true, reason::QUORUM_LOST, "Report", &lost.message)),
            None if was_lost && serves => {
                Some(Event::normal(event::QUORUM_RECOVERED, "Report", "a quorum serves again"))
            }
            None => None,
        }
    }

    /// A lost quorum has an event of its own.
    fn stalled(&self) -> Option<Event> {
        let stalled = self.news(condition::STALLED, "True").filter(|it| it.reason != reason::QUORUM_LOST)?;
        let before = find(&self.before.conditions, condition::STALLED);
        let same = before.is_some_and(|it| it.status == "True" && it.reason == stalled.reason);
        (!same).then(|| Event::new(true, &stalled.reason, "Reconcile", &stalled.message))
    }

    fn rollout(&self) -> Option<Event> {
        let stalled = self.news(condition::ROLLOUT_STALLED, "True")?;
        let before = find(&self.before.conditions, condition::ROLLOUT_STALLED);
        let same = before.is_some_and(|it| it.status == "True" && it.reason == stalled.reason);
        (!same).then(|| Event::new(true, event::ROLLOUT_STALLED, "RollOut", &stalled.message))
    }

    fn failing_step(&self) -> Option<Event> {
        let failed =
            self.news(condition::RECONCILING, "True").filter(|it| it.reason == reason::STEP_FAILED)?;
        Some(Event::new(true, reason::STEP_FAILED, "Reconcile", &failed.message))
    }

    fn node_lost(&self) -> Option<Event> {
        let lost = self.news(condition::RECONCILING, "True").filter(|it| it.reason == reason::NODE_LOST)?;
        Some(Event::new(true, reason::NODE_LOST, "Reconcile", &lost.message))
    }

    /// Members that stop serving and return while the cluster runs.
    fn serving(&self) -> Option<Event> {
        if self.before.phase != Some(Phase::Running) || self.after.phase != Some(Phase::Running) {
            return None;
        }
        let away = self.news(condition::READY, "False").filter(|it| it.reason == reason::MEMBERS_NOT_SERVING);
        let was_away = find(&self.before.conditions, condition::READY)
            .is_some_and(|it| it.reason == reason::MEMBERS_NOT_SERVING);
        let back = self.turned(condition::READY, "True").filter(|_| was_away);
        match (away, back) {
            (Some(away), _) => Some(Event::new(true, reason::MEMBERS_NOT_SERVING, "Report", &away.message)),
            (None, Some(back)) => Some(Event::normal(reason::ALL_MEMBERS_SERVING, "Report", &back.message)),
            (None, None) => None,
        }
    }

    fn pause(&self) -> Option<Event> {
        let is = |status: &EtcdClusterStatus| find(&status.conditions, condition::PAUSED).is_some();
        match (is(self.before), is(self.after)) {
            (false, true) => {
                Some(Event::normal(event::PAUSED, "Pause", "paused: the operator makes no changes"))
            }
            (true, false) => {
                Some(Event::normal(event::RESUMED, "Resume", "resumed: the operator makes changes again"))
            }
            (true, true) | (false, false) => None,
        }
    }

    fn warnings(&self) -> Vec<Event> {
        let alarm = self.news(condition::AVAILABLE, "False").filter(|it| it.reason == reason::ALARM_ACTIVE);
        let held = self.news(condition::READY, "False").filter(|it| it.reason == reason::NOT_ROLLED_OUT);
        let consent =
            self.news(condition::RECONCILING, "False").filter(|it| it.reason == reason::CONSENT_REQUIRED);
        let resize = self.news(condition::VOLUMES_DIFFER, "True");
        let resize = resize.filter(|it| it.reason == reason::VOLUME_RESIZE_FAILED);
        let tls = self.news(condition::TLS_READY, "False");
        let under_way = [reason::CERTIFICATES_PENDING, reason::CERTIFICATE_NOT_ISSUED, reason::SWITCHING_TLS];
        let tls = tls.filter(|it| !under_way.contains(&it.reason.as_str()));
        let passwords = [reason::ROOT_PASSWORD_MISSING, reason::ROOT_PASSWORD_INEFFECTIVE];
        let told = [&passwords[..], &[reason::AUTH_NOT_WANTED, reason::TLS_NOT_IN_EFFECT]].concat();
        let auth = self.news(condition::AUTH_READY, "False").filter(|it| told.contains(&it.reason.as_str()));
        let attention = [reason::RENEWAL_OVERDUE, reason::PREVIOUS_CERTIFICATE_SERVED];
        let tls_warning = self.news(condition::TLS_READY, "True");
        let tls_warning = tls_warning.filter(|it| attention.contains(&it.reason.as_str()));
        let tls = tls.into_iter().chain(tls_warning);
        let news = [
            (condition::WRITE_FAILED, "True"),
            (condition::SPEC_WARNING, "True"),
            (condition::DRAINS_BLOCKED, "True"),
            (condition::DATA_CONSISTENT, "False"),
        ]
        .into_iter()
        .filter_map(|(type_, value)| self.news(type_, value));
        let events =
            alarm.into_iter().chain(held).chain(consent).chain(resize).chain(tls).chain(auth).chain(news);
        events.map(|it| Event::new(true, &it.reason, "Check", &it.message)).collect()
    }
}

#[cfg(test)]
mod tests;
