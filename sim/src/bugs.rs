//! Bugs to plant, so that it is seen whether the simulation finds them.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::auth::{Step, User};
use etcd_operator_core::form::Digest;
use etcd_operator_core::observed::{
    Answer, MemberId, Observed, Pod, PreflightState, Process, Seen, Unanswered,
};
use etcd_operator_core::plan::{Action, Plan, Refusal, WaitingOn};
use etcd_operator_core::tls::{Cause, Key, Purpose, Schemes};
use jiff::Timestamp;

/// Longer than clients have to read their certificates.
const LONG_AGO: Timestamp = Timestamp::constant(-1_000_000, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Every voter is taken for a serving one, so that a healthy one is removed although too few are left.
    QuorumSkipped,
    /// Volumes of removed members are not deleted, so the next member gets one with data.
    VolumeReused,
    /// The order stays, and agents follow it again.
    OldOrderHonoured,
    /// Volumes are never told whose data they hold.
    LabelSkipped,
    /// What could do harm is done on the word of a cache.
    CacheTrusted,
    /// Volumes are deleted on the word of a cache.
    ClaimDeletedUnconfirmed,
    /// Writes do not depend on what was read before.
    PreconditionsSkipped,
    /// Volumes of another cluster are taken for our own.
    ForeignVolumesIgnored,
    /// Volumes are adopted although no annotation asks for it.
    AdoptionUnasked,
    /// Pods are ended before the StatefulSet's controller has read the wanted template.
    TemplateUnread,
    /// The template keeps a form that has not proved itself.
    TemplateKept,
    /// The next member is restarted before the last one serves.
    RolledTrusted,
    LeaderFirst,
    /// Members are restarted before their new form has passed its trial.
    TrialSkipped,
    /// Members are restarted although too few others serve.
    MarginSkipped,
    /// A form is recorded as soon as one member has it.
    RecordedEarly,
    /// Writes are stopped for a reason of the operator, and nobody has allowed that.
    ConsentSkipped,
    /// The status is not written while a member does not respond.
    SilenceHidden,
    /// The StatefulSet is deleted with its pods, to create it again.
    PodsNotOrphaned,
    /// A StatefulSet that is missing is created again with as many pods as there are to be.
    MissingSetIgnored,
    /// Voters are taken for connected because they serve.
    LinksIgnored,
    /// Logs are taken for readable.
    OldEntriesIgnored,
    /// An authority that is missing is issued anew, whatever runs.
    AuthorityReissued,
    /// etcd's authentication is enabled before the operator has its own user.
    AuthEnabledEarly,
    /// Members are taken to trust what their Secrets hold.
    TrustAssumed,
    /// Members are taken to serve what their Secrets hold.
    UseAssumed,
    /// Every member is taken for one that is listed with both peer URLs.
    PeerUrlsIgnored,
    /// Clients are taken to know every authority.
    ClientsAssumed,
    /// The key of a certificate that a user gives is taken for its own.
    KeyAssumed,
    /// The pod of a member on a lost node is deleted by force before the member is removed.
    FenceSkipped,
    /// Agents use an order for a recovery again.
    ForcedTwice,
    /// One member continues while others still have data.
    OthersNotFenced,
    /// The data of the leader is taken for the right one.
    LeaderTrusted,
}

impl Bug {
    /// What the operator fails to see.
    pub fn blind(self, seen: &mut Observed) {
        if self == Self::LabelSkipped {
            let members = seen.etcd.members.known().cloned();
            for (ordinal, claim) in &mut seen.claims {
                claim.member = members.as_ref().and_then(|members| members.at(*ordinal)).map(|(id, _)| id);
            }
        }
        if self == Self::QuorumSkipped {
            everybody_serves(seen);
        }
        if self == Self::OthersNotFenced {
            take_others_for_lost(seen);
        }
        if self == Self::TemplateUnread {
            seen.set.iter_mut().for_each(|set| set.followed = true);
        }
        if self == Self::TrialSkipped {
            seen.preflights.values_mut().for_each(|pod| pod.state = PreflightState::Passed);
        }
        if self == Self::RolledTrusted {
            pods_serve(seen, |rolled| rolled);
        }
        if self == Self::MarginSkipped {
            pods_serve(seen, |rolled| !rolled);
        }
        if self == Self::OldEntriesIgnored
            && let (Some(record), Some(members)) = (&mut seen.record, seen.etcd.members.known())
        {
            record.cleared = members.list.keys().copied().collect();
        }
        if self == Self::LinksIgnored {
            let members: BTreeSet<MemberId> = seen
                .etcd
                .members
                .known()
                .into_iter()
                .flat_map(|members| members.list.keys().copied())
                .collect();
            for answer in seen.etcd.answers.values_mut() {
                if let Seen::Known(answer) = answer {
                    answer.reaches = Some(members.clone());
                }
            }
        }
        if self == Self::ClientsAssumed
            && let Some(Seen::Known(held)) =
                seen.secrets.get_mut(&Purpose::Client).map(|it| &mut it.certificate)
        {
            held.not_before = LONG_AGO;
        }
        if self == Self::KeyAssumed {
            seen.given.iter_mut().for_each(|given| given.verified.key = Key::Matches);
        }
        if matches!(self, Self::TrustAssumed | Self::UseAssumed) {
            assume_handshakes(seen, self == Self::TrustAssumed);
        }
        let certified = |pod: &Pod| pod.transport.is_some_and(|it| it.peers.has_certificates());
        if self == Self::PeerUrlsIgnored
            && seen.pods.values().any(certified)
            && let Seen::Known(members) = &mut seen.etcd.members
        {
            members.list.values_mut().for_each(|member| member.schemes = Schemes::BOTH);
        }
        if self == Self::LeaderTrusted
            && let Some(leader) = seen.etcd.members.known().and_then(|members| members.leader)
        {
            for comparison in
                [&mut seen.etcd.compared.last, &mut seen.etcd.compared.before].into_iter().flatten()
            {
                trust(leader, &mut comparison.hashes);
            }
        }
        if self == Self::ForeignVolumesIgnored {
            let own = seen.cluster.uid.clone();
            seen.claims.values_mut().for_each(|claim| claim.cluster_uid.clone_from(&own));
        }
    }

    /// Whether no status is written.
    pub fn hides(self, seen: &Observed) -> bool {
        self == Self::SilenceHidden && seen.etcd.answers.values().any(|answer| answer.known().is_none())
    }

    /// Whether a plan that comes from a cache is not decided a second time.
    pub fn trusts_cache(self, plan: &Plan) -> bool {
        let mut harmful = plan.actions.iter().filter(|action| action.is_decided_twice());
        harmful.all(|action| self.skips_confirmation(action))
    }

    fn skips_confirmation(self, action: &Action) -> bool {
        let deletes_claim = matches!(action, Action::DeleteClaim { .. });
        self == Self::CacheTrusted || self == Self::ClaimDeletedUnconfirmed && deletes_claim
    }

    /// What the operator does instead.
    pub fn twist(self, mut plan: Plan, seen: &Observed) -> Plan {
        if self == Self::OldOrderHonoured {
            plan.actions.retain(|action| !matches!(action, Action::DeleteOrder { .. }));
        }
        if self == Self::VolumeReused {
            plan.actions.retain(|action| !matches!(action, Action::DeleteClaim { .. }));
        }
        if self == Self::AdoptionUnasked {
            adopt_all(seen, &mut plan);
        }
        if self == Self::TemplateKept {
            let recorded = seen.record.as_ref().map(|record| &record.form);
            plan.actions.retain(|it| !matches!(it, Action::SetTemplate { form } if Some(form) == recorded));
        }
        if self == Self::ConsentSkipped
            && let [WaitingOn::Consent { ordinals, .. }] = &plan.waiting[..]
            && let Some((ordinal, pod)) = ordinals.first().and_then(|it| seen.pods.get_key_value(it))
            && seen.set.as_ref().is_some_and(|set| set.followed && set.agent > pod.agent)
        {
            plan = Plan::act(Action::DeletePod { ordinal: *ordinal, uid: pod.uid.clone() });
        }
        if self == Self::FenceSkipped {
            plan.actions.iter_mut().for_each(|action| end_on_lost_node(seen, action));
        }
        if self == Self::PodsNotOrphaned {
            for action in &mut plan.actions {
                if let Action::OrphanSet { uid } = action {
                    *action = Action::DeleteSet { uid: uid.clone() };
                }
            }
        }
        if self == Self::MissingSetIgnored && seen.set.is_none() {
            for action in &mut plan.actions {
                if let Action::SetReplicas { replicas } = action {
                    *replicas = (*replicas).min(1);
                }
            }
        }
        if self == Self::AuthorityReissued {
            plan = reissue_authorities(seen, plan);
        }
        if self == Self::AuthEnabledEarly {
            for action in &mut plan.actions {
                if let Action::ChangeAuth { step: step @ Step::AddUser(User::Operator), .. } = action {
                    *step = Step::Enable;
                }
            }
        }
        if self == Self::LeaderFirst {
            plan.actions.iter_mut().for_each(|action| end_leader(seen, action));
        }
        if self == Self::RecordedEarly {
            let recorded = seen.record.as_ref().map(|record| &record.form);
            let template = seen.set.as_ref().and_then(|set| set.template.clone());
            let rolled = |form: &Digest| seen.pods.values().any(|pod| pod.form.as_ref() == Some(form));
            if let Some(form) = template.filter(|it| rolled(it) && recorded.is_some_and(|there| there != it))
            {
                plan = Plan::act(Action::RecordForm { form });
            }
        }
        plan
    }
}

/// All that respond but the first one.
fn take_others_for_lost(seen: &mut Observed) {
    let responds = |answer: &Seen<Answer>| answer.known().is_some_and(|it| !it.linearizable);
    for (ordinal, answer) in seen.etcd.answers.iter_mut().filter(|(_, answer)| responds(answer)).skip(1) {
        *answer = Seen::Unknown(Unanswered::AgentWaiting(String::new()));
        seen.pods.entry(*ordinal).and_modify(|pod| pod.etcd = Process::DataLost);
    }
}

/// As if all others but one agreed with it.
fn trust(leader: MemberId, hashes: &mut BTreeMap<MemberId, u32>) {
    let Some(right) = hashes.get(&leader).copied() else { return };
    let mut others = hashes.values_mut().filter(|hash| **hash != right);
    others.next();
    others.for_each(|hash| *hash = right);
}

fn end_on_lost_node(seen: &Observed, action: &mut Action) {
    let Action::RemoveMember { member, .. } = action else { return };
    let ordinal = seen.etcd.members.known().and_then(|members| members.list.get(member)?.ordinal);
    let pod =
        ordinal.and_then(|ordinal| seen.pods.get_key_value(&ordinal)).filter(|(_, pod)| pod.loss.is_some());
    if let Some((&ordinal, pod)) = pod {
        *action = Action::ForceDeletePod { ordinal, uid: pod.uid.clone() };
    }
}

fn assume_handshakes(seen: &mut Observed, trust: bool) {
    for pod in seen.pods.values_mut() {
        for (purpose, shown) in &mut pod.handshakes {
            let held = seen.secrets.get(purpose).and_then(|it| it.certificate.known());
            if let (Some(held), Seen::Known(shown)) = (held, shown) {
                match trust {
                    true => shown.trusts = held.trusts.iter().map(|it| it.subject.clone()).collect(),
                    false => shown.certificate.clone_from(&held.fingerprint),
                }
            }
        }
    }
}

fn adopt_all(seen: &Observed, plan: &mut Plan) {
    if let [Refusal::ForeignVolumes { ordinals, .. }] = &plan.refusals[..] {
        let claims = ordinals.iter().filter_map(|it| Some((*it, seen.claims.get(it)?.uid.clone())));
        plan.actions.extend(claims.map(|(ordinal, uid)| Action::AdoptClaim { ordinal, uid }));
        plan.refusals.clear();
    }
}

fn reissue_authorities(seen: &Observed, plan: Plan) -> Plan {
    let needed = |it: &Purpose| seen.transport.is_some_and(|transport| it.is_needed(transport));
    let authorities = Purpose::ALL.into_iter().filter(|it| it.issuer().is_none() && needed(it));
    let missing = authorities.filter(|it| !seen.secrets.contains_key(it));
    let issue = missing.map(|purpose| Action::IssueCertificate { purpose, cause: Cause::Missing });
    let actions: Vec<Action> = issue.collect();
    if actions.is_empty() { plan } else { Plan { actions, ..Plan::default() } }
}

/// The pod of the leader, if it has the same form.
fn end_leader(seen: &Observed, action: &mut Action) {
    let Action::EvictPod { ordinal, uid } = action else { return };
    let Some(members) = seen.etcd.members.known() else { return };
    let leader = members.leader.and_then(|leader| members.list.get(&leader)?.ordinal);
    let form = seen.pods.get(ordinal).and_then(|pod| pod.form.clone());
    if let Some((leader, pod)) = leader.and_then(|leader| Some((leader, seen.pods.get(&leader)?)))
        && pod.form == form
    {
        (*ordinal, *uid) = (leader, pod.uid.clone());
    }
}

/// Pods are taken for serving ones: those that have another form than the recorded one, or those that have not.
fn pods_serve(seen: &mut Observed, which: impl Fn(bool) -> bool) {
    let Some(record) = seen.record.clone() else { return };
    let true_answers = seen.etcd.answers.clone();
    everybody_serves(seen);
    for (ordinal, pod) in &mut seen.pods {
        if which(pod.form.as_ref() != Some(&record.form)) {
            pod.etcd = Process::Started;
            if let Some(Seen::Known(answer)) = seen.etcd.answers.get_mut(ordinal) {
                answer.version = Some(record.version);
            }
        } else if let Some(answer) = true_answers.get(ordinal) {
            seen.etcd.answers.insert(*ordinal, answer.clone());
        }
    }
}

fn everybody_serves(seen: &mut Observed) {
    let Seen::Known(members) = &seen.etcd.members else { return };
    for (member, voter) in members.voters() {
        let Some(ordinal) = voter.ordinal else { continue };
        let answer = Answer {
            cluster: members.cluster,
            member,
            leader: members.leader,
            linearizable: true,
            denied: false,
            applied_index: 0,
            commit_index: 0,
            term: 0,
            version: None,
            storage_version: None,
            downgrade: Default::default(),
            listed: None,
            hash: Some(1),
            alarms: BTreeSet::new(),
            space: None,
            file: None,
            reaches: Some(members.list.keys().copied().collect()),
        };
        seen.etcd.answers.insert(ordinal, Seen::Known(answer));
    }
}
