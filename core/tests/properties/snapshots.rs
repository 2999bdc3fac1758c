//! Random snapshots: any mixture of pods, volumes and members, and settled clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::decide::{Goal, OnDelete, OnStop};
use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{
    Alarm, Answer, Blocked, Claim, ClusterId, Exit, FormRecord, Formed, LossSign, Member, MemberId, Members,
    NodeLoss, Observed, Order, Ordinal, Pod, Preflight, PreflightState, Process, Seen, Set, Unanswered,
};
use etcd_operator_core::schedule::{Schedule, Window};
use etcd_operator_core::version::Version;
use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// More than the API allows: as text, pod 10 comes before pod 9.
const ORDINALS: usize = 13;
const ID: ClusterId = ClusterId(0xc1);
const OTHER: ClusterId = ClusterId(0xc2);

/// What may be at one ordinal.
#[derive(Clone, Debug)]
struct Slot {
    pod: Option<(Process, bool, bool, Option<Digest>, Protocol)>,
    claim: Option<(Label, bool, bool, &'static str)>,
    member: Option<(bool, MemberProgress, Voice)>,
    index: u64,
    hash: Option<u32>,
    alarmed: bool,
    /// Ordinals, as bits.
    reaches: Option<u16>,
    version: Option<Version>,
    /// The etcd cluster as which it answers.
    cluster: ClusterId,
}

#[derive(Clone, Copy, Debug)]
enum Label {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Voice {
    Serves,
    Answers,
    Silent,
    LongSilent,
}

fn slot() -> impl Strategy<Value = Slot> {
    let process = select(vec![
        Process::CannotStart(Blocked::Unschedulable("no room".into())),
        Process::Beginning,
        Process::Waiting,
        Process::Forming,
        Process::DataLost,
        Process::Failing(Exit { code: 1, message: String::new() }),
        Process::Started,
        Process::Started,
    ]);
    let label = select(vec![Label::None, Label::Right, Label::Right, Label::Wrong]);
    let start = select(vec![
        MemberProgress::Added,
        MemberProgress::Listed,
        MemberProgress::Published,
        MemberProgress::Published,
        MemberProgress::Published,
    ]);
    let voice = select(vec![Voice::Serves, Voice::Serves, Voice::Answers, Voice::Silent, Voice::LongSilent]);
    let often = prop::bool::weighted(0.8);
    let seldom = prop::bool::weighted(0.2);
    let owner = prop_oneof![40 => Just("uid"), 2 => Just("former"), 1 => Just("stranger")];
    let version = prop_oneof![
        8 => Just(Some(Version::new(3, 6, 11))),
        3 => Just(Some(Version::new(3, 5, 30))),
        1 => Just(None),
    ];
    let all: u16 = (1 << 9) - 1;
    let reaches = prop_oneof![20 => Just(Some(all)), 2 => (0..9_u32).prop_map(move |it| Some(all & !(1 << it))), 1 => Just(None)];
    (
        option::of((process, seldom, often, form(), agent())),
        option::of((label, seldom, often, owner)),
        option::of((seldom, start, voice)),
        select(vec![0_u64, 4500, 5000]),
        option::weighted(0.9, select(vec![1_u32, 1, 1, 1, 2])),
        (prop::bool::weighted(0.05), reaches),
        version,
        prop_oneof![30 => Just(ID), 1 => Just(OTHER)],
    )
        .prop_map(|(pod, claim, member, index, hash, (alarmed, reaches), version, cluster)| Slot {
            pod,
            claim,
            member,
            index,
            hash,
            alarmed,
            reaches,
            version,
            cluster,
        })
}

/// Mostly that of this version.
fn agent() -> impl Strategy<Value = Protocol> {
    prop_oneof![4 => Just(Protocol::CURRENT), 1 => Just(Protocol(1))]
}

/// None, one that is open at the time of all snapshots, or one that is closed.
fn windows() -> impl Strategy<Value = Vec<Window>> {
    let window = |cron| Window { schedule: Schedule::new(cron, "UTC").expect("a schedule"), minutes: 60 };
    select(vec![vec![], vec![window("0 0 * * *")], vec![window("0 12 * * *")]])
}

const OLD: &str = "A";
const NEW: &str = "B";

/// Mostly one of two, and sometimes unknown.
fn form() -> impl Strategy<Value = Option<Digest>> {
    let digest = |name: &str| Some(Digest(name.into()));
    prop_oneof![10 => Just(digest(OLD)), 10 => Just(digest(NEW)), 1 => Just(digest("C")), 1 => Just(None)]
}

/// A preflight pod cannot tell form C from the old one.
pub fn proof_of(form: &Digest) -> Digest {
    Digest(if form.0 == "C" { OLD.into() } else { form.0.clone() })
}

/// Two pods share one.
fn node(ordinal: Ordinal) -> String {
    format!("n{}", ordinal.0.max(1))
}

fn preflight() -> impl Strategy<Value = Option<Preflight>> {
    let state = select(vec![
        PreflightState::Pending,
        PreflightState::Passed,
        PreflightState::Passed,
        PreflightState::Passed,
        PreflightState::Blocked(Blocked::SlowCreation),
        PreflightState::Failed(Exit { code: 1, message: String::new() }),
        PreflightState::Interrupted("Evicted".into()),
    ]);
    let proof = form().prop_map(|form| form.as_ref().map(proof_of));
    let pod = (state, proof, prop::bool::weighted(0.1), select(vec![0_i64, 90])).prop_map(
        |(state, proof, terminating, created)| Preflight {
            uid: "preflight".into(),
            terminating,
            created: at(created),
            node: None,
            proof,
            state,
        },
    );
    option::weighted(0.7, pod)
}

fn wanted() -> impl Strategy<Value = Option<Wanted>> {
    let version = select(vec![Version::new(3, 6, 11), Version::new(3, 6, 11), Version::new(3, 5, 30)]);
    (form(), version).prop_map(|(form, version)| {
        let form = form?;
        Some(Wanted { proof: Some(proof_of(&form)), plain: None, form, version })
    })
}

fn record() -> impl Strategy<Value = Option<FormRecord>> {
    (form(), prop::bool::weighted(0.1)).prop_map(|(form, held)| {
        let held_generation = held.then_some(1);
        let (uid, version) = ("record".into(), Version::new(3, 6, 11));
        let (adopts, cleared, form) = (None, BTreeSet::new(), form?);
        let proof = Some(proof_of(&form));
        let (plain, tls) = (None, None);
        Some(FormRecord { uid, form, version, proof, held_generation, adopts, cleared, plain, tls })
    })
}

type Template = (Option<Digest>, bool, bool, Protocol);

/// What a StatefulSet creates pods from, and whether its controller has read that.
fn template() -> impl Strategy<Value = Template> {
    (form(), prop::bool::weighted(0.1), prop::bool::weighted(0.8), agent())
}

fn goal() -> impl Strategy<Value = Goal> {
    let on_stop = select(vec![OnStop::Retain, OnStop::RetainAll, OnStop::Delete]);
    let on_delete = select(vec![OnDelete::Retain, OnDelete::Delete]);
    let adopts = option::weighted(0.3, Just("former".to_owned()));
    let budget = prop::bool::weighted(0.8);
    let operator = (windows(), agent());
    (0_u8..=9, prop::bool::weighted(0.02), on_stop, on_delete, adopts, wanted(), budget, operator).prop_map(
        |(size, paused, on_stop, on_delete, adopts, form, disruption_budget, operator)| Goal {
            paused,
            on_stop,
            on_delete,
            adopts,
            form,
            disruption_budget,
            windows: operator.0,
            lowest_agent: operator.1,
            ..Goal::of_size(size)
        },
    )
}

/// Mostly clusters that run. Some are at their beginning, where volumes can be adopted: no StatefulSet, no order, nothing
/// remembered.
pub fn anything() -> impl Strategy<Value = (Goal, Observed)> {
    let at_the_beginning = anywhere().prop_map(|(goal, mut seen)| {
        seen.cluster.formed = None;
        (seen.set, seen.order) = (None, None);
        (goal, seen)
    });
    prop_oneof![6 => anywhere(), 1 => at_the_beginning, 3 => almost_settled(), 5 => rolling()]
}

/// Settled, but for one member.
fn almost_settled() -> impl Strategy<Value = (Goal, Observed)> {
    (settled(), 0..9_usize, slot(), option::of(loss())).prop_map(|((goal, mut seen), ordinal, slot, loss)| {
        let ordinal = ordinal % usize::from(goal.size);
        let (id, at) = (member_id(ordinal), Ordinal(ordinal as u8));
        seen.pods.remove(&at);
        seen.claims.remove(&at);
        seen.etcd.answers.remove(&at);
        let leader = seen.etcd.members.known().and_then(|members| members.leader);
        if let Seen::Known(members) = &mut seen.etcd.members {
            members.list.remove(&id);
        }
        fill(&mut seen, ordinal, &slot);
        if let Some((pod, (loss, was_ready))) = seen.pods.get_mut(&at).zip(loss) {
            (pod.loss, pod.was_ready) = (Some(loss), was_ready);
        }
        lead(&mut seen, leader);
        (goal, seen)
    })
}

/// Since a while ago or for long, by any sign.
fn loss() -> impl Strategy<Value = (NodeLoss, bool)> {
    let sign =
        select(vec![LossSign::PodMarked, LossSign::NodeNotReady, LossSign::EndOverdue, LossSign::PodEnded]);
    (select(vec![-1000_i64, 50]), sign, prop::bool::ANY).prop_map(|(since, sign, was_ready)| {
        (NodeLoss { node: "n1".into(), since: at(since), sign }, was_ready)
    })
}

/// All is well, but pods have one form or the other, and some do not serve.
fn rolling() -> impl Strategy<Value = (Goal, Observed)> {
    let changes = vec((form(), prop::bool::weighted(0.1), prop::bool::weighted(0.15), agent()), 9);
    let small = option::weighted(0.3, settled_with(1..=2));
    (settled(), small, wanted(), template(), record(), changes, vec(preflight(), 9)).prop_map(
        |(any, small, wanted, template, record, changes, preflights)| {
            let (mut goal, mut seen) = small.unwrap_or(any);
            goal.form = wanted;
            for (ordinal, preflight) in Ordinal::below(9).zip(preflights) {
                let node = Some(node(ordinal));
                seen.preflights.extend(preflight.map(|it| (ordinal, Preflight { node, ..it })));
            }
            seen.record = record;
            seen.cluster.generation = Some(1);
            seen.set.iter_mut().for_each(|set| set_template(set, &template));
            for (pod, (form, terminating, _, agent)) in seen.pods.values_mut().zip(&changes) {
                (pod.form, pod.terminating, pod.agent) = (form.clone(), *terminating, *agent);
            }
            for (answer, (_, terminating, silent, _)) in seen.etcd.answers.values_mut().zip(&changes) {
                if *silent || *terminating {
                    *answer = Seen::Unknown(Unanswered::Unreachable("silent".into()));
                }
            }
            (goal, seen)
        },
    )
}

fn set_template(set: &mut Set, (template, unmarked, followed, agent): &Template) {
    (set.template, set.unmarked, set.followed) = (template.clone(), *unmarked, *followed);
    set.agent = *agent;
}

fn anywhere() -> impl Strategy<Value = (Goal, Observed)> {
    let cluster = (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.9),
        option::weighted(0.8, select(vec![0_i64, 30, 80])),
    );
    let order = option::weighted(0.2, (prop::bool::weighted(0.7), 1_u8..=9));
    let leader = option::weighted(0.9, 0..ORDINALS);
    let listed = prop_oneof![15 => Just(Some(ID)), 1 => Just(Some(OTHER)), 4 => Just(None)];
    let slots = vec(option::weighted(0.6, slot()), ORDINALS);
    let set = option::weighted(0.9, (0_u8..=9, template()));
    (goal(), cluster, order, set, slots, leader, listed, record()).prop_map(
        |(goal, (deleting, finalizer, formed), order, set, slots, leader, listed, record)| {
            let mut seen = empty();
            seen.cluster.deleting = deleting;
            seen.cluster.finalizer = finalizer;
            seen.cluster.formed = formed.map(|since| Formed { id: ID, since: at(since) });
            seen.order = order.map(|(armed, size)| Order { uid: "order".into(), armed, size });
            seen.record = record;
            seen.set = set.map(|(replicas, template)| {
                let mut set = Set::keeping(replicas, "set");
                set_template(&mut set, &template);
                set
            });
            for (ordinal, slot) in slots.iter().enumerate() {
                if let Some(slot) = slot {
                    fill(&mut seen, ordinal, slot);
                }
            }
            lead(&mut seen, leader.map(member_id));
            match (listed, &mut seen.etcd.members) {
                (Some(cluster), Seen::Known(members)) => members.cluster = cluster,
                _ => seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead),
            }
            (goal, seen)
        },
    )
}

pub fn settled() -> impl Strategy<Value = (Goal, Observed)> {
    settled_with(1..=9)
}

fn settled_with(sizes: RangeInclusive<u8>) -> impl Strategy<Value = (Goal, Observed)> {
    (goal(), sizes, 0..9_usize).prop_map(|(mut goal, size, leader)| {
        goal.size = size;
        goal.paused = false;
        let version = Version::new(3, 5, 30);
        let form = Digest(OLD.into());
        let proof = Some(proof_of(&form));
        goal.form = Some(Wanted { form: form.clone(), version, proof: proof.clone(), plain: None });
        let mut seen = empty();
        seen.cluster.formed = Some(Formed { id: ID, since: at(0) });
        let template = Some(form.clone());
        seen.set = Some(Set { template, ..Set::keeping(goal.size, "set") });
        let uid = "record".into();
        seen.record = Some(FormRecord {
            uid,
            form: form.clone(),
            version,
            proof,
            held_generation: None,
            adopts: None,
            cleared: Default::default(),
            plain: None,
            tls: None,
        });
        for ordinal in 0..usize::from(goal.size) {
            let slot = Slot {
                pod: Some((Process::Started, false, true, Some(form.clone()), Protocol::CURRENT)),
                claim: Some((Label::Right, false, true, "uid")),
                member: Some((false, MemberProgress::Published, Voice::Serves)),
                index: 5000,
                hash: None,
                alarmed: false,
                reaches: None,
                version: Some(version),
                cluster: ID,
            };
            fill(&mut seen, ordinal, &slot);
        }
        lead(&mut seen, Some(member_id(leader % usize::from(goal.size))));
        (goal, seen)
    })
}

fn empty() -> Observed {
    let mut seen = Observed { now: at(100), ..Observed::nothing_of("uid") };
    seen.etcd.members = Seen::Known(Members { cluster: ID, leader: None, list: BTreeMap::new() });
    seen
}

/// IDs are in another order than ordinals.
fn member_id(ordinal: usize) -> MemberId {
    MemberId(0x100 + (ordinal as u64 * 7) % 16)
}

fn fill(seen: &mut Observed, ordinal: usize, slot: &Slot) {
    let id = member_id(ordinal);
    let ordinal = Ordinal(ordinal as u8);
    let Slot { pod, claim, member, index, hash, alarmed, reaches, version, cluster } = slot.clone();
    if let Some((etcd, terminating, published, form, agent)) = pod {
        let (uid, created) = (format!("pod-{ordinal}"), Some(at(i64::from(ordinal.0) / 2)));
        let (node, orphaned) = (Some(node(ordinal)), false);
        let handshakes = BTreeMap::new();
        let transport = None;
        let pod = Pod {
            uid,
            terminating,
            published,
            etcd,
            form,
            version,
            transport,
            node,
            loss: None,
            was_ready: false,
            agent,
            orphaned,
            created,
            handshakes,
        };
        seen.pods.insert(ordinal, pod);
    }
    if let Some((label, terminating, bound, owner)) = claim {
        let member = match label {
            Label::None => None,
            Label::Right => Some(id),
            Label::Wrong => Some(MemberId(id.0 + 0x1000)),
        };
        let uid = format!("claim-{ordinal}");
        seen.claims.insert(
            ordinal,
            Claim { uid, terminating, cluster_uid: owner.into(), bound, member, ..Claim::default() },
        );
    }
    let Some((learner, start, voice)) = member else { return };
    let alarm = || Alarm { member: id, kind: "NOSPACE".into() };
    let alarms = alarmed.then(alarm).into_iter().collect();
    let answer = Answer {
        cluster,
        member: id,
        leader: None,
        linearizable: voice == Voice::Serves && !learner,
        denied: false,
        applied_index: index,
        commit_index: 0,
        term: 0,
        version,
        storage_version: None,
        downgrade: Default::default(),
        listed: Some(3),
        hash,
        alarms,
        space: None,
        file: None,
        reaches: reaches.map(|bits| (0..9).filter(|it| bits & (1 << it) != 0).map(member_id).collect()),
    };
    match voice {
        Voice::Serves | Voice::Answers => {
            seen.etcd.answers.insert(ordinal, Seen::Known(answer));
        }
        Voice::Silent => {
            seen.etcd.answers.insert(ordinal, Seen::Unknown(Unanswered::Unreachable("silent".into())));
        }
        Voice::LongSilent => {
            seen.etcd.silent_since.insert(id, at(0));
        }
    }
    if let Seen::Known(members) = &mut seen.etcd.members {
        members
            .list
            .insert(id, Member { ordinal: Some(ordinal), learner, start, schemes: Default::default() });
    }
}

fn lead(seen: &mut Observed, leader: Option<MemberId>) {
    if let Seen::Known(members) = &mut seen.etcd.members {
        let voters: BTreeSet<MemberId> = members.voters().map(|(id, _)| id).collect();
        members.leader = leader.filter(|id| voters.contains(id));
    }
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            answer.leader = leader;
        }
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("the first years")
}
