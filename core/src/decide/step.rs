//! The one membership change that comes next.

use std::cmp::Reverse;

use super::lost_nodes::{LostNodes, Next};
use super::opinion::{self, Hold, Opinion};
use super::roll::Roll;
use super::{Volumes, Wishes, consistency, peer_urls, space};
use crate::asked::{Accepted, MoveLeader};
use crate::assess::{Apart, Assessment, MemberState, PodState};
use crate::auth;
use crate::member::MemberProgress;
use crate::observed::{Answer, ClusterId, Member, MemberId, Members, Ordinal};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::quorum::quorum;
use crate::tls::Switch;
use crate::version::downgrade;

/// How long a member can be silent before the operator is certain that it does not serve: it replaces one that is wanted where
/// that blocks a smaller size, and ends its pod for another form without asking the disruption budget.
pub const SILENCE_SECONDS: i64 = 15;

pub struct Step<'a> {
    pub wishes: Wishes<'a>,
    pub facts: &'a Assessment<'a>,
    pub members: &'a Members,
}

impl Step<'_> {
    pub fn next(&self) -> Plan {
        if self.facts.seen.order.is_some() {
            // Every member that the order lists can still start as the voter that it is.
            let starting = |(_, member): (_, &Member)| Some(WaitingOn::Start { ordinal: member.ordinal? });
            let listed =
                self.members.voters().filter(|(_, member)| member.start != MemberProgress::Published);
            return Plan { waiting: listed.filter_map(starting).collect(), ..Plan::default() };
        }
        // In this order: partial work is completed first, and what is lost is replaced before anything healthy
        // changes. A further reason to change a member is a further line.
        let concerns = [
            Self::repair_peer_urls,
            Self::wait_for_downgrade,
            Self::finish_learner,
            Self::replace_lost,
            Self::replace_asked,
            Self::replace_on_lost_node,
            Self::mend,
            Self::restore_consistency,
            Self::scale_in,
            Self::scale_out,
            Self::reclaim_space,
            Self::move_leader,
            Self::replace_for_class,
            Self::disable_auth,
            Self::follow_peer_urls,
            Self::restart_serving,
            Self::defragment,
        ];
        opinion::first_step(concerns.iter().map(|concern| concern(self)), |id| self.facts.serves(*id))
    }

    fn cluster(&self) -> ClusterId {
        self.members.cluster
    }

    /// A learner is promoted when it has caught up, and removed when it is lost or no longer wanted.
    fn finish_learner(&self) -> Opinion {
        let mut learners = self.members.learners().filter_map(|(id, member)| Some((id, member.ordinal?)));
        let next = learners.find_map(|(member, ordinal)| {
            let data = self.learners_by_data();
            if ordinal.0 >= self.wishes.size || self.is_lost(member) || data == consistency::Learners::Leave {
                return Some(self.remove(member));
            }
            let caught_up = *self.facts.member(member) == MemberState::CaughtUp;
            (caught_up && data == consistency::Learners::Join && !self.another_joins_soon())
                .then(|| Plan::act(Action::Promote { ordinal, member, cluster: self.cluster() }))
        });
        Opinion::holding(Hold::Everything, next)
    }

    fn is_lost(&self, member: MemberId) -> bool {
        matches!(self.facts.member(member), MemberState::Lost(_))
    }

    /// After a promotion etcd accepts no member for five seconds. So where two learners can join at once, the first waits for
    /// a second that can join now or soon: one more voter alone would not tolerate more failures.
    fn another_joins_soon(&self) -> bool {
        let joins = |ordinal: Ordinal| {
            let state = self.facts.pod(ordinal);
            let waits = matches!(state, PodState::Joinable | PodState::AddressNotPublished);
            *state == PodState::Creating || waits && self.too_few_to_add().is_none()
        };
        self.members.learners().count() == 1
            && self.all_accept_two_learners()
            && Ordinal::below(self.wishes.size)
                .any(|ordinal| self.members.at(ordinal).is_none() && joins(ordinal))
    }

    /// What a learner waits for before it can be promoted.
    fn awaited(&self, id: MemberId, ordinal: Ordinal) -> Option<WaitingOn> {
        match (self.facts.member(id), self.facts.pod(ordinal)) {
            (MemberState::Starting, state) if state.blocks_start() => {
                Some(WaitingOn::Pod { ordinal, state: state.clone() })
            }
            (MemberState::Starting, _) => Some(WaitingOn::Start { ordinal }),
            (MemberState::CatchingUp { behind }, _) => Some(WaitingOn::CatchUp { ordinal, behind: *behind }),
            (MemberState::NoLeader | MemberState::Silent, _) => {
                Some(WaitingOn::CatchUp { ordinal, behind: None })
            }
            _ => None,
        }
    }

    fn replace_lost(&self) -> Opinion {
        let lost = self.members.voters().find(|(id, _)| self.is_lost(*id));
        Opinion::holding(Hold::Everything, lost.map(|(id, _)| self.remove(id)))
    }

    /// The member with this ID. Its successor has another one, so the request is done once.
    fn replace_asked(&self) -> Opinion {
        let listed = self.wishes.asked.replace.filter(|id| self.members.list.contains_key(id));
        Opinion::holding(Hold::Everything, listed.map(|id| self.remove(id)))
    }

    /// Until its time is over, the loss of a node blocks nothing. Afterwards others can join, but none that serves is disturbed.
    fn replace_on_lost_node(&self) -> Opinion {
        let Wishes { size, node_loss_grace_seconds: grace_seconds, .. } = self.wishes;
        // A voter on a lost node can be what keeps others from joining.
        let mut answers = self.facts.serving().map(|id| self.facts.answer_of(id));
        let accept = answers.all(|it| it.is_some_and(Answer::adds_without_all_voters));
        let can_add = accept && self.too_few_to_add().is_none();
        let (facts, members) = (self.facts, self.members);
        match (LostNodes { facts, members, size, grace_seconds, can_add }).next() {
            None => Opinion::default(),
            Some(Next::Wait(waiting)) => {
                Opinion::holding(Hold::Nothing, Some(Plan { waiting, ..Plan::default() }))
            }
            Some(Next::Hold(waiting)) => Opinion::holding(Hold::ServingVoters, Some(Plan::wait(waiting))),
            Some(Next::Refuse(refusal)) => Opinion::holding(Hold::ServingVoters, Some(Plan::refuse(refusal))),
            Some(Next::Replace(id)) => Opinion::holding(Hold::Everything, Some(self.remove(id))),
        }
    }

    /// Before the operator loses the name that etcd knows it by: the transport waits for that.
    fn disable_auth(&self) -> Opinion {
        let Wishes { switch, auth, .. } = self.wishes;
        let loses_identity = auth::loses_identity(self.facts.seen.transport, switch.map(|it| it.target));
        let step =
            auth::next(auth, self.facts.seen).filter(|it| loses_identity && *it == auth::Step::Disable);
        let cluster = self.cluster();
        Opinion::holding(Hold::Everything, step.map(|step| Plan::act(Action::ChangeAuth { step, cluster })))
    }

    /// No volume moves to another class, so its member gets a new one.
    fn replace_for_class(&self) -> Opinion {
        let next =
            self.wishes.volumes.and_then(|it: &Volumes<'_>| it.next_to_replace(self.facts, self.members));
        Opinion::holding(
            Hold::Everything,
            next.map(|next| next.map_or_else(Plan::wait, |member| self.remove(member))),
        )
    }

    /// While members differ, no other one that serves changes: a member that restarts compares itself with the others and does not
    /// start, and one that joins gets the data of the leader. What is lost goes first: only when all voters serve they can be compared.
    fn restore_consistency(&self) -> Opinion {
        let size = Some(self.wishes.size).filter(|_| self.compares());
        let next = size.and_then(|size| consistency::restore(self.facts, self.members, size));
        let plan = next.map(|next| match next {
            consistency::Next::Replace(id) => self.remove(id),
            consistency::Next::Lead { from, to } => self.lead(from, to, None),
            consistency::Next::Act(action) => Plan::act(action),
            consistency::Next::Wait(waiting) => Plan::wait(waiting),
            consistency::Next::Refuse(refusal) => Plan::refuse(refusal),
        });
        Opinion::holding(Hold::Everything, plan)
    }

    fn compares(&self) -> bool {
        self.wishes.care.is_some_and(|it| it.compares)
    }

    fn learners_by_data(&self) -> consistency::Learners {
        match self.compares() {
            true => consistency::learners(self.facts, self.members),
            false => consistency::Learners::Join,
        }
    }

    fn differs(&self, member: MemberId) -> bool {
        consistency::minority(self.facts, self.members).contains(&member)
    }

    /// What cannot be reclaimed blocks nothing: another quota comes with a restart.
    fn reclaim_space(&self) -> Opinion {
        let care = self.wishes.care;
        self.on_space(care.and_then(|it| space::reclaim(self.facts, self.members, it.quota_bytes)))
    }

    /// After everything else.
    fn defragment(&self) -> Opinion {
        let care = self.wishes.care;
        self.on_space(care.and_then(|it| space::defragment(self.facts, self.members, it.windows)))
    }

    fn on_space(&self, next: Option<space::Next>) -> Opinion {
        match next {
            None => Opinion::default(),
            Some(space::Next::Act(action)) => Opinion::holding(Hold::Everything, Some(Plan::act(action))),
            Some(space::Next::Lead { from, to }) => {
                Opinion::holding(Hold::Everything, Some(self.lead(from, to, None)))
            }
            Some(space::Next::Wait(waiting)) => Opinion::holding(Hold::Nothing, Some(Plan::wait(waiting))),
            Some(space::Next::Refuse(refusal)) => {
                Opinion::holding(Hold::Nothing, Some(Plan::refuse(refusal)))
            }
        }
    }

    fn move_leader(&self) -> Opinion {
        let request = self.wishes.asked.move_leader.as_ref();
        let new = request.filter(|it| self.facts.seen.cluster.moved_leader.as_ref() != Some(&it.token));
        Opinion::holding(Hold::Everything, new.map(|request| self.move_leader_to(request)))
    }

    fn move_leader_to(&self, MoveLeader { token, to }: &MoveLeader) -> Plan {
        let Some(from) = self.members.leader else { return Plan::wait(WaitingOn::Leader) };
        match self.members.at(*to).map(|(id, _)| id) {
            Some(to) if to == from => {
                Plan::act(Action::Accept(Accepted::MoveLeader { token: token.clone() }))
            }
            Some(to) if self.facts.serves(to) => self.lead(from, to, None),
            Some(_) | None => Plan::wait(WaitingOn::Successor { ordinal: *to }),
        }
    }

    /// While etcd is on its way back to an older version no member is added or replaced: it would come with a snapshot of
    /// another version. Only the rollout goes on.
    fn wait_for_downgrade(&self) -> Opinion {
        let Some(to) = downgrade::enabled(self.facts.answers()) else { return Opinion::default() };
        let change = [
            Self::replace_lost,
            Self::replace_asked,
            Self::replace_on_lost_node,
            Self::restore_consistency,
            Self::scale_in,
            Self::scale_out,
            Self::replace_for_class,
        ];
        let held = change.iter().any(|concern| concern(self) != Opinion::default());
        let rolling = [Self::mend, Self::restart_serving].map(|concern| concern(self));
        let rolled = opinion::first_step(rolling.into_iter(), |id| self.facts.serves(*id));
        let waiting = if held { Plan::wait(WaitingOn::DowngradeEnd { to }) } else { Plan::default() };
        Opinion::holding(Hold::Everything, Some(rolled.then(waiting)))
    }

    fn repair_peer_urls(&self) -> Opinion {
        Opinion::holding(Hold::Everything, peer_urls::repair(self.facts, self.members))
    }

    /// Before listeners change, and after.
    fn follow_peer_urls(&self) -> Opinion {
        let next = |switch: &Switch| peer_urls::follow(switch.target, self.facts, self.members);
        Opinion::holding(Hold::Everything, self.wishes.switch.and_then(next))
    }

    fn mend(&self) -> Opinion {
        Opinion::holding(Hold::Everything, self.wishes.roll.and_then(Roll::mend))
    }

    fn restart_serving(&self) -> Opinion {
        Opinion::holding(Hold::Everything, self.wishes.roll.and_then(Roll::restart_serving))
    }

    /// Members that do not serve are removed first. If only a wanted one can be removed, it is, and joins again as a learner
    /// before a healthy one is removed. While this waits, members can still be added.
    fn scale_in(&self) -> Opinion {
        Opinion::holding(Hold::ServingVoters, self.next_to_leave())
    }

    fn next_to_leave(&self) -> Option<Plan> {
        let voters: Vec<(MemberId, Ordinal)> =
            self.members.voters().filter_map(|(id, voter)| Some((id, voter.ordinal?))).collect();
        if voters.len() <= usize::from(self.wishes.size) {
            return None;
        }
        let mut excess: Vec<_> = voters.iter().filter(|(_, ordinal)| ordinal.0 >= self.wishes.size).collect();
        excess.sort_by_key(|(id, ordinal)| (self.facts.serves(*id), Reverse(*ordinal)));
        let mut refused = None;
        for &&(id, _) in &excess {
            match self.against_leaving(id) {
                None => return Some(self.remove(id)),
                Some(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        let mut down =
            voters.iter().filter(|(id, ordinal)| ordinal.0 < self.wishes.size && !self.facts.serves(*id));
        match down.find(|(id, _)| self.against_leaving(*id).is_none()) {
            Some(&(member, _)) if self.facts.is_silent_for(member, SILENCE_SECONDS) => {
                Some(self.remove(member))
            }
            Some(&(member, ordinal)) => Some(Plan::wait(WaitingOn::Recovery { ordinal, member })),
            None => refused.map(Plan::refuse),
        }
    }

    /// The lowest ordinal that is missing and whose pod can join; a pod that cannot start delays only itself. One that cannot
    /// join before the others have its version must not delay that.
    fn scale_out(&self) -> Opinion {
        let next = self.next_to_join();
        let cannot_join = |it: &WaitingOn| matches!(it, WaitingOn::Pod { state, .. } if state.cannot_join());
        let needs_roll =
            next.as_ref().is_some_and(|plan| plan.actions.is_empty() && plan.waiting.iter().all(cannot_join));
        Opinion::holding(if needs_roll { Hold::Nothing } else { Hold::Everything }, next)
    }

    fn next_to_join(&self) -> Option<Plan> {
        let learners = self.members.learners();
        let mut waiting: Vec<WaitingOn> =
            learners.filter_map(|(id, learner)| self.awaited(id, learner.ordinal?)).collect();
        let mut ready = None;
        for ordinal in Ordinal::below(self.wishes.size).filter(|&ordinal| self.members.at(ordinal).is_none())
        {
            let state = self.facts.pod(ordinal).clone();
            if state == PodState::Joinable {
                ready = ready.or(Some(ordinal));
            } else {
                waiting.push(WaitingOn::Pod { ordinal, state });
            }
        }
        let waiting = Plan { waiting, ..Plan::default() };
        let Some(ordinal) = ready else { return (!waiting.is_settled()).then_some(waiting) };
        Some(match self.members.learners().count() {
            0 => self.add(ordinal).then(waiting),
            1 if self.all_accept_two_learners() => self.add(ordinal).then(waiting),
            _ => self.make_room().unwrap_or(waiting),
        })
    }

    fn add(&self, ordinal: Ordinal) -> Plan {
        match self.too_few_to_add() {
            Some(waiting) => Plan::wait(waiting),
            None => Plan::act(Action::AddLearner { ordinal, cluster: self.cluster() }),
        }
    }

    /// etcd rejects a new member that could cost the quorum, and the learner would be a voter soon.
    fn too_few_to_add(&self) -> Option<WaitingOn> {
        let (voters, serving) = (self.members.voters().count(), self.facts.serving().count());
        let needed = quorum(voters + 1);
        (voters > 1 && serving < needed).then_some(WaitingOn::Voters { serving, needed })
    }

    /// A learner whose pod cannot start is removed for one whose pod waits.
    fn make_room(&self) -> Option<Plan> {
        let is_blocked = |ordinal| matches!(self.facts.pod(ordinal), PodState::Blocked(_));
        let mut unstarted =
            self.members.learners().filter(|(_, learner)| learner.start == MemberProgress::Added);
        unstarted.find(|(_, learner)| learner.ordinal.is_some_and(is_blocked)).map(|(id, _)| self.remove(id))
    }

    /// Each member applies an addition by its own limit, so all that run must have the same.
    fn all_accept_two_learners(&self) -> bool {
        let mut started =
            self.members.list.iter().filter(|(_, member)| member.start != MemberProgress::Added);
        started.all(|(&id, _)| self.facts.answer_of(id).is_some_and(Answer::accepts_two_learners))
    }

    /// Removes a member; if it leads, leadership moves first to the lowest voter that stays and serves.
    fn remove(&self, id: MemberId) -> Plan {
        if let Some(refusal) = self.against_leaving(id) {
            return Plan::refuse(refusal);
        }
        let Some(leader) = self.members.leader else {
            return Plan::wait(WaitingOn::Leader);
        };
        if leader != id {
            return Plan::act(Action::RemoveMember { member: id, cluster: self.cluster() });
        }
        match self.facts.serving().find(|successor| *successor != id && !self.differs(*successor)) {
            Some(to) => self.lead(id, to, Some(id)),
            None => Plan::refuse(Refusal::NoSuccessor { leader: id }),
        }
    }

    /// Moves leadership, as soon as the new leader can count on the voters that stay.
    fn lead(&self, from: MemberId, to: MemberId, leaving: Option<MemberId>) -> Plan {
        // Of two voters, the one that serves reaches the other.
        let matters = self.members.voters().count() > 2 && self.facts.serves(from);
        match self.facts.apart(leaving).filter(|_| matters) {
            Some(Apart { from, to }) => Plan::wait(WaitingOn::Connection { from, to }),
            None => Plan::act(Action::MoveLeader { from, to, cluster: self.cluster() }),
        }
    }

    /// Why this member cannot be removed now, if so.
    fn against_leaving(&self, member: MemberId) -> Option<Refusal> {
        if self.members.list.get(&member).is_some_and(|member| member.learner) {
            return None;
        }
        let staying = self.members.voters().filter(|(id, _)| *id != member).count();
        if staying == 0 {
            return Some(Refusal::LastVoter { member });
        }
        // One whose pod terminates is about to stop. Only the removal of a member that serves makes that worse.
        let counts = |id: &MemberId| !self.facts.serves(member) || !self.facts.is_ending(*id);
        let serving_after = self.facts.serving().filter(|id| *id != member).filter(counts).count();
        let quorum_after = quorum(staying);
        (serving_after < quorum_after).then_some(Refusal::QuorumWouldBeLost {
            member,
            serving_after,
            quorum_after,
        })
    }
}
