//! An EtcdRestore that replaces data together with the worker of the cluster, which carries it out; also when either of them ends between
//! any two effects, or decides from what was there before.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use super::tests::{World, at, restore};
use super::*;
use crate::decide::{self as worker, Goal};
use crate::form::{Digest, Wanted};
use crate::names::{MEMBER_ID_LABEL, REPLACE_ANNOTATION, REPLACED_BY_LABEL, condition};
use crate::observed::{
    Answer, Claim, ClusterId, FormRecord, Formed, Member, MemberId, Members, Observed, Pod, Process,
    Seen as Known, Set,
};
use crate::plan::{Action, Plan};
use crate::status::find;
use crate::version::Version;

const OLD: &str = "c1";
const VOLUMES: &str = "datafeedbeef";

/// A cluster of one member, whose data is to be replaced.
struct Both {
    world: World,
    previous: PersistentVolumeClaim,
    /// What the volumes of the StatefulSet are called, how many pods it keeps, and its resource version.
    set: Option<(String, u8, u32)>,
    /// Which volumes it has, and whether it ends.
    pod: Option<(String, bool)>,
    version: u32,
    /// Users have deleted what was restored.
    lost: bool,
}

fn replacing() -> EtcdRestore {
    restore(json!({"restoreType": "Replace", "clusterTemplate": null, "replace": {"clusterID": OLD}}))
}

fn cluster(spec: serde_json::Value, status: serde_json::Value) -> EtcdCluster {
    let metadata = json!({
        "name": "kv", "namespace": "ns", "uid": "cluster-0", "resourceVersion": "5", "finalizers": [FINALIZER],
    });
    let object = json!({
        "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": spec, "status": status,
    });
    serde_json::from_value(object).expect("it is an EtcdCluster")
}

fn running() -> EtcdCluster {
    let status = json!({"domain": "cluster.local", "clusterID": OLD, "readyReplicas": 1, "version": "3.6.0"});
    cluster(json!({"size": 1, "version": "3.6.0"}), status)
}

impl Both {
    fn new() -> Self {
        let mut world = World::new(replacing());
        world.cluster = Some(running());
        let labels = json!({CLUSTER_UID_LABEL: "cluster-0", MEMBER_ID_LABEL: "a0"});
        let claim = json!({"metadata": {"name": "data-kv-0", "uid": "previous", "labels": labels}});
        Self {
            world,
            previous: serde_json::from_value(claim).expect("it is a claim"),
            set: Some((DATA_VOLUME.into(), 1, 0)),
            pod: Some((DATA_VOLUME.into(), false)),
            version: 0,
            lost: false,
        }
    }

    fn cluster(&self) -> &EtcdCluster {
        self.world.cluster.as_ref().expect("nobody deletes it")
    }

    fn status(&mut self) -> &mut crate::api::EtcdClusterStatus {
        self.world.cluster.as_mut().expect("nobody deletes it").status.as_mut().expect("it has one")
    }

    fn names(&self) -> Names {
        Names::of(self.cluster(), "cluster.local")
    }

    fn id(&self) -> ClusterId {
        let id = self.cluster().status.as_ref().and_then(|it| it.cluster_id.clone()).unwrap_or_default();
        crate::backup::layout::cluster_id(&id).expect("it has bootstrapped")
    }

    fn observed(&self) -> Observed {
        let (names, status) = (self.names(), self.cluster().status.clone().unwrap_or_default());
        let mut seen = Observed::nothing_of("cluster-0");
        seen.cluster.formed = Some(Formed { id: self.id(), since: Timestamp::UNIX_EPOCH });
        seen.cluster.names_volumes = status.volume_name.is_some();
        seen.cluster.replacement = Replacement::on(self.cluster());
        seen.set = self.set.as_ref().map(|(volumes, replicas, _)| Set {
            template: Some(Digest("A".into())),
            other_volumes: Some(volumes.clone()).filter(|it| *it != names.volumes),
            ..Set::keeping(*replicas, "set")
        });
        seen.record = Some(FormRecord {
            uid: "record".into(),
            form: Digest("A".into()),
            version: Version::new(3, 6, 0),
            proof: None,
            held_generation: None,
            adopts: None,
            cleared: Default::default(),
            plain: None,
            tls: None,
        });
        let restored = self.world.claims.get(&Ordinal(0));
        let is_previous = names.volumes == DATA_VOLUME;
        let (own, other) =
            if is_previous { (Some(&self.previous), restored) } else { (restored, Some(&self.previous)) };
        seen.claims = own.map(|claim| (Ordinal(0), observed(claim))).into_iter().collect();
        seen.elsewhere = other.map(|claim| (claim.name_any(), observed(claim))).into_iter().collect();
        let is_pending = seen.cluster.replacement.as_ref().is_some_and(|it| it.replaces == self.id());
        seen.restored = restored.filter(|_| is_pending).map(observed);
        if let Some((volumes, terminating)) = &self.pod {
            seen.pods.insert(Ordinal(0), pod(*terminating));
            if !terminating {
                let member = MemberId(u64::from(volumes != DATA_VOLUME) + 1);
                serves(&mut seen, member, if volumes == DATA_VOLUME { ClusterId(0xc1) } else { self.id() });
            }
        }
        seen
    }

    fn goal() -> Goal {
        let wanted =
            Wanted { form: Digest("A".into()), version: Version::new(3, 6, 0), proof: None, plain: None };
        Goal { form: Some(wanted), ..Goal::of_size(1) }
    }

    /// As far as its preconditions hold.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other action ends the test")]
    fn apply(&mut self, action: &Action, names: &Names, read: (&Option<String>, Option<u32>)) {
        let is_fresh = self.cluster().resource_version() == *read.0;
        let same_set = self.set.as_ref().map(|it| it.2) == read.1;
        self.version += 1;
        match action {
            Action::SetReplicas { replicas } if same_set => {
                let volumes = self.set.as_ref().map_or(names.volumes.clone(), |it| it.0.clone());
                self.set = Some((volumes, *replicas, self.version));
            }
            Action::OrphanSet { .. } if same_set => {
                assert_eq!(self.pod, None, "nothing would end it");
                self.set = None;
            }
            Action::RetireClaim { uid, by, .. } if *uid == "previous" => {
                self.previous.labels_mut().insert(REPLACED_BY_LABEL.into(), by.clone());
            }
            Action::ReplaceData { replacement } if is_fresh => {
                let is_stopped = self.set.is_none() && self.pod.is_none();
                assert!(is_stopped || self.lost, "members have the previous data");
                let (id, volumes) = (replacement.cluster.to_string(), replacement.volumes.clone());
                let status = self.status();
                (status.cluster_id, status.volume_name, status.ready_replicas) =
                    (Some(id), Some(volumes), None);
                self.touch();
            }
            Action::SetReplicas { .. } | Action::OrphanSet { .. } | Action::RetireClaim { .. } => {}
            Action::ReplaceData { .. } | Action::LabelClaim { .. } => {}
            other => panic!("not of a replacement: {other}"),
        }
    }

    fn touch(&mut self) {
        let version = format!("w{}", self.version);
        self.world.cluster.as_mut().expect("it is there").metadata.resource_version = Some(version);
    }

    fn read(&self) -> (Plan, Names, Option<String>, Option<u32>) {
        let plan = worker::decide(&Self::goal(), &self.observed());
        (plan, self.names(), self.cluster().resource_version(), self.set.as_ref().map(|it| it.2))
    }

    /// The operator can end after any of them.
    fn work(&mut self, actions: usize) {
        let (plan, names, cluster, set) = self.read();
        for action in plan.actions.iter().take(actions) {
            self.apply(action, &names, (&cluster, set));
        }
    }

    fn restore(&mut self) {
        self.see_labels();
        let decision = self.world.decide();
        self.world.carry_out(decision);
    }

    fn see_labels(&mut self) {
        let is_replaced = self.previous.labels().contains_key(REPLACED_BY_LABEL);
        self.world.replaced = is_replaced.then(|| self.previous.name_any()).into_iter().collect();
    }

    /// What the StatefulSet controller, the kubelet, and the report of the worker do.
    fn kubernetes(&mut self) {
        self.pod = match (self.pod.take(), &self.set) {
            (Some((_, true)), _) => None,
            (Some((volumes, false)), Some((_, 0, _))) => Some((volumes, true)),
            (None, Some((volumes, replicas, _))) if *replicas > 0 => {
                let is_expected = *volumes == self.names().volumes;
                assert!(is_expected || self.lost, "a member starts with other data than the status says");
                assert!(
                    volumes == DATA_VOLUME || self.lost || !self.world.claims.is_empty(),
                    "it starts empty"
                );
                Some((volumes.clone(), false))
            }
            (pod, _) => pod,
        };
        let serves = self.pod.as_ref().is_some_and(|(_, terminating)| !terminating);
        self.status().ready_replicas = Some(i32::from(serves));
    }

    fn settle(&mut self) -> &mut Self {
        for _ in 0..40 {
            self.restore();
            self.work(usize::MAX);
            self.kubernetes();
        }
        self
    }

    fn is_over(&self) -> bool {
        is_over(&self.world.status())
    }

    fn stalled(&self) -> (String, String) {
        let status = self.world.status();
        let it = find(&status.conditions, condition::STALLED).expect("it is there");
        assert_eq!(it.status, "True");
        (it.reason.clone(), it.message.clone())
    }

    fn waits(&self) -> (String, String) {
        let status = self.world.status();
        let it = find(&status.conditions, condition::RECONCILING).expect("it is there");
        assert_eq!(it.status, "True");
        (it.reason.clone(), it.message.clone())
    }
}

fn observed(claim: &PersistentVolumeClaim) -> Claim {
    let label = |name: &str| claim.labels().get(name).cloned();
    Claim {
        uid: claim.uid().unwrap_or_default(),
        cluster_uid: label(CLUSTER_UID_LABEL).unwrap_or_default(),
        bound: true,
        member: label(MEMBER_ID_LABEL).and_then(|id| u64::from_str_radix(&id, 16).ok()).map(MemberId),
        replaced_by: label(REPLACED_BY_LABEL),
        ..Claim::default()
    }
}

fn pod(terminating: bool) -> Pod {
    Pod {
        uid: "pod".into(),
        terminating,
        published: true,
        etcd: Process::Started,
        form: Some(Digest("A".into())),
        version: None,
        transport: None,
        node: None,
        loss: None,
        was_ready: false,
        agent: crate::agent::Protocol::CURRENT,
        orphaned: false,
        created: None,
        handshakes: Default::default(),
    }
}

fn serves(seen: &mut Observed, member: MemberId, cluster: ClusterId) {
    let answer = Answer {
        cluster,
        member,
        leader: Some(member),
        linearizable: true,
        denied: false,
        applied_index: 9,
        commit_index: 9,
        term: 2,
        version: Some(Version::new(3, 6, 0)),
        storage_version: None,
        downgrade: Default::default(),
        listed: None,
        hash: None,
        alarms: Default::default(),
        space: None,
        file: None,
        reaches: None,
    };
    seen.etcd.answers.insert(Ordinal(0), Known::Known(answer));
    let listed = Member {
        ordinal: Some(Ordinal(0)),
        learner: false,
        start: crate::member::MemberProgress::Published,
        schemes: Default::default(),
    };
    seen.etcd.members =
        Known::Known(Members { cluster, leader: Some(member), list: [(member, listed)].into() });
    seen.etcd.via = Some(Ordinal(0));
}

#[test]
fn data_is_made_beside_the_cluster_and_the_cluster_changes_when_it_is_ready() {
    let mut both = Both::new();
    both.settle();
    let claim = both.world.claims.get(&Ordinal(0)).expect("it is created").clone();
    assert_eq!(claim.name_any(), format!("{VOLUMES}-kv-0"));
    assert_eq!(
        claim.owner_references()[0].uid,
        "feedbeef-1234",
        "it would be left if the EtcdRestore is deleted"
    );
    assert_eq!(both.world.jobs.len(), 1);
    let volumes =
        both.world.jobs[0].spec.clone().and_then(|it| it.template.spec?.volumes).unwrap_or_default();
    let names = volumes.iter().filter_map(|it| Some(it.persistent_volume_claim.clone()?.claim_name));
    assert_eq!(names.collect::<Vec<_>>(), [claim.name_any()]);
    let status = both.world.status();
    assert_eq!(status.incarnation.as_deref(), Some("feedbeef-1234"));
    assert_eq!(both.cluster(), &running(), "nothing has happened to it");

    both.world.succeed();
    let mut steps = Vec::new();
    for _ in 0..8 {
        both.restore();
        let (status, claim) = (both.world.status(), observed(&both.world.claims[&Ordinal(0)]));
        let handed_over = status.replaced.is_some_and(|it| it.handed_over);
        let ordered = both.cluster().annotations().contains_key(REPLACE_ANNOTATION);
        steps.push((both.world.jobs.is_empty(), handed_over, ordered, claim.member.is_some()));
    }
    steps.dedup();
    let (no, yes) = (false, true);
    let expected =
        [(no, no, no, no), (yes, no, no, no), (yes, yes, no, no), (yes, yes, yes, no), (yes, yes, yes, yes)];
    assert_eq!(steps, expected);
    assert_eq!(both.world.claims[&Ordinal(0)].owner_references(), [], "nothing deletes data of a cluster");
    assert_eq!(both.pod, Some((DATA_VOLUME.into(), false)), "it still serves");

    both.settle();
    let status = both.world.status();
    let replaced = status.replaced.clone().expect("it says so");
    assert_eq!(
        (status.phase, replaced.volumes),
        (Some(RestorePhase::Completed), vec!["data-kv-0".to_owned()])
    );
    assert_eq!(both.pod, Some((VOLUMES.into(), false)));
    let status_of_cluster = both.cluster().status.clone().unwrap_or_default();
    assert_eq!(status_of_cluster.cluster_id, replaced.new_cluster_id);
    assert_ne!(status_of_cluster.cluster_id.as_deref(), Some(OLD));
    let ready = find(&status.conditions, condition::READY).expect("it is there");
    assert!(ready.message.ends_with("; its previous data stays on volumes data-kv-0"), "{}", ready.message);
    // Never again, whatever the spec says.
    both.world.restore.spec.replace = Some(crate::api::Replace {
        cluster_id: replaced.new_cluster_id.unwrap_or_default(),
        old_volumes: Default::default(),
    });
    both.world.restore.metadata.generation = Some(2);
    both.settle();
    assert_eq!((both.world.jobs_created, both.world.claims_created), (1, 1));
}

#[test]
fn consent_is_compared_with_the_cluster_before_anything_is_made() {
    let status = |id: &str| json!({"domain": "cluster.local", "clusterID": id, "version": "3.6.0"});
    let spec = || json!({"size": 1, "version": "3.6.0"});
    let mut both = Both::new();
    both.world.cluster = Some(cluster(spec(), status("c2")));
    both.restore();
    let (reason, message) = both.stalled();
    assert_eq!(reason, "ReplacementRefused");
    assert!(
        message.contains("spec.replace.clusterID is c1") && message.contains("set it to c2 only if"),
        "{message}"
    );
    // It is not over: an edit corrects it.
    both.world.restore.spec.replace.as_mut().expect("it is there").cluster_id = "c2".into();
    both.restore();
    assert_eq!(both.world.status().replaced.map(|it| it.cluster_id).as_deref(), Some("c2"));

    let upgraded = json!({"size": 1, "version": "3.7.0"});
    let paused = json!({"size": 1, "version": "3.6.0", "paused": true});
    let invalid = json!({"size": 12, "version": "3.6.0"});
    for (object, reason, part) in [
        (None, "ClusterNotFound", "use restoreType New"),
        (Some(cluster(spec(), json!({}))), "NotBootstrapped", "no data that could be replaced"),
        (Some(cluster(upgraded, status(OLD))), "RollingOut", "changes from version 3.6.0 to 3.7.0"),
        (Some(cluster(paused, status(OLD))), "Paused", "set its spec.paused to false"),
        (Some(cluster(invalid, status(OLD))), "InvalidSpec", "breaks rules"),
    ] {
        let mut both = Both::new();
        both.world.cluster = object;
        both.restore();
        let (found, message) = both.waits();
        assert!(found == reason && message.contains(part), "{found}: {message}");
        assert_eq!((both.world.claims_created, both.world.status().replaced), (0, None));
    }
    let mut both = Both::new();
    let stopped = json!({"size": 0, "version": "3.6.0", "storage": {"onStop": "Delete"}});
    both.world.cluster = Some(cluster(stopped, status(OLD)));
    both.restore();
    assert_eq!(both.stalled().0, "ReplacementRefused");
    let mut both = Both::new();
    both.world.cluster.as_mut().expect("it is there").metadata.deletion_timestamp =
        Some(Time(at(tests::CREATED)));
    both.restore();
    assert_eq!(both.waits().0, "ClusterNotFound");
}

#[test]
fn a_failure_before_the_data_is_ready_leaves_the_cluster_as_it_is() {
    let mut both = Both::new();
    both.settle();
    both.world.fail("CopyDamaged");
    both.settle();
    assert_eq!(both.world.status().phase, Some(RestorePhase::Failed));
    let (reason, message) = both.stalled();
    assert!(
        reason == "CopyDamaged" && message.contains("EtcdCluster kv is as it was"),
        "{reason}: {message}"
    );
    assert_eq!((both.world.claims.len(), both.world.jobs.len()), (0, 0), "its volume and its Job are left");
    assert_eq!(both.cluster(), &running());

    // So does consent that is changed meanwhile, and data that something else has replaced.
    for change in [
        |both: &mut Both| {
            both.world.restore.spec.replace.as_mut().expect("it is there").cluster_id = "c2".into()
        },
        |both: &mut Both| both.world.restore.spec.restore_type = None,
        |both: &mut Both| both.world.restore.spec.cluster_name = "other".into(),
        |both: &mut Both| both.status().cluster_id = Some("c7".into()),
    ] {
        let mut both = Both::new();
        both.settle();
        change(&mut both);
        both.world.succeed();
        both.restore();
        both.restore();
        assert_eq!(both.stalled().0, "ReplacementRefused");
        assert_eq!(both.world.claims.len(), 0);
        assert!(!both.cluster().annotations().contains_key(REPLACE_ANNOTATION));
    }
}

#[test]
fn one_replacement_follows_the_other() {
    let mut both = Both::new();
    both.settle();
    both.world.succeed();
    for _ in 0..5 {
        both.restore();
    }
    let order = Replacement::on(both.cluster()).expect("it is given");
    let mut other = Both::new();
    let theirs = Replacement { uid: "other".into(), restore: "earlier".into(), ..order };
    let text = serde_json::to_string(&theirs).expect("it is JSON");
    let annotate = |both: &mut Both| {
        let cluster = both.world.cluster.as_mut().expect("it is there");
        cluster.annotations_mut().insert(REPLACE_ANNOTATION.into(), text.clone());
    };
    annotate(&mut other);
    other.restore();
    assert_eq!((other.waits().0.as_str(), other.world.status().replaced), ("RestoreRunning", None));
    assert!(other.waits().1.contains("EtcdRestore earlier"));
    // One that was carried out is in nobody's way.
    let mut later = Both::new();
    annotate(&mut later);
    later.status().cluster_id = Some("c2".into());
    later.world.restore.spec.replace.as_mut().expect("it is there").cluster_id = "c2".into();
    later.restore();
    assert!(later.world.status().replaced.is_some());
}

#[test]
fn a_volume_that_is_deleted_before_members_stop_takes_the_order_back() {
    let mut both = Both::new();
    both.settle();
    both.world.succeed();
    for _ in 0..5 {
        both.restore();
    }
    assert!(both.cluster().annotations().contains_key(REPLACE_ANNOTATION));
    both.world.claims.clear();
    both.lost = true;
    both.settle();
    assert_eq!(both.stalled().0, "DataLost");
    assert!(!both.cluster().annotations().contains_key(REPLACE_ANNOTATION));
    assert_eq!(both.pod, Some((DATA_VOLUME.into(), false)));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Restore,
    /// Its first writes only.
    RestoreEnds(u8),
    /// So many actions of the worker.
    Work(u8),
    /// A plan from before the last round.
    LateWork,
    Kubernetes,
    Minutes(u8),
    Succeeds,
    Fails,
    VolumeGone,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Restore),
        2 => (0..2_u8).prop_map(Event::RestoreEnds),
        6 => (0..3_u8).prop_map(Event::Work),
        2 => Just(Event::LateWork),
        6 => Just(Event::Kubernetes),
        1 => (1..20_u8).prop_map(Event::Minutes),
        4 => Just(Event::Succeeds),
        1 => Just(Event::Fails),
        1 => prop::bool::weighted(0.2).prop_map(|it| if it { Event::VolumeGone } else { Event::Restore }),
    ]
}

type Read = (Plan, Names, Option<String>, Option<u32>);

fn happens(both: &mut Both, before: &mut Option<Read>, event: Event) {
    let is_active = both.world.runs().iter().any(Run::is_active);
    match event {
        Event::Restore => both.restore(),
        Event::RestoreEnds(writes) => {
            both.see_labels();
            let mut decision = both.world.decide();
            decision.writes.truncate(usize::from(writes));
            both.world.carry_out(decision);
        }
        Event::Work(actions) => {
            *before = Some(both.read());
            both.work(usize::from(actions));
        }
        Event::LateWork => {
            let Some((plan, names, cluster, set)) = before.clone() else { return };
            // What is created only if it is absent carries no version.
            let creates = |it: &&Action| set.is_none() && matches!(it, Action::SetReplicas { .. });
            for action in plan.actions.iter().filter(|it| !creates(it)) {
                both.apply(action, &names, (&cluster, set));
            }
        }
        Event::Kubernetes => both.kubernetes(),
        Event::Minutes(minutes) => both.world.now += jiff::SignedDuration::from_mins(i64::from(minutes)),
        Event::Succeeds if is_active => drop(both.world.succeed()),
        Event::Fails if is_active => drop(both.world.fail("StoreUnreachable")),
        Event::Succeeds | Event::Fails => {}
        Event::VolumeGone => {
            both.lost |= !both.world.claims.is_empty();
            both.world.claims.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(64), ..ProptestConfig::default() })]

    /// Members never have previous and new data at once, start with nothing else than the status says, and the previous volume is not
    /// touched (all asserted where it would happen). In the end they serve: what was restored if it completed, the previous data if
    /// it failed before the cluster continued.
    #[test]
    fn a_replacement_completes_or_leaves_the_cluster_as_it_was(events in prop::collection::vec(event(), 0..80)) {
        let (mut both, mut before) = (Both::new(), None);
        for event in events {
            happens(&mut both, &mut before, event);
        }
        for _ in 0..40 {
            for event in [Event::Restore, Event::Succeeds, Event::Restore, Event::Work(9), Event::Kubernetes, Event::Minutes(19)] {
                happens(&mut both, &mut before, event);
            }
        }
        prop_assert!(both.is_over(), "{:?}", both.world.status());
        let is_new = both.names().volumes == VOLUMES;
        let completed = both.world.status().phase == Some(RestorePhase::Completed);
        prop_assert!(both.lost || is_new == completed, "{:?}", both.world.status());
        let volumes = if is_new { VOLUMES } else { DATA_VOLUME };
        // What users delete before etcd has started on it is lost; the previous volume is named.
        let has_failed = both.world.status().phase == Some(RestorePhase::Failed);
        let is_lost = both.lost && is_new && has_failed;
        prop_assert!(is_lost || both.pod == Some((volumes.to_owned(), false)), "{:?}", both.world.status());
        let retries = u32::try_from(both.world.jobs_created).unwrap_or(u32::MAX);
        prop_assert!(retries <= MAX_RETRIES + 1, "{retries} attempts");
    }
}
