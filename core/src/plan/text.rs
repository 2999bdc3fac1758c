//! Plans in words, for people: logs, events and conditions all use these.

use std::fmt;

use super::{Action, Obstacle, Plan, Refusal, WaitingOn};
use crate::api::Quantity;
use crate::asked::{APPROVE_ROLLOUT, Accepted, REPLACE_MEMBER, RESTART};
use crate::auth::{self, ROOT_ROLE, User};
use crate::names::{ADOPT_ANNOTATION, ANNOTATION_OF, Names, REPLACE_ANNOTATION, REPLACED_BY_LABEL};
use crate::observed::{MemberId, Observed, Ordinal};
use crate::restores::Replacement;
use crate::tls::{Copy, Purpose, Section, Stage, Tally};

/// One line for each thing that is done, awaited or refused.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { actions, waiting, refusals } = self;
        actions.iter().try_for_each(|action| writeln!(f, "do: {action}"))?;
        waiting.iter().try_for_each(|awaited| writeln!(f, "wait for: {awaited}"))?;
        refusals.iter().try_for_each(|refusal| writeln!(f, "refuse: {refusal}"))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Terms::Numbers.action(self))
    }
}

impl fmt::Display for auth::Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddRootRole => write!(f, "create the role {ROOT_ROLE} in etcd"),
            Self::AddUser(user) => write!(f, "create the user {} in etcd", user.name()),
            Self::GrantRootRole(user) => {
                write!(f, "grant the role {ROOT_ROLE} to the user {} in etcd", user.name())
            }
            Self::Enable => f.write_str("enable authentication in etcd"),
            Self::Disable => f.write_str("disable authentication in etcd"),
            Self::SetRootPassword => write!(f, "set the password of the user {} in etcd", User::Root.name()),
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Terms::Numbers.awaited(self))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Terms::Numbers.refused(self))
    }
}

/// What pods, volumes and members are called.
#[derive(Clone, Copy)]
pub enum Terms<'a> {
    /// As decisions know them: shorter, and exact.
    Numbers,
    /// As users know them. Numbers that change with every observation are rounded, so that the text stays the same.
    Names { names: &'a Names, seen: &'a Observed },
}

impl Terms<'_> {
    pub fn action(self, action: &Action) -> String {
        match action {
            Action::AddFinalizer => "add the finalizer".into(),
            Action::RemoveFinalizer => "remove the finalizer".into(),
            Action::RecordFormed { cluster } => {
                format!("record that the cluster has bootstrapped as {cluster}")
            }
            Action::IssueCertificate { purpose, cause } => {
                format!("issue the certificate in {}: {}", self.secret(*purpose), cause.words())
            }
            Action::CopyCertificate { copy: Copy::First | Copy::Given } => {
                format!("copy the certificate of the user into {}", self.secret(Purpose::Server))
            }
            Action::CopyCertificate { copy: Copy::Held } => format!(
                "write {} with the certificate that is there: other authorities are to be trusted with it",
                self.secret(Purpose::Server)
            ),
            Action::RotateAuthority { purpose, stage } => {
                let secret = self.secret(*purpose);
                match stage {
                    Stage::Introduce => format!("create the next authority in {secret}"),
                    Stage::Promote => format!("let the next authority in {secret} sign"),
                    Stage::Withdraw => format!("withdraw the previous authority from {secret}"),
                    Stage::Accept => format!("update the authorities of the user in {secret}"),
                }
            }
            Action::CreateOrder { size } => format!("prepare the bootstrap of {size} pods"),
            Action::ArmOrder { uid: _ } => "allow the pods to bootstrap".into(),
            Action::DeleteOrder { uid: _ } => "end the bootstrap".into(),
            Action::PrepareRecovery => "record that a majority of the members has lost its data".into(),
            Action::ArmRecovery { survivor, .. } => {
                format!("let {} continue without the other members", self.pod(*survivor))
            }
            Action::RecordIncarnation { incarnation } => {
                format!("record that the data comes from recovery {incarnation}")
            }
            Action::EndRecovery { uid: _ } => "end the recovery".into(),
            Action::RetireClaim { ordinal, by, uid: _ } => {
                format!("label {} as replaced by EtcdRestore {by}", self.volume(*ordinal))
            }
            Action::ReplaceData { replacement: Replacement { restore, cluster, volumes, .. } } => format!(
                "record that the cluster continues as {cluster}, with the data of EtcdRestore {restore} on volumes {volumes}"
            ),
            Action::RecordVolumes { volumes } => format!("record that the volumes are called {volumes}"),
            Action::SetReplicas { replicas } => format!("scale the StatefulSet to {replicas} pods"),
            Action::LabelClaim { ordinal, uid: _, member } => {
                format!("label {} with its member {member}", self.volume(*ordinal))
            }
            Action::DeleteClaim { ordinal, uid: _ } => format!("delete {}", self.volume(*ordinal)),
            Action::AdoptClaim { ordinal, uid: _ } => format!("adopt {}", self.volume(*ordinal)),
            Action::DeletePod { ordinal, uid: _ } => format!("delete {}", self.pod(*ordinal)),
            Action::ForceDeletePod { ordinal, uid: _ } => {
                format!("delete {} by force, because its node is lost", self.pod(*ordinal))
            }
            Action::EvictPod { ordinal, uid: _ } => format!("evict {}", self.pod(*ordinal)),
            Action::CreatePreflight { ordinal, node } => {
                format!("create {} on node {node}", self.preflight(*ordinal))
            }
            Action::DeletePreflight { ordinal, uid: _ } => format!("delete {}", self.preflight(*ordinal)),
            Action::RecordForm { form } => match self {
                Self::Numbers => format!("record that all members have form {form}"),
                Self::Names { .. } => "record what all members run with".into(),
            },
            Action::SetTemplate { form } => match self {
                Self::Numbers => format!("let the StatefulSet create pods of form {form}"),
                Self::Names { .. } => "update the pod template of the StatefulSet".into(),
            },
            Action::Accept(Accepted::Restart { token, pods: _ }) => format!("accept the restart {token}"),
            Action::Accept(Accepted::MoveLeader { token }) => {
                format!("record the move of leadership {token}")
            }
            Action::Accept(Accepted::Rotation { token, authorities: _ }) => {
                format!("accept the rotation of authorities {token}")
            }
            Action::EnableDowngrade { to, cluster: _ } => {
                format!("enable the downgrade to {}.{}", to.major, to.minor)
            }
            Action::CancelDowngrade { cluster: _ } => "cancel the downgrade".into(),
            Action::ForceSnapshots { to, cluster: _ } => format!(
                "let every member save a snapshot, by a downgrade to {}.{} that is cancelled then",
                to.major, to.minor
            ),
            Action::RecordCleared { members } if members.is_empty() => {
                "record that logs can have entries of 3.5 again".into()
            }
            Action::RecordCleared { members } => {
                let members: Vec<_> = members.iter().copied().collect();
                format!("record that the logs of {} have no entries of 3.5", self.members(&members))
            }
            Action::RecordTls { section: Section::InForce } => {
                "record that spec.security.tls takes effect".into()
            }
            Action::RecordTls { section: Section::Dormant(_) } => {
                "record that spec.security.tls waits for an edit".into()
            }
            Action::UpdatePeerUrls { ordinal, member, schemes, cluster: _ } => {
                format!("list member {member} ({}) with peer URLs for {schemes}", self.pod(*ordinal))
            }
            Action::DeleteSet { uid: _ } => "delete the StatefulSet".into(),
            Action::OrphanSet { uid: _ } => {
                "delete the StatefulSet without its pods, to create it again with other volumes".into()
            }
            Action::AddLearner { ordinal, cluster: _ } => format!("add {} as a learner", self.pod(*ordinal)),
            Action::Promote { ordinal, member, cluster: _ } => {
                format!("promote learner {member} ({}) to a voter", self.pod(*ordinal))
            }
            Action::MoveLeader { from, to, cluster: _ } => {
                format!("move leadership from {} to {}", self.member(*from), self.member(*to))
            }
            Action::RemoveMember { member, cluster: _ } => format!("remove member {}", self.member(*member)),
            Action::ChangeAuth { step, cluster: _ } => step.to_string(),
            Action::Compact { revision, cluster: _ } => {
                format!("compact the history of keys up to revision {revision}, because the database is full")
            }
            Action::Defragment { member, cause, cluster: _ } => {
                format!("defragment member {}, because {}", self.member(*member), cause.words())
            }
            Action::Disarm { kind, cluster: _ } => {
                format!("disarm the alarm {} and try a write", kind.name())
            }
        }
    }

    pub fn awaited(self, awaited: &WaitingOn) -> String {
        match awaited {
            WaitingOn::Restore { restore } => format!("EtcdRestore {restore} to restore the data"),
            WaitingOn::Replacement { restore, obstacle } => {
                format!(
                    "a chance to replace the data by that of EtcdRestore {restore}: {}",
                    obstacle.text(self)
                )
            }
            WaitingOn::Unpause => "spec.paused to be set to false".into(),
            WaitingOn::Formation { missing } => {
                format!("the cluster to bootstrap; etcd not started yet in: {}", self.pods(missing))
            }
            WaitingOn::Quorum { cause } => format!("a quorum to respond: {cause}"),
            WaitingOn::Leader => "a leader to be elected".into(),
            WaitingOn::Pod { ordinal, state } => format!("{}: {}", self.pod(*ordinal), state.text()),
            WaitingOn::CatchUp { ordinal, behind: Some(behind) } => {
                format!("learner {} to catch up: {}", self.bare(*ordinal), self.behind(*behind))
            }
            WaitingOn::CatchUp { ordinal, behind: None } => {
                format!("learner {} to report its applied index", self.bare(*ordinal))
            }
            WaitingOn::Fence { ordinals } if ordinals.is_empty() => "the pod of the survivor".into(),
            WaitingOn::Fence { ordinals } => {
                format!("other pods to end, and their volumes to be inspected: {}", self.pods(ordinals))
            }
            WaitingOn::ForcedStart { survivor } => {
                format!("etcd in {} to serve without the other members", self.pod(*survivor))
            }
            WaitingOn::Start { ordinal } => format!("member {} to start", self.bare(*ordinal)),
            WaitingOn::Voters { serving, needed } => {
                format!("more voters to serve before etcd accepts a new member: {serving} of {needed}")
            }
            WaitingOn::Recovery { ordinal, member } => {
                format!("member {member} ({}) to return before the operator replaces it", self.pod(*ordinal))
            }
            WaitingOn::NodeReturn { member, node, until, .. } => format!(
                "node {node} to return: the operator replaces member {} at {until:.0} otherwise",
                self.member(*member)
            ),
            WaitingOn::Isolation { member, by, connected: true, .. } => format!(
                "member {} to be cut off before the operator replaces it: its node is lost, and member {} is still \
                 connected to it",
                self.member(*member),
                self.member(*by)
            ),
            WaitingOn::Isolation { member, by, connected: false, .. } => format!(
                "member {} to report whether it is connected to member {}, whose node is lost",
                self.member(*by),
                self.member(*member)
            ),
            WaitingOn::OthersJoin { member, joining, .. } => format!(
                "{} to join before the operator replaces member {}, whose node is lost",
                self.pods(joining),
                self.member(*member)
            ),
            WaitingOn::OtherNode { member, node, .. } => format!(
                "a node that accepts member {}: node {node} is lost, and no other node accepts the member; add a node, \
                 uncordon one, or bring {node} back",
                self.member(*member)
            ),
            WaitingOn::Volumes { ordinals } => format!(
                "the agents to inspect the volumes of {}: they show whether bootstrap completed",
                self.pods(ordinals)
            ),
            WaitingOn::Hashes { missing } => format!("data hash from {}", self.members(missing)),
            WaitingOn::Comparison { members, .. } if members.is_empty() => {
                "a comparison of the data of all members, because etcd raised the alarm CORRUPT".into()
            }
            WaitingOn::Comparison { members, .. } => format!(
                "a second comparison of data at another revision, before a member is replaced: other data than the majority in {}",
                self.members(members)
            ),
            WaitingOn::Window { members, opens } => format!(
                "a maintenance window to defragment {}: {}",
                self.members(members),
                match opens {
                    Some(time) => format!("the next one opens at {time:.0}"),
                    None => "set spec.maintenance.windows, because reads and writes stop meanwhile".into(),
                }
            ),
            WaitingOn::SetGone => "the StatefulSet to be deleted, to create it again".into(),
            WaitingOn::OthersServe { down } => {
                format!("other members to serve before the next one is replaced: {}", self.members(down))
            }
            WaitingOn::Template => "the StatefulSet controller to read the new pod template".into(),
            WaitingOn::Preflight { ordinals } => {
                format!("preflight pods to succeed: {}", list(ordinals, |&it| self.bare_preflight(it)))
            }
            WaitingOn::Copy { backup, problem, token: _ } => {
                let problem = problem.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
                format!("a copy by EtcdBackup {backup}, before the version changes{problem}")
            }
            WaitingOn::Rolled { ordinal, state } => {
                format!("{} to serve after its restart: {}", self.pod(*ordinal), state.text())
            }
            WaitingOn::PodsBack { ordinals } => format!("pods to return: {}", self.pods(ordinals)),
            WaitingOn::Approval { form } => format!(
                "approval of the rollout: set the annotation {ANNOTATION_OF}{APPROVE_ROLLOUT}={form}, or edit the spec back"
            ),
            WaitingOn::Consent { ordinals, reason, opens } => {
                let window = match opens {
                    Some(time) => format!("wait for the maintenance window at {time:.0}"),
                    None => "set spec.maintenance.windows".into(),
                };
                format!(
                    "consent to restart {} {}, which stops writes: set the annotation {ANNOTATION_OF}{RESTART}=TOKEN, \
                     or {window}",
                    self.pods(ordinals),
                    reason.words()
                )
            }
            WaitingOn::Successor { ordinal } => {
                format!("{} to be a voter that serves, to move leadership to it", self.pod(*ordinal))
            }
            WaitingOn::Versions => "all members to report their versions".into(),
            WaitingOn::StorageVersion { version } => {
                format!("all members to rewrite their data for {}.{}", version.major, version.minor)
            }
            WaitingOn::Snapshots { saved, members } => format!(
                "every member to save a snapshot, because etcd 3.7 cannot read log entries of 3.5: {saved} of {members}"
            ),
            WaitingOn::AlarmsCleared { kind } => {
                format!("the {kind} alarm to be cleared before the version changes")
            }
            WaitingOn::DowngradeEnd { to } => format!(
                "the downgrade to {}.{} to end before members are added or replaced: set spec.version back to cancel it",
                to.major, to.minor
            ),
            WaitingOn::Connection { from, to } => format!(
                "member {} to connect to member {}: DNS can return a previous address for half a minute",
                self.member(*from),
                self.member(*to)
            ),
            WaitingOn::QuorumMargin { ordinal, serving, needed } => format!(
                "other members to serve before {} restarts: {serving} of {needed}",
                self.pod(*ordinal)
            ),
            WaitingOn::Trust { authority, tally } => format!(
                "members to trust the new authority in {}: {}",
                self.secret(*authority),
                self.tally(tally)
            ),
            WaitingOn::Use { purpose, tally } => format!(
                "members to serve the new certificate in {}: {}",
                self.secret(*purpose),
                self.tally(tally)
            ),
            WaitingOn::Clients { purpose, until } => {
                format!("clients to read the new certificate in {}, until {until:.0}", self.secret(*purpose))
            }
            WaitingOn::Issuance { problems } => {
                format!("cert-manager to issue the certificate of the client port: {}", problems.join("; "))
            }
            WaitingOn::PodsGone { ordinals } => format!("pods to terminate: {}", self.pods(ordinals)),
            WaitingOn::ClaimsGone { ordinals } => {
                format!("volumes to be deleted: {}", self.volumes(ordinals))
            }
        }
    }

    pub fn refused(self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::ForeignVolumes { ordinals, cluster_uid, adoptable } => {
                let volumes = self.volumes(ordinals);
                let way_out = match adoptable {
                    true => format!(
                        "delete them, or adopt them with the annotation {ADOPT_ANNOTATION}={cluster_uid}"
                    ),
                    false => "delete them; a cluster that already has data cannot adopt volumes".into(),
                };
                format!(
                    "volumes {volumes} belong to a previous cluster of this name (UID {cluster_uid}): {way_out}"
                )
            }
            Refusal::ReplacedVolumes { ordinals } => format!(
                "an EtcdRestore has replaced the data on {}: delete these volumes, or remove the label {REPLACED_BY_LABEL} from \
                 them to use their data again",
                self.volumes(ordinals)
            ),
            Refusal::VolumesElsewhere { claims, cluster_uid } => format!(
                "volumes {} of a cluster of this name (UID {cluster_uid}) have data: delete those that you do not need; if that \
                 cluster is deleted, adopt its volumes with the annotation {ADOPT_ANNOTATION}={cluster_uid}",
                claims.join(", ")
            ),
            Refusal::FormationFailed { ordinals } => format!(
                "etcd exited before writing data in {}, so bootstrap cannot complete: see kubectl logs --previous; \
                 if the other volumes hold no data you need, delete the cluster with its volumes and create it again",
                self.pods(ordinals)
            ),
            Refusal::UnknownMember { member } => format!(
                "etcd lists member {member}, which matches no pod of this cluster: run etcdctl member remove {member} \
                 if it is not needed"
            ),
            Refusal::ForeignCluster { expected, found } => {
                format!(
                    "etcd responds as cluster {found}, but this cluster bootstrapped as {expected}: the volumes were \
                     probably swapped, put the original volumes back"
                )
            }
            Refusal::QuorumWouldBeLost { member, serving_after, quorum_after } => format!(
                "removing member {} would leave {serving_after} serving voters and quorum needs {quorum_after}: \
                 restore another member first",
                self.member(*member)
            ),
            Refusal::LastVoter { member } => {
                format!("member {} is the last voter and cannot be removed", self.member(*member))
            }
            Refusal::NoCertificateGiven { problems, .. } => {
                format!(
                    "no pod starts before the certificate of the client port can be used: {}",
                    problems.join("; ")
                )
            }
            Refusal::DataLost => {
                "no volume of this cluster holds data any more: restore a backup into a new cluster".into()
            }
            Refusal::StopNeedsQuorum { cause } => format!(
                "stopping needs a quorum, to keep the newest data ({cause}): restore members, or delete the cluster"
            ),
            Refusal::ConsentBeforeLoss => {
                "spec.recovery.acceptDataLoss has no effect, because it was there before the operator has reported what would \
                 be lost, or because it was used: remove it, and give it again when condition QuorumLost describes the loss"
                    .into()
            }
            Refusal::ConsentForOther { given, actual } => format!(
                "spec.recovery.acceptDataLoss.clusterID is {given}, and the cluster is {actual}: change it only if this is the \
                 cluster that you mean"
            ),
            Refusal::MayReturn { ordinals } => {
                let states = ordinals.iter().map(|(it, state)| format!("{}: {}", self.pod(*it), state.text()));
                format!(
                    "recovery refused, because these might have data or still serve: {}; bring them back, so that nothing is lost. \
                     What is lost for good: make sure that it does not run any more (a node that does not respond has to be \
                     off), then delete its PersistentVolumeClaim and its pod",
                    states.collect::<Vec<_>>().join("; ")
                )
            }
            Refusal::NoSurvivor => {
                "recovery refused: no member responds that could continue alone, so restore a backup into a new cluster".into()
            }
            Refusal::SurvivorUnusable { named, usable } => format!(
                "recovery refused: no voting member responds in pod {}; set spec.recovery.acceptDataLoss.survivor to Auto or to one of: {}",
                named.parse().map_or_else(|_| named.clone(), |it| self.bare(Ordinal(it))),
                self.pods(usable)
            ),
            Refusal::SurvivorForm { survivor } => format!(
                "recovery refused: {} would start again with another version or other settings than it has; save a snapshot of it, and \
                 load that into a new cluster",
                self.pod(*survivor)
            ),
            Refusal::RecoveryIncomplete { survivor } => format!(
                "etcd in {} was started without the other members, once, and does not serve: see its log; to try again, remove \
                 spec.recovery.acceptDataLoss and give it again",
                self.pod(*survivor)
            ),
            Refusal::NoSuccessor { leader } => format!(
                "no other voter serves, so leadership cannot move from member {}: restore another member first",
                self.member(*leader)
            ),
            Refusal::EditHeld => {
                "an edit that a previous version of the operator did not roll out waits for the next \
                edit of the spec"
                    .into()
            }
            Refusal::PreflightFailed { ordinal, node, exit } => format!(
                "{} on node {node}: {}; no member was restarted: revert the edit, or correct it",
                self.preflight(*ordinal),
                exit.once()
            ),
            Refusal::NoCopy { backup, problem } => format!(
                "EtcdBackup {backup} took no copy before the version changes: {problem}; no member was restarted: correct the \
                 EtcdBackup, set its spec.suspend to true to continue without a copy, or set spec.version back"
            ),
            Refusal::VersionPath(refusal) => format!("spec.version: {refusal}"),
            Refusal::VolumesCannotShrink { wanted_bytes, volumes } => {
                let largest = volumes.iter().map(|(_, bytes)| *bytes).max().unwrap_or(*wanted_bytes);
                let volumes = list(volumes, |(it, bytes)| {
                    format!("{} has {}", self.volume(*it), Quantity::of_bytes(*bytes))
                });
                format!(
                    "spec.storage.size: volumes cannot shrink to {}: {volumes}; set it to {} or more",
                    Quantity::of_bytes(*wanted_bytes),
                    Quantity::of_bytes(largest)
                )
            }
            Refusal::ClassNeedsMembers { ordinal, class, wanted } => format!(
                "spec.storage.storageClassName: {} cannot move to class {wanted}, and the only member has no other \
                 copy of its data: set spec.size to 3, so that it can be replaced, or set the class back{}",
                self.volume(*ordinal),
                class.as_ref().map(|class| format!(" to {class}")).unwrap_or_default()
            ),
            Refusal::OldEntries { members } => format!(
                "spec.version: the logs of {} might have entries of 3.5, which etcd 3.7 cannot read: set spec.version back \
                 to the previous version, and forward again when all members run it",
                self.members(members)
            ),
            Refusal::DatabaseFull { member, size, quota, again } => {
                let (size, quota) = (Quantity::of_bytes(*size), Quantity::of_bytes(*quota));
                let member = self.member(*member);
                let what = match again {
                    true => format!("the database of member {member} is full again within an hour"),
                    false => format!("the database of member {member} stays full after a defragmentation"),
                };
                format!(
                    "{what}: it has {size}, and the quota is {quota}; delete keys, or raise spec.options.quotaBackendBytes, and \
                     spec.storage.size with it"
                )
            }
            Refusal::AccessDenied { identified } => self.access_denied(*identified),
            Refusal::NoMajority { members } => format!(
                "members {} hold different data and no majority agrees, so the operator changes no member: replace the members with \
                 wrong data one at a time with the annotation {ANNOTATION_OF}{REPLACE_MEMBER}=ID, or restore a backup into a new \
                 cluster",
                self.members(members)
            ),
            Refusal::CorruptAgain => "etcd raised the alarm CORRUPT again within an hour, although all members return the same hash: \
                see the logs of etcd, and run etcdctl alarm disarm"
                .into(),
            Refusal::HashesDiffer { members } => format!(
                "members {} hold different data: remove the wrong ones with etcdctl member remove, or set \
                 spec.storage.onStop to RetainAll",
                self.members(members)
            ),
        }
    }

    /// How a user gives the operator access again.
    fn access_denied(self, identified: bool) -> String {
        let operator = User::Operator.name();
        let etcdctl = match self {
            Self::Numbers => "etcdctl --user root".into(),
            Self::Names { names, .. } => {
                format!("kubectl exec -it {} -c etcd -- etcdctl --user root", names.pod(Ordinal(0)))
            }
        };
        match identified {
            true => format!(
                "etcd authentication is enabled and its user {operator} does not have the root role, so etcd rejects the \
                 operator: run {etcdctl} user add {operator} --no-password, and then user grant-role {operator} {ROOT_ROLE} \
                 in the same way; or run {etcdctl} auth disable"
            ),
            false => format!(
                "etcd authentication is enabled and clients connect in plain text, so etcd rejects the operator: run \
                 {etcdctl} auth disable"
            ),
        }
    }

    fn bare(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => ordinal.to_string(),
            Self::Names { names, .. } => names.pod(ordinal),
        }
    }

    pub fn pod(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => format!("pod {ordinal}"),
            Self::Names { names, .. } => names.pod(ordinal),
        }
    }

    pub fn preflight(self, ordinal: Ordinal) -> String {
        format!("preflight pod {}", self.bare_preflight(ordinal))
    }

    fn bare_preflight(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => ordinal.to_string(),
            Self::Names { names, .. } => names.preflight(ordinal),
        }
    }

    fn secret(self, purpose: Purpose) -> String {
        match self {
            Self::Numbers => format!("Secret {}", purpose.suffix()),
            Self::Names { names, .. } => format!("Secret {}", names.secret(purpose)),
        }
    }

    /// Such as `1 of 3; not known of kv-2`.
    fn tally(self, tally: &Tally) -> String {
        let counted = format!("{} of {}", tally.yes.len(), tally.members());
        match tally.unknown.is_empty() {
            true => counted,
            false => format!("{counted}; no TLS handshake with {}", self.pods(&tally.unknown)),
        }
    }

    fn volume(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => format!("volume {ordinal}"),
            Self::Names { names, .. } => format!("volume {}", names.claim(ordinal)),
        }
    }

    /// With the pod that it runs in, if that is known.
    pub fn member(self, id: MemberId) -> String {
        match self {
            Self::Numbers => id.to_string(),
            Self::Names { names, seen } => {
                let listed = seen.etcd.members.known().and_then(|members| members.list.get(&id)?.ordinal);
                listed.map_or_else(|| id.to_string(), |ordinal| format!("{} ({id})", names.pod(ordinal)))
            }
        }
    }

    pub fn behind(self, entries: u64) -> String {
        match self {
            Self::Numbers => format!("{entries} entries behind"),
            Self::Names { .. } => {
                let rounded = 10_u64.pow(entries.checked_ilog10().unwrap_or(0));
                format!("at least {rounded} entries behind")
            }
        }
    }

    pub fn pods(self, ordinals: &[Ordinal]) -> String {
        list(ordinals, |&ordinal| self.bare(ordinal))
    }

    pub fn volumes(self, ordinals: &[Ordinal]) -> String {
        list(ordinals, |&ordinal| match self {
            Self::Numbers => ordinal.to_string(),
            Self::Names { names, .. } => names.claim(ordinal),
        })
    }

    fn members(self, members: &[MemberId]) -> String {
        list(members, |&id| self.member(id))
    }
}

impl Obstacle {
    fn text(&self, terms: Terms<'_>) -> String {
        match self {
            Self::NodeLost { ordinals } => format!(
                "the node of {} is lost, so nobody can tell when the pod has ended: bring it back, wait until the member is \
                 replaced, or make sure that the node is off and delete the pod by force",
                terms.pods(ordinals)
            ),
            Self::InvalidSpec => "the spec breaks rules".into(),
            Self::VolumeGone => {
                format!("the volume with that data is gone; create another EtcdRestore, or remove the annotation {REPLACE_ANNOTATION}")
            }
            Self::NotPrepared => "its volume is being released".into(),
            Self::StopDeletes => "spec.size is 0 and spec.storage.onStop is Delete, which would delete the restored data, too: \
                set one of them to something else"
                .into(),
            Self::Bootstrapping => "the bootstrap is not over".into(),
            Self::Recovering => "a member is about to continue without the others".into(),
            Self::ChangesVersion { from, to } => {
                format!("the members change from {from} to {to}: that has to end, or spec.version to be set back")
            }
            Self::OtherVersion { prepared, runs } => format!(
                "its data was made for {prepared}, and the members run {runs}: set spec.version to {}.{} again, or create \
                 another EtcdRestore",
                prepared.major, prepared.minor
            ),
            Self::OtherTransport => {
                "its data was made for peer ports with or without TLS, and the members use the opposite: when no switch of TLS is \
                 in progress, create another EtcdRestore"
                    .into()
            }
            Self::Revisions { revision, above } => format!(
                "its data would begin with revision {above}, and the cluster has revision {revision} already, so clients that watch \
                 would not notice: create another EtcdRestore with revisionBump Disabled if you accept that"
            ),
        }
    }
}

fn list<T>(items: &[T], name: impl Fn(&T) -> String) -> String {
    if items.is_empty() {
        return "none".into();
    }
    items.iter().map(name).collect::<Vec<_>>().join(", ")
}
