//! Certificates that are missing come before everything else: no pod starts without them. Those that expire before long are
//! renewed whenever there is nothing else to do, and so authorities give way to their successors.

use super::Goal;
use crate::asked::Accepted;
use crate::observed::Observed;
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::tls::{
    Cause, Purpose, Rejection, Rotation, Stage, State, Trust, is_in_use, judge, problems, wanted_authorities,
};

/// Before the bootstrap a certificate that expires counts as missing: pods that start with it might never bootstrap. So does
/// one that no pod uses yet, which might be left from an earlier time with TLS. Without a certificate that users have to give, no pod
/// starts.
pub fn missing(goal: &Goal, seen: &Observed) -> Plan {
    let given = given_authorities(goal, seen);
    if !given.is_settled() {
        return given;
    }
    let plan = issue(goal, seen, |purpose, cause| {
        cause != Cause::Due || seen.cluster.formed.is_none() || !is_in_use(purpose, seen)
    });
    let lacks = judge(&goal.certificates, seen).get(&Purpose::Server) == Some(&State::AwaitsGiven);
    match goal.certificates.get(&Purpose::Server).filter(|_| lacks && seen.cluster.formed.is_none()) {
        Some(server) if plan.is_settled() => {
            let problems = problems(server, seen);
            let words = problems.iter().map(|it| it.words(&server.source)).collect();
            match Rejection::of(&problems) {
                Some(Rejection::NotIssued) => Plan::wait(WaitingOn::Issuance { problems: words }),
                Some(rejection) => Plan::refuse(Refusal::NoCertificateGiven { rejection, problems: words }),
                None => plan,
            }
        }
        Some(_) | None => plan,
    }
}

/// What users give is trusted before anything of it is used, and withdrawn like any other authority.
fn given_authorities(goal: &Goal, seen: &Observed) -> Plan {
    let purpose = Purpose::ClientAuthority;
    let wanted = goal.certificates.get(&Purpose::Server).and_then(|it| wanted_authorities(it, seen));
    let trust = Trust::of(purpose, seen).filter(|_| goal.certificates.contains_key(&purpose));
    match wanted.zip(trust) {
        Some((wanted, trust)) if wanted != *trust.given => {
            Plan::act(Action::RotateAuthority { purpose, stage: Stage::Accept })
        }
        Some(_) | None => Plan::default(),
    }
}

pub fn renewals(goal: &Goal, seen: &Observed) -> Plan {
    issue(goal, seen, |_, cause| cause == Cause::Due)
}

fn issue(goal: &Goal, seen: &Observed, is_meant: impl Fn(Purpose, Cause) -> bool) -> Plan {
    let states = judge(&goal.certificates, seen).into_iter();
    let actions = states.filter_map(|(purpose, state)| match state {
        State::Issued(cause) if is_meant(purpose, cause) => Some(Action::IssueCertificate { purpose, cause }),
        State::Copied(copy) if is_meant(purpose, Cause::Missing) => Some(Action::CopyCertificate { copy }),
        State::Issued(_)
        | State::Copied(_)
        | State::Kept { .. }
        | State::Valid { .. }
        | State::AwaitsAuthority
        | State::AwaitsTrust
        | State::AwaitsClients(_)
        | State::AwaitsGiven
        | State::AuthorityLost => None,
    });
    Plan { actions: actions.collect(), ..Plan::default() }
}

/// Introduces successors of all authorities, if a user asks for that or one of them expires before long: then members restart
/// once for all of them. A request is accepted when all successors are there. This comes before any restart.
pub fn successors(goal: &Goal, seen: &Observed) -> Plan {
    let Some(trusts) = trusts(goal, seen).filter(|_| seen.cluster.formed.is_some()) else {
        return Plan::default();
    };
    // A successor would hide which authority a user has to restore.
    if judge(&goal.certificates, seen).values().any(|state| *state == State::AuthorityLost) {
        return Plan::default();
    }
    let accepted = seen.cluster.rotation.as_ref().map(|(token, _)| token);
    let asked = goal.asked.rotation.as_ref().filter(|token| Some(*token) != accepted);
    // A rotation that is under way ends first: otherwise there would be more and more authorities to trust.
    if trusts.iter().any(|(_, trust)| trust.is_rotating() && trust.next.is_none()) {
        return Plan::default();
    }
    // One that was created since a request was accepted is not part of it.
    let is_due = |trust: &Trust<'_>| trust.rotation(&goal.certificates) <= seen.now;
    let begins = asked.is_some() || trusts.iter().any(|(_, trust)| is_due(trust));
    let lacking = trusts.iter().filter(|(_, trust)| begins && trust.next.is_none());
    let actions: Vec<Action> =
        lacking.map(|&(purpose, _)| Action::RotateAuthority { purpose, stage: Stage::Introduce }).collect();
    if !actions.is_empty() {
        return Plan { actions, ..Plan::default() };
    }
    let authorities = trusts.iter().filter_map(|(_, trust)| Some(trust.next?.key.clone()));
    let accept =
        |token: &String| Accepted::Rotation { token: token.clone(), authorities: authorities.collect() };
    asked.map(|token| Plan::act(Action::Accept(accept(token)))).unwrap_or_default()
}

/// Lets successors sign, and withdraws the authorities before them: all together, so that members restart once for that.
pub fn rotation(goal: &Goal, seen: &Observed) -> Plan {
    let Some(trusts) = trusts(goal, seen).filter(|_| seen.cluster.formed.is_some()) else {
        return Plan::default();
    };
    let states = judge(&goal.certificates, seen);
    let (mut promoted, mut withdrawn, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for (purpose, trust) in trusts {
        match trust.next_step(&goal.certificates, &states) {
            Rotation::None => {}
            Rotation::Due(Stage::Withdraw) => withdrawn.push(purpose),
            Rotation::Due(Stage::Introduce | Stage::Promote | Stage::Accept) => promoted.push(purpose),
            Rotation::AwaitsTrust(tally) => waiting.push(WaitingOn::Trust { authority: purpose, tally }),
            Rotation::AwaitsUse(purpose, tally) => waiting.push(WaitingOn::Use { purpose, tally }),
            Rotation::AwaitsClients(purpose, until) => waiting.push(WaitingOn::Clients { purpose, until }),
        }
    }
    let step = |purposes: Vec<Purpose>, stage| {
        purposes.into_iter().map(move |purpose| Action::RotateAuthority { purpose, stage }).collect()
    };
    let actions: Vec<Action> = match (promoted.is_empty(), waiting.is_empty()) {
        (false, _) => step(promoted, Stage::Promote),
        (true, true) => step(withdrawn, Stage::Withdraw),
        (true, false) => Vec::new(),
    };
    Plan { actions, waiting, ..Plan::default() }
}

/// Of all authorities that the cluster needs; none if one of them is lost, or without TLS.
fn trusts<'a>(goal: &Goal, seen: &'a Observed) -> Option<Vec<(Purpose, Trust<'a>)>> {
    let authorities = goal.certificates.keys().filter(|purpose| purpose.issuer().is_none());
    let trusts: Option<Vec<_>> = authorities.map(|&it| Some((it, Trust::of(it, seen)?))).collect();
    trusts.filter(|trusts| !trusts.is_empty())
}
