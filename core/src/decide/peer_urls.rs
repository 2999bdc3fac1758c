//! The peer URLs that etcd lists for members, which follow how their ports are served: see [`crate::tls::Switch`].

use crate::assess::Assessment;
use crate::observed::{Member, MemberId, Members, Ordinal, Pod};
use crate::plan::{Action, Plan, WaitingOn};
use crate::tls::{Scheme, Schemes, Transport, wanted_schemes};

/// A member that serves what it is not listed with: no other one can connect to it. Its pod was created in another form than
/// the one that its URL was added for.
pub fn repair(facts: &Assessment<'_>, members: &Members) -> Option<Plan> {
    let unreachable = members.by_ordinal().into_iter().find_map(|(id, member)| {
        let (ordinal, served) = (member.ordinal?, served(facts.seen.pods.get(&member.ordinal?)?)?);
        let is_missing = !member.schemes.is_empty() && !member.schemes.contains(served);
        is_missing.then(|| update(members, id, ordinal, member.schemes.with(served)))
    });
    unreachable.map(Plan::act)
}

/// One member after the other gets the URLs that all of them should have. While a member joins, none does: an etcd that joins
/// must list the same URLs as those that it joins.
pub fn follow(target: Transport, facts: &Assessment<'_>, members: &Members) -> Option<Plan> {
    let wanted = wanted_schemes(target, facts.seen)?;
    let differs = |member: &Member| !member.schemes.is_empty() && member.schemes != wanted;
    let mut others = members.by_ordinal().into_iter().filter(|(_, member)| differs(member));
    let (id, ordinal, schemes) =
        others.find_map(|(id, member)| Some((id, member.ordinal?, member.schemes)))?;
    if members.learners().next().is_some() {
        return None;
    }
    if let Some(waiting) = against_less(wanted, schemes, facts, members) {
        return Some(Plan::wait(waiting));
    }
    Some(Plan::act(update(members, id, ordinal, wanted)))
}

/// A URL is removed only when no pod serves it and none can be created that does.
fn against_less(
    wanted: Schemes,
    there: Schemes,
    facts: &Assessment<'_>,
    members: &Members,
) -> Option<WaitingOn> {
    let removes = there.iter().any(|scheme| !wanted.contains(scheme));
    let is_away = |ordinal: &Ordinal| {
        facts.seen.pods.get(ordinal).is_none_or(|pod| pod.terminating || served(pod).is_none())
    };
    let away: Vec<Ordinal> =
        members.list.values().filter_map(|member| member.ordinal).filter(is_away).collect();
    if removes && !away.is_empty() {
        return Some(WaitingOn::PodsBack { ordinals: away });
    }
    let followed = facts.seen.set.as_ref().is_some_and(|set| set.followed && !set.terminating);
    (removes && !followed).then_some(WaitingOn::Template)
}

fn served(pod: &Pod) -> Option<Scheme> {
    Some(pod.transport?.peers.scheme())
}

fn update(members: &Members, member: MemberId, ordinal: Ordinal, schemes: Schemes) -> Action {
    Action::UpdatePeerUrls { ordinal, member, schemes, cluster: members.cluster }
}
