//! What one concern wants, and what later concerns must leave alone.

use crate::observed::MemberId;
use crate::plan::{Action, Plan};

/// What later concerns must leave alone while this one has a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    #[default]
    Nothing,
    /// Voters that serve are neither removed nor restarted, and leadership stays. Others can join.
    ServingVoters,
    Everything,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opinion {
    plan: Plan,
    hold: Hold,
}

impl Opinion {
    /// A concern without a plan holds nothing.
    pub fn holding(hold: Hold, plan: Option<Plan>) -> Self {
        plan.filter(|plan| !plan.is_settled()).map_or_else(Self::default, |plan| Self { plan, hold })
    }
}

/// The first step that any concern wants and no earlier one forbids, behind everything that those before it wait for; or,
/// without a step, what they wait for and refuse. Members change one at a time, so there is at most one step.
pub fn first_step(opinions: impl Iterator<Item = Opinion>, serves: impl Fn(&MemberId) -> bool) -> Plan {
    let (mut all, mut held) = (Plan::default(), Hold::Nothing);
    for Opinion { plan, hold } in opinions {
        let forbidden = held == Hold::ServingVoters && plan.actions.iter().any(|it| disturbs(it, &serves));
        if forbidden {
            continue;
        }
        all = all.then(plan);
        held = held.max(hold);
        if !all.actions.is_empty() {
            // What is refused now can be possible after the step.
            all.refusals.clear();
            break;
        }
        if held == Hold::Everything {
            break;
        }
    }
    all
}

fn disturbs(action: &Action, serves: impl Fn(&MemberId) -> bool) -> bool {
    matches!(action, Action::RemoveMember { member, .. } if serves(member))
        || matches!(action, Action::MoveLeader { .. } | Action::DeletePod { .. } | Action::EvictPod { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::{ClusterId, Ordinal};
    use crate::plan::{Refusal, WaitingOn};

    const CLUSTER: ClusterId = ClusterId(0xc1);
    const SERVING: MemberId = MemberId(0xa0);

    fn wait() -> Plan {
        Plan::wait(WaitingOn::Leader)
    }

    fn add() -> Plan {
        Plan::act(Action::AddLearner { ordinal: Ordinal(1), cluster: CLUSTER })
    }

    fn remove(member: MemberId) -> Plan {
        Plan::act(Action::RemoveMember { member, cluster: CLUSTER })
    }

    fn first(opinions: &[(Hold, Plan)]) -> Plan {
        let opinions = opinions.iter().map(|(hold, plan)| Opinion::holding(*hold, Some(plan.clone())));
        first_step(opinions, |member| *member == SERVING)
    }

    #[test]
    fn a_concern_that_waits_keeps_later_ones_from_what_it_holds_and_from_nothing_else() {
        let both = |plan: Plan| wait().then(plan);
        for later in [add(), remove(MemberId(0xa1)), remove(SERVING)] {
            assert_eq!(first(&[(Hold::Everything, wait()), (Hold::Everything, later.clone())]), wait());
            let free = first(&[(Hold::Nothing, wait()), (Hold::Everything, later.clone())]);
            assert_eq!(free, both(later));
        }
        let held = |later: Plan| first(&[(Hold::ServingVoters, wait()), (Hold::Everything, later)]);
        assert_eq!(held(add()), both(add()));
        assert_eq!(held(remove(MemberId(0xa1))), both(remove(MemberId(0xa1))));
        assert_eq!(held(remove(SERVING)), wait());
        let to = MemberId(0xa1);
        assert_eq!(held(Plan::act(Action::MoveLeader { from: SERVING, to, cluster: CLUSTER })), wait());
    }

    #[test]
    fn a_concern_that_may_not_act_does_not_silence_those_behind_it() {
        let opinions =
            [(Hold::ServingVoters, wait()), (Hold::Everything, remove(SERVING)), (Hold::Everything, add())];
        assert_eq!(first(&opinions), wait().then(add()));
    }

    #[test]
    fn a_refusal_is_reported_only_when_there_is_no_step_that_could_end_it() {
        let refuse = || Plan::refuse(Refusal::LastVoter { member: SERVING });
        assert_eq!(first(&[(Hold::ServingVoters, refuse()), (Hold::Everything, add())]), add());
        assert_eq!(
            first(&[(Hold::ServingVoters, refuse()), (Hold::Everything, wait())]),
            refuse().then(wait())
        );
    }

    #[test]
    fn members_change_one_at_a_time() {
        assert_eq!(first(&[(Hold::Nothing, add()), (Hold::Nothing, remove(SERVING))]), add());
    }

    #[test]
    fn a_concern_with_nothing_to_say_holds_nothing() {
        assert_eq!(first(&[(Hold::Everything, Plan::default()), (Hold::Everything, add())]), add());
    }
}
