//! Reads a snapshot from its description; the words are in README.md beside this file.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::api::Quantity;
use etcd_operator_core::asked::Asked;
use etcd_operator_core::decide::{Goal, OnDelete, OnStop};
use etcd_operator_core::foreign::NotRead;
use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::names::ANNOTATION_OF;
use etcd_operator_core::observed::{
    Alarm, Answer, Backup, Blocked, Claim, Cluster, ClusterId, Compared, Comparison, CopyResult, Exit,
    FormRecord, Formed, LossSign, Member, MemberId, Members, Node, NodeLoss, Nodes, Observed, Order, Ordinal,
    Pod, Preflight, PreflightState, Process, Reclaimed, Recovery, RequestedCopy, Resize, Seen, Set, Space,
    Unanswered, Unread, VolumeForm,
};
use etcd_operator_core::recovery::{Consent, Survivor};
use etcd_operator_core::restores::Replacement;
use etcd_operator_core::schedule::{Schedule, Window};
use etcd_operator_core::snapshot::Snapshot;
use etcd_operator_core::tls::{Scheme, Schemes, Section, Switch};
use etcd_operator_core::version::Version;
use etcd_operator_core::version::downgrade::Downgrade;
use jiff::Timestamp;

use authentication::read_auth;
use secrets::{names, ports, read_given, read_port, read_secret, read_tls, show_secrets};

#[path = "authentication.rs"]
mod authentication;

#[path = "secrets.rs"]
mod secrets;

const UID: &str = "cluster-uid";
const ID: ClusterId = ClusterId(0xc1);

type Result<T> = std::result::Result<T, String>;

pub fn read(description: &str) -> Result<(Goal, Observed)> {
    let mut goal = Goal::of_size(3);
    let mut seen = nothing();
    for line in description.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(logged) = line.strip_prefix("observation ") {
            let logged: Snapshot = serde_json::from_str(logged).map_err(|problem| problem.to_string())?;
            (goal, seen) = (logged.goal, logged.observed);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        understand(&words, &mut goal, &mut seen).map_err(|problem| format!("{problem}, in: {line}"))?;
    }
    show_secrets(&mut seen);
    Ok((goal, seen))
}

fn nothing() -> Observed {
    let mut seen = Observed { now: at(100), ..Observed::nothing_of(UID) };
    seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead);
    seen
}

fn understand(words: &[&str], goal: &mut Goal, seen: &mut Observed) -> Result<()> {
    let (&subject, rest) = words.split_first().ok_or("an empty line")?;
    match (subject, rest) {
        ("goal", rest) => read_goal(rest, goal),
        ("cluster", rest) => read_cluster(rest, &mut seen.cluster),
        ("now", [seconds]) => number(seconds).map(|seconds| seen.now = at(seconds)),
        ("order", ["gone"]) => {
            seen.order = None;
            Ok(())
        }
        ("order", [size, rest @ ..]) => {
            let armed = !rest.contains(&"unarmed");
            seen.order = Some(Order { uid: "order-uid".into(), armed, size: number(size)? });
            Ok(())
        }
        ("replacement", rest) => {
            seen.cluster.replacement = Some(read_replacement(rest)?);
            Ok(())
        }
        ("restored", rest) => {
            seen.restored = read_apart(rest, "restored-uid")?;
            Ok(())
        }
        ("elsewhere", [name, rest @ ..]) => {
            let claim = read_apart(rest, name)?;
            seen.elsewhere.extend(claim.map(|claim| ((*name).to_owned(), claim)));
            Ok(())
        }
        ("recovery", ["gone"]) => {
            seen.recovery = None;
            Ok(())
        }
        ("recovery", rest) => {
            seen.recovery = Some(read_recovery(rest)?);
            Ok(())
        }
        ("set", ["gone"]) => {
            seen.set = None;
            Ok(())
        }
        ("set", [replicas]) => {
            seen.set = Some(set(number(replicas)?));
            Ok(())
        }
        ("window", rest) => {
            goal.windows.push(window(rest)?);
            Ok(())
        }
        ("ask", [what, value]) => read_request(what, value, goal),
        ("template", rest) => {
            read_template(rest, seen.set.as_mut().ok_or("there is no set with a template")?)
        }
        ("record", ["gone"]) => {
            seen.record = None;
            Ok(())
        }
        ("record", [form, rest @ ..]) => read_record(form, rest, seen),
        ("reject", [ordinal, rest @ ..]) => {
            let set = seen.set.as_mut().ok_or("there is no set that could create a pod")?;
            set.rejected.insert(Ordinal(number(ordinal)?), rest.join(" "));
            Ok(())
        }
        ("alarm", [kind, id]) => raise(kind, MemberId(hexadecimal(id)?), seen),
        ("pod" | "pods", [which, rest @ ..]) => {
            range(which, 10)?.try_for_each(|ordinal| read_pod(Ordinal(ordinal as u8), rest, seen))
        }
        ("preflight" | "preflights", [which, rest @ ..]) => {
            range(which, 10)?.try_for_each(|ordinal| read_preflight(Ordinal(ordinal as u8), rest, seen))
        }
        ("reclaimed", rest) => read_reclaimed(rest, &mut seen.etcd.reclaimed),
        ("fragmented", [ids]) => {
            let ids = ids.split(',').map(|id| hexadecimal(id).map(MemberId));
            seen.etcd.fragmented = ids.collect::<Result<_>>()?;
            Ok(())
        }
        ("compared", rest) => read_compared(rest, &mut seen.etcd.compared),
        ("backup", [name, rest @ ..]) => read_backup(name, rest, seen),
        ("claim" | "claims", [which, rest @ ..]) => {
            range(which, 10)?.try_for_each(|ordinal| read_claim(Ordinal(ordinal as u8), rest, seen))
        }
        ("volume" | "volumes", [which, rest @ ..]) => {
            range(which, 10)?.try_for_each(|ordinal| read_volume(Ordinal(ordinal as u8), rest, seen))
        }
        ("member" | "members", [which, rest @ ..]) => {
            range(which, 16)?.try_for_each(|id| read_member(MemberId(id), rest, seen))
        }
        ("tls", rest) => read_tls(rest, goal, seen),
        ("auth", rest) => read_auth(rest, goal, seen),
        ("given", words) => read_given(words, goal, seen),
        ("secret", [which, rest @ ..]) => read_secret(which, rest, goal, seen),
        ("port" | "ports", [which, rest @ ..]) => {
            range(which, 10)?.try_for_each(|ordinal| read_port(Ordinal(ordinal as u8), rest, seen))
        }
        ("node", [name, rest @ ..]) => read_node(name, rest, seen),
        ("nodes", [word]) => read_nodes(word, seen),
        ("pod-monitor", [word]) => read_pod_monitor(word, seen),
        ("leader", [who]) => read_leader(who, seen),
        ("etcd", ["unknown"]) => {
            seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead);
            Ok(())
        }
        ("etcd", ["denied"]) => {
            seen.etcd.members = Seen::Unknown(Unanswered::AccessDenied);
            Ok(())
        }
        ("etcd", ["is", id]) => {
            members(seen).cluster = ClusterId(hexadecimal(id)?);
            Ok(())
        }
        ("running", [size]) => running(number(size)?, seen),
        _ => Err("not understood".into()),
    }
}

fn set(replicas: u8) -> Set {
    Set::keeping(replicas, "set-uid")
}

/// Every member that answers knows it; `none` disarms all.
fn raise(kind: &str, member: MemberId, seen: &mut Observed) -> Result<()> {
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            answer.alarms = match kind {
                "none" => BTreeSet::new(),
                kind => BTreeSet::from([Alarm { member, kind: kind.into() }]),
            };
        }
    }
    Ok(())
}

fn running(size: u8, seen: &mut Observed) -> Result<()> {
    seen.cluster.formed = Some(Formed { id: ID, since: at(0) });
    seen.set = Some(set(size));
    for ordinal in Ordinal::below(size) {
        let member = format!("member=a{ordinal:x}", ordinal = ordinal.0);
        read_pod(ordinal, &["started"], seen)?;
        read_claim(ordinal, &[&member], seen)?;
        read_member(MemberId(0xa0 + u64::from(ordinal.0)), &[], seen)?;
    }
    read_leader("a0", seen)
}

fn read_pod_monitor(word: &str, seen: &mut Observed) -> Result<()> {
    seen.pod_monitor = match word {
        "known" => None,
        "no-api" => Some(NotRead::NoApi),
        "forbidden" => Some(NotRead::Failed("podmonitors is forbidden".into())),
        _ => return Err("pod-monitor WHY".into()),
    };
    Ok(())
}

fn read_goal(words: &[&str], goal: &mut Goal) -> Result<()> {
    for word in words {
        match *word {
            "paused" => goal.paused = true,
            "unpaused" => goal.paused = false,
            "on-stop=Retain" => goal.on_stop = OnStop::Retain,
            "on-stop=RetainAll" => goal.on_stop = OnStop::RetainAll,
            "on-stop=Delete" => goal.on_stop = OnStop::Delete,
            "on-delete=Retain" => goal.on_delete = OnDelete::Retain,
            "on-delete=Delete" => goal.on_delete = OnDelete::Delete,
            "adopt" => goal.adopts = Some("former-uid".into()),
            "supervised" => goal.supervised = true,
            "no-consent" => goal.recovery = None,
            consent if consent.starts_with("consent=") => goal.recovery = Some(read_consent(consent)?),
            "no-budget" => goal.disruption_budget = false,
            "never-compared" => goal.consistency_interval_seconds = None,
            grace if grace.starts_with("grace=") => {
                goal.node_loss_grace_seconds = number(grace.trim_start_matches("grace="))?;
            }
            form if form.starts_with("form=") => goal.form = Some(wanted(form)?),
            agent if agent.starts_with("agent=") => goal.lowest_agent = protocol(agent)?,
            word if word.starts_with("ports=") => {
                let (form, target) = (ports(word)?, ports(word)?);
                goal.switch = Some(Switch { form, target, section: Section::InForce, mixed: false });
            }
            form if form.starts_with("volumes=") => goal.volumes = Some(volumes(form)?),
            size => goal.size = number(size)?,
        }
    }
    Ok(())
}

/// `consent=c1/Auto`, or a pod or any other name for `Auto`: `consent=c1/2`
fn read_consent(word: &str) -> Result<Consent> {
    let (id, survivor) = word["consent=".len()..].split_once('/').ok_or("consent=ID/SURVIVOR")?;
    let survivor = match (survivor, survivor.parse()) {
        ("Auto", _) => Survivor::Auto,
        (_, Ok(ordinal)) => Survivor::Pod(Ordinal(ordinal)),
        (name, Err(_)) => Survivor::Unknown(name.into()),
    };
    Ok(Consent { cluster: ClusterId(hexadecimal(id)?), survivor })
}

/// `recovery`, or armed: `recovery 0 pod-0-uid`
fn read_recovery(words: &[&str]) -> Result<Recovery> {
    let start = match words {
        [] => None,
        [survivor, pod] => Some((Ordinal(number(survivor)?), (*pod).into())),
        _ => return Err("recovery SURVIVOR POD".into()),
    };
    Ok(Recovery { uid: "recovery-uid".into(), start })
}

/// `c9 for c1 above=100 version=3.6.0 peers=https`: what EtcdRestore `back` has prepared.
fn read_replacement(words: &[&str]) -> Result<Replacement> {
    let [cluster, "for", replaces, rest @ ..] = words else { return Err("replacement ID for ID".into()) };
    let mut order = Replacement {
        restore: "back".into(),
        uid: "restore-uid".into(),
        replaces: ClusterId(hexadecimal(replaces)?),
        cluster: ClusterId(hexadecimal(cluster)?),
        volumes: "datanew".into(),
        claim: "restored-uid".into(),
        version: Version::new(3, 6, 0),
        peers: Scheme::Http,
        above: None,
    };
    for word in rest {
        match word.split_once('=').unwrap_or((word, "")) {
            ("above", revision) => order.above = Some(number(revision)?),
            ("version", version) => order.version = Version::parse(version).ok_or("no version")?,
            ("peers", "https") => order.peers = Scheme::Https,
            _ => return Err(format!("{word} is not understood")),
        }
    }
    Ok(order)
}

/// A claim that is none of the members'.
fn read_apart(words: &[&str], uid: &str) -> Result<Option<Claim>> {
    let mut apart = nothing();
    let (uid, words): (&str, Vec<&str>) = match words {
        ["other", rest @ ..] => ("other-uid", rest.to_vec()),
        rest => (uid, rest.to_vec()),
    };
    read_claim(Ordinal(0), &words, &mut apart)?;
    Ok(apart.claims.remove(&Ordinal(0)).map(|claim| Claim { uid: uid.into(), ..claim }))
}

/// `form=B`, or with another version than that of every member: `form=B@3.6.16`. `form=B~A` has the image and the arguments
/// of form A.
fn wanted(word: &str) -> Result<Wanted> {
    let form = word.strip_prefix("form=").unwrap_or(word);
    let (form, version) = form.split_once('@').unwrap_or((form, "3.6.0"));
    let version = Version::parse(version).ok_or("no version")?;
    let (form, proof) = form.split_once('~').unwrap_or((form, form));
    let (proof, plain) = (Some(Digest(format!("{proof}@{version}"))), None);
    Ok(Wanted { form: Digest(form.into()), version, proof, plain })
}

/// The version of what an agent writes: `agent=2`.
fn protocol(word: &str) -> Result<Protocol> {
    number(word.strip_prefix("agent=").unwrap_or(word)).map(Protocol)
}

/// `0 3 * * 6 for 60`: a cron expression in UTC, and minutes.
fn window(words: &[&str]) -> Result<Window> {
    let [cron @ .., "for", minutes] = words else { return Err("window CRON for MINUTES".into()) };
    let schedule = Schedule::new(&cron.join(" "), "UTC").ok_or("no schedule")?;
    Ok(Window { schedule, minutes: number(minutes)? })
}

/// `volumes=2Gi`, or with a class: `volumes=2Gi/fast`.
fn volumes(word: &str) -> Result<VolumeForm> {
    let form = word.strip_prefix("volumes=").unwrap_or(word);
    let (size, class) = form.split_once('/').map_or((form, None), |(size, class)| (size, Some(class)));
    Ok(VolumeForm { bytes: bytes(size)?, class: class.map(str::to_owned) })
}

fn bytes(size: &str) -> Result<u64> {
    Quantity::Text(size.into()).bytes().ok_or(format!("{size} is no size"))
}

/// As in the annotation of this name.
fn read_request(what: &str, value: &str, goal: &mut Goal) -> Result<()> {
    let annotation = BTreeMap::from([(format!("{ANNOTATION_OF}{what}"), value.to_owned())]);
    let (asked, malformed) = Asked::read(&annotation, &names());
    if asked == Asked::default() {
        return Err(format!("no request: {malformed:?}"));
    }
    goal.asked = asked;
    Ok(())
}

fn read_template(words: &[&str], set: &mut Set) -> Result<()> {
    for word in words {
        match *word {
            "followed" => set.followed = true,
            "unread" => set.followed = false,
            "unmarked" => set.unmarked = true,
            agent if agent.starts_with("agent=") => set.agent = protocol(agent)?,
            word if word.starts_with("ports=") => set.transport = Some(ports(word)?),
            "terminating" => set.terminating = true,
            "adopted" => set.adopts = Some("former-uid".into()),
            form if form.starts_with("volumes=") => set.volumes = Some(volumes(form)?),
            name if name.starts_with("volumes-called=") => {
                set.other_volumes = Some(name.trim_start_matches("volumes-called=").into());
            }
            form => (set.template, set.unmarked) = (Some(Digest(form.into())), false),
        }
    }
    Ok(())
}

fn read_record(form: &str, words: &[&str], seen: &mut Observed) -> Result<()> {
    let Wanted { form, version, proof, plain } = wanted(form)?;
    let mut record = FormRecord {
        uid: "record-uid".into(),
        form,
        version,
        proof,
        held_generation: None,
        adopts: None,
        cleared: BTreeSet::new(),
        plain,
        tls: None,
    };
    for word in words {
        match *word {
            cleared if cleared.starts_with("cleared=") => {
                let ids =
                    cleared.trim_start_matches("cleared=").split(',').map(|id| hexadecimal(id).map(MemberId));
                record.cleared = ids.collect::<Result<_>>()?;
            }
            word if word.starts_with("ports=") => seen.transport = Some(ports(word)?),
            "tls-in-force" => record.tls = Some(Section::InForce),
            "tls-dormant" => record.tls = Some(Section::Dormant(Box::default())),
            "held" => record.held_generation = seen.cluster.generation,
            "adopted" => record.adopts = Some("former-uid".into()),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    seen.record = Some(record);
    Ok(())
}

fn read_cluster(words: &[&str], cluster: &mut Cluster) -> Result<()> {
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("no-finalizer", "") => cluster.finalizer = false,
            ("finalizer", "") => cluster.finalizer = true,
            ("deleting", "") => cluster.deleting = true,
            ("incarnation", incarnation) => cluster.incarnation = Some(incarnation.into()),
            ("generation", generation) => cluster.generation = Some(number(generation)?),
            ("rotation", request) => {
                let (token, keys) = request.split_once('/').ok_or("rotation=TOKEN/KEYS")?;
                cluster.rotation = Some((token.into(), keys.split(',').map(str::to_owned).collect()));
            }
            ("restarts", request) => {
                let (token, pods) = request.split_once('/').ok_or("restarts=TOKEN/ORDINALS")?;
                let pods = pods.chars().map(|ordinal| format!("pod-{ordinal}-uid"));
                cluster.restart = Some((token.into(), pods.collect()));
            }
            ("moved-leader", token) => cluster.moved_leader = Some(token.into()),
            ("never-formed", "") => cluster.formed = None,
            ("restore", restore) => cluster.restore = Some(restore.into()),
            ("names-volumes", "") => cluster.names_volumes = true,
            ("formed", formed) => {
                let (id, since) = formed.split_once('@').ok_or("formed=ID@SECOND")?;
                cluster.formed = Some(Formed { id: ClusterId(hexadecimal(id)?), since: at(number(since)?) });
            }
            _ => return Err(format!("{word} is not understood")),
        }
    }
    Ok(())
}

fn read_pod(ordinal: Ordinal, words: &[&str], seen: &mut Observed) -> Result<()> {
    let before = seen.pods.remove(&ordinal);
    let uid = format!("pod-{ordinal}-uid");
    let mut pod = before.unwrap_or(Pod {
        uid,
        terminating: false,
        published: true,
        etcd: Process::Waiting,
        form: None,
        node: None,
        loss: None,
        was_ready: false,
        agent: Protocol::CURRENT,
        orphaned: false,
        version: None,
        transport: None,
        created: None,
        handshakes: BTreeMap::new(),
    });
    for word in words {
        match *word {
            "gone" => return Ok(()),
            "ready" => pod.was_ready = true,
            "found" => pod.loss = None,
            word if word.starts_with("lost=") => {
                let node = pod.node.clone().unwrap_or(format!("n{ordinal}"));
                pod.loss = Some(node_loss(word, node)?);
            }
            word if word.starts_with("ports=") => pod.transport = Some(ports(word)?),
            "waiting" => pod.etcd = Process::Waiting,
            "forming" => pod.etcd = Process::Forming,
            "started" => pod.etcd = Process::Started,
            "certificates-unusable" => {
                let why = Unanswered::CertificatesUnusable("cannot read tls.crt".into());
                seen.etcd.answers.insert(ordinal, Seen::Unknown(why));
                pod.etcd = Process::Started;
            }
            "agent-waiting" => {
                let awaited = Unanswered::AgentWaiting("its certificate".into());
                seen.etcd.answers.insert(ordinal, Seen::Unknown(awaited));
                pod.etcd = Process::Started;
            }
            // Its agent responds now.
            "inspected" => {
                let awaited = Unanswered::AgentWaiting("this".into());
                seen.etcd.answers.insert(ordinal, Seen::Unknown(awaited));
            }
            "data-lost" => pod.etcd = Process::DataLost,
            "beginning" => pod.etcd = Process::Beginning,
            "cannot-start" => {
                pod.etcd = Process::CannotStart(Blocked::Unschedulable("0/3 nodes are available".into()));
            }
            "no-image" => {
                let (reason, message) = ("ImagePullBackOff".into(), "no such image".into());
                pod.etcd = Process::CannotStart(Blocked::Container { reason, message });
            }
            "failing" => pod.etcd = Process::Failing(Exit { code: 2, message: String::new() }),
            "terminating" => pod.terminating = true,
            "unpublished" => pod.published = false,
            "no-node" => pod.node = None,
            "orphaned" => pod.orphaned = true,
            form if form.starts_with("form=") => {
                let Wanted { form: digest, version, .. } = wanted(form)?;
                pod.version = form.contains('@').then_some(version);
                pod.form = Some(digest);
            }
            node if node.starts_with("node=") => pod.node = Some(node["node=".len()..].into()),
            agent if agent.starts_with("agent=") => pod.agent = protocol(agent)?,
            time if time.starts_with("created=") => {
                pod.created = Some(at(number(time.trim_start_matches("created="))?));
            }
            _ => return Err(format!("{word} is not understood")),
        }
    }
    seen.pods.insert(ordinal, pod);
    Ok(())
}

/// `lost=50`, or by another sign: `lost=50/overdue`.
fn node_loss(word: &str, node: String) -> Result<NodeLoss> {
    let lost = word.trim_start_matches("lost=");
    let (since, sign) = lost.split_once('/').unwrap_or((lost, "marked"));
    let sign = match sign {
        "marked" => LossSign::PodMarked,
        "overdue" => LossSign::EndOverdue,
        "ended" => LossSign::PodEnded,
        "not-ready" => LossSign::NodeNotReady,
        "no-node" => LossSign::NodeGone,
        _ => return Err(format!("{sign} is no sign")),
    };
    Ok(NodeLoss { node, since: at(number(since)?), sign })
}

fn read_node(name: &str, words: &[&str], seen: &mut Observed) -> Result<()> {
    let nodes = nodes(seen);
    let mut node = nodes.by_name.remove(name).unwrap_or(Node { zone: None, accepts_members: true });
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("gone", "") => return Ok(()),
            ("zone", zone) => node.zone = Some(zone.into()),
            ("closed", "") => node.accepts_members = false,
            ("open", "") => node.accepts_members = true,
            _ => return Err(format!("{word} is not understood")),
        }
    }
    nodes.by_name.insert(name.into(), node);
    Ok(())
}

fn read_nodes(word: &str, seen: &mut Observed) -> Result<()> {
    match word {
        "forbidden" => seen.nodes = Seen::Unknown(Unread::Forbidden),
        "failing" => seen.nodes = Seen::Unknown(Unread::Failed("connection refused".into())),
        "own-rules" => nodes(seen).own_rules = true,
        _ => return Err("not understood".into()),
    }
    Ok(())
}

/// The nodes, known from now on.
fn nodes(seen: &mut Observed) -> &mut Nodes {
    if let Seen::Unknown(_) = seen.nodes {
        seen.nodes = Seen::Known(Nodes::default());
    }
    match &mut seen.nodes {
        Seen::Known(nodes) => nodes,
        Seen::Unknown(_) => unreachable!("made known above"),
    }
}

fn read_preflight(ordinal: Ordinal, words: &[&str], seen: &mut Observed) -> Result<()> {
    let mut preflight = seen.preflights.remove(&ordinal).unwrap_or(Preflight {
        uid: format!("preflight-{ordinal}-uid"),
        terminating: false,
        created: seen.now,
        node: Some(format!("n{ordinal}")),
        proof: None,
        state: PreflightState::Pending,
    });
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("gone", "") => return Ok(()),
            ("pending", "") => preflight.state = PreflightState::Pending,
            ("passed", "") => preflight.state = PreflightState::Passed,
            ("failed", "") => {
                let message = "flag provided but not defined: -x".into();
                preflight.state = PreflightState::Failed(Exit { code: 2, message });
            }
            ("no-image", "") => {
                let (reason, message) = ("ImagePullBackOff".into(), "no such image".into());
                preflight.state = PreflightState::Blocked(Blocked::Container { reason, message });
            }
            ("slow", "") => preflight.state = PreflightState::Blocked(Blocked::SlowCreation),
            ("interrupted", "") => {
                preflight.state = PreflightState::Interrupted("OutOfcpu: the node is full".into());
            }
            ("terminating", "") => preflight.terminating = true,
            ("node", node) => preflight.node = Some(node.into()),
            ("created", seconds) => preflight.created = at(number(seconds)?),
            ("form", _) => preflight.proof = wanted(word)?.proof,
            _ => return Err(format!("{word} is not understood")),
        }
    }
    seen.preflights.insert(ordinal, preflight);
    Ok(())
}

/// An EtcdBackup that takes copies by a schedule.
fn read_backup(name: &str, words: &[&str], seen: &mut Observed) -> Result<()> {
    let mut backup = Backup { takes_copies: true, ..Backup::default() };
    let denied = || "StoreDenied: take: 403".to_owned();
    for word in words {
        let (word, generation) = word.split_once('@').unwrap_or((word, "0"));
        let requested = |result| {
            // Of the UID of the cluster, the first digits.
            Some(RequestedCopy { token: format!("cluster--{generation}"), result })
        };
        match word {
            "gone" => {
                seen.backups.remove(name);
                return Ok(());
            }
            "suspended" => backup.takes_copies = false,
            "blocked" => backup.waits = Some("no node takes the pod of Job it".into()),
            "taken" => backup.requested = requested(CopyResult::Taken),
            "retrying" => backup.requested = requested(CopyResult::Retrying(denied())),
            "failed" => backup.requested = requested(CopyResult::Failed(denied())),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    seen.backups.insert(name.into(), backup);
    Ok(())
}

/// `95`: megabytes of the file, of a quota of 100; `95/none` if the quota is not reported. The revision is 41, or another one:
/// `95@50`.
fn read_space(word: &str) -> Result<Space> {
    let (size, revision) = word.split_once('@').unwrap_or((word, "41"));
    let (size, quota) = size.strip_suffix("/none").map_or((size, Some(100 << 20)), |size| (size, None));
    Ok(Space { size: number::<u64>(size)? << 20, quota, revision: number(revision)? })
}

/// What the operator remembers of an alarm.
fn read_reclaimed(words: &[&str], reclaimed: &mut Reclaimed) -> Result<()> {
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("compacted", word) => {
                let (revision, second) = word.split_once('@').ok_or("compacted=REVISION@SECOND")?;
                reclaimed.compacted = Some((number(revision)?, at(number(second)?)));
            }
            ("defragmented", ids) => {
                let ids = ids.split(',').map(|id| hexadecimal(id).map(MemberId));
                reclaimed.defragmented = ids.collect::<Result<_>>()?;
            }
            ("disarmed", second) => reclaimed.disarmed = Some(at(number(second)?)),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    Ok(())
}

/// `41@90 a0=1 a1=1 a2=2`: the revision, when, and the hash of each member. The next line is the comparison after it.
fn read_compared(words: &[&str], compared: &mut Compared) -> Result<()> {
    let (first, rest) = words.split_first().ok_or("compared REVISION@SECOND ...")?;
    if *first == "forgotten" {
        *compared = Compared::default();
        return Ok(());
    }
    if let Some(second) = first.strip_prefix("disarmed=") {
        compared.disarmed = Some(at(number(second)?));
        return Ok(());
    }
    let (revision, second) = first.split_once('@').ok_or("compared REVISION@SECOND ...")?;
    let hashes = rest.iter().map(|word| {
        let (id, hash) = word.split_once('=').ok_or("MEMBER=HASH")?;
        Ok((MemberId(hexadecimal(id)?), number(hash)?))
    });
    let hashes = hashes.collect::<Result<_>>()?;
    let second = number(second)?;
    compared.before = compared.last.take();
    compared.last = Some(Comparison { at: at(second), revision: number(revision)?, hashes });
    compared.next = Some(at(second + 30));
    Ok(())
}

fn read_claim(ordinal: Ordinal, words: &[&str], seen: &mut Observed) -> Result<()> {
    seen.claims.remove(&ordinal);
    let uid = format!("claim-{ordinal}-uid");
    let mut claim = Claim { uid, cluster_uid: UID.into(), bound: true, ..Claim::default() };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("gone", "") => return Ok(()),
            ("foreign", "") => claim.cluster_uid = "former-uid".into(),
            ("terminating", "") => claim.terminating = true,
            ("unbound", "") => claim.bound = false,
            ("replaced", "") => claim.replaced_by = Some("restore-uid".into()),
            ("member", id) => claim.member = Some(MemberId(hexadecimal(id)?)),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    seen.claims.insert(ordinal, claim);
    Ok(())
}

/// Of a claim that is there.
fn read_volume(ordinal: Ordinal, words: &[&str], seen: &mut Observed) -> Result<()> {
    let claim = seen.claims.get_mut(&ordinal).ok_or("there is no such claim")?;
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("size", size) => {
                (claim.requested_bytes, claim.capacity_bytes) = (Some(bytes(size)?), Some(bytes(size)?));
            }
            ("requested", size) => claim.requested_bytes = Some(bytes(size)?),
            ("capacity", size) => claim.capacity_bytes = Some(bytes(size)?),
            ("class", class) => claim.class = Some(class.into()),
            ("unbound", "") => (claim.bound, claim.capacity_bytes) = (false, None),
            ("precedes-set", "") => claim.precedes_set = true,
            ("resize", "in-progress") => claim.resize = Some(Resize::InProgress),
            ("resize", "file-system") => claim.resize = Some(Resize::FileSystemPending),
            ("resize", "failed") => claim.resize = Some(Resize::Failed("no space left on the pool".into())),
            ("resize", "none") => claim.resize = None,
            _ => return Err(format!("{word} is not understood")),
        }
    }
    Ok(())
}

fn enabled(version: &str) -> Result<Downgrade> {
    Version::parse(version).map(Downgrade::Enabled).ok_or(format!("{version} is no version"))
}

fn read_member(id: MemberId, words: &[&str], seen: &mut Observed) -> Result<()> {
    let own = Ordinal((id.0 & 0xf) as u8);
    let known = members(seen).list.remove(&id);
    let mut member = known.unwrap_or(Member {
        ordinal: Some(own),
        learner: false,
        start: MemberProgress::Published,
        schemes: Schemes::default(),
    });
    let mut answer = Answer {
        cluster: members(seen).cluster,
        member: id,
        leader: members(seen).leader,
        linearizable: true,
        denied: false,
        applied_index: 5000,
        commit_index: 0,
        term: 0,
        version: Some(Version::new(3, 6, 0)),
        storage_version: Some(Version::new(3, 6, 0)),
        downgrade: Downgrade::Disabled,
        listed: Some(3),
        hash: Some(1),
        alarms: BTreeSet::new(),
        space: None,
        file: None,
        reaches: Some((0xa0..=0xaf).map(MemberId).collect()),
    };
    let (mut silent, mut unlisted, mut mute) = (false, false, false);
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("gone", "") => {
                seen.etcd.answers.remove(&own);
                return Ok(());
            }
            ("urls", "http") => member.schemes = Schemes::only(Scheme::Http),
            ("urls", "https") => member.schemes = Schemes::only(Scheme::Https),
            ("urls", "both") => member.schemes = Schemes::BOTH,
            ("pod", "none") => member.ordinal = None,
            ("pod", ordinal) => member.ordinal = Some(Ordinal(number(ordinal)?)),
            ("learner", "") => {
                member.learner = true;
                answer.linearizable = false;
            }
            ("voter", "") => member.learner = false,
            ("added", "") => (member.start, silent) = (MemberProgress::Added, true),
            ("listed", "") => (member.start, silent) = (MemberProgress::Listed, true),
            ("silent", "") => silent = true,
            ("serving", "") => silent = false,
            ("leaderless", "") => (answer.linearizable, answer.leader) = (false, None),
            ("lagging", "") => answer.linearizable = false,
            ("denied", "") => answer.denied = true,
            ("mute", "") => mute = true,
            ("silent-since", seconds) => {
                silent = true;
                seen.etcd.silent_since.insert(id, at(number(seconds)?));
            }
            ("had-started", "") => {
                seen.etcd.started.insert(id);
            }
            ("unlisted", "") => unlisted = true,
            ("elsewhere", "") => answer.cluster = ClusterId(0xc2),
            ("index", index) => answer.applied_index = number(index)?,
            ("committed", index) => answer.commit_index = number(index)?,
            ("term", term) => answer.term = number(term)?,
            ("one-learner", "") => answer.version = Some(Version::new(3, 5, 21)),
            ("version", version) => answer.version = Version::parse(version),
            ("storage", version) => answer.storage_version = Version::parse(version),
            ("downgrade", "unreported") => answer.downgrade = Downgrade::Unreported,
            ("downgrade", version) => answer.downgrade = enabled(version)?,
            ("reaches", "unknown") => answer.reaches = None,
            ("reaches", ids) => {
                let ids = ids.split(',').filter(|id| !id.is_empty()).map(|id| hexadecimal(id).map(MemberId));
                answer.reaches = Some(ids.collect::<Result<_>>()?);
            }
            ("space", space) => answer.space = Some(read_space(space)?),
            ("hash", "none") => answer.hash = None,
            ("hash", hash) => answer.hash = Some(number(hash)?),
            _ => return Err(format!("{word} is not understood")),
        }
    }
    if let Some(ordinal) = member.ordinal {
        let answer = if mute {
            Seen::Unknown(Unanswered::AccessDenied)
        } else if silent {
            Seen::Unknown(Unanswered::Unreachable("no answer".into()))
        } else {
            Seen::Known(answer)
        };
        seen.etcd.answers.insert(ordinal, answer);
    }
    if !unlisted {
        members(seen).list.insert(id, member);
    }
    Ok(())
}

fn read_leader(who: &str, seen: &mut Observed) -> Result<()> {
    let leader = if who == "unknown" { None } else { Some(MemberId(hexadecimal(who)?)) };
    members(seen).leader = leader;
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            answer.leader = leader;
        }
    }
    Ok(())
}

/// The members, known from now on.
fn members(seen: &mut Observed) -> &mut Members {
    if let Seen::Unknown(_) = seen.etcd.members {
        seen.etcd.members = Seen::Known(Members { cluster: ID, leader: None, list: BTreeMap::new() });
    }
    match &mut seen.etcd.members {
        Seen::Known(members) => members,
        Seen::Unknown(_) => unreachable!("made known above"),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("scenarios play in the first years")
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T> {
    word.parse().map_err(|_| format!("{word} is no number that fits"))
}

fn hexadecimal(word: &str) -> Result<u64> {
    u64::from_str_radix(word, 16).map_err(|_| format!("{word} is no hexadecimal number"))
}

fn range(word: &str, radix: u32) -> Result<std::ops::RangeInclusive<u64>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let parse = |word| u64::from_str_radix(word, radix).map_err(|_| format!("{word} is no number"));
    Ok(parse(first)?..=parse(last)?)
}
