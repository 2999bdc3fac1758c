//! The data of a cluster is replaced by a copy, with consent: with the real programs, `etcdutl` and a real S3 server, while operators
//! end.

use std::time::Duration;

use etcd_client::WatchOptions;
use etcd_operator_core::api::{EtcdCluster, RestorePhase};
use etcd_operator_core::names::{ADOPT_ANNOTATION, REPLACE_ANNOTATION, REPLACED_BY_LABEL, condition};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use crate::access::Member;
use crate::backups::{OF_THE_STORE, create_secrets};
use crate::recorder::Recorder;
use crate::recovery::lose;
use crate::restores::{Keys, Restores, all_keys, back_up, data_of, fill, until};
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, address_in, world};

const SIZE: u8 = 3;
/// With pods that are created anew, twice.
const LIMIT: Duration = Duration::from_secs(90);

fn id(cluster: &EtcdCluster) -> String {
    cluster.status.as_ref().and_then(|it| it.cluster_id.clone()).expect("it has bootstrapped")
}

async fn claims(stage: &Stage) -> Vec<PersistentVolumeClaim> {
    let claims: Api<PersistentVolumeClaim> = stage.world.all(&stage.namespace);
    claims.list(&ListParams::default()).await.expect("a list").items
}

fn names<'a>(claims: impl Iterator<Item = &'a PersistentVolumeClaim>) -> Vec<String> {
    let mut names: Vec<String> = claims.map(ResourceExt::name_any).collect();
    names.sort();
    names
}

async fn put(stage: &Stage, key: &str) {
    let mut client = Member::new(&stage.namespace, 0).client(&stage.recorder).await.expect("it serves");
    client.put(key, "written after the copy", None).await.expect("it serves");
}

/// The operator ends as soon as this is the case, and another one begins.
async fn interrupt(stage: &mut Stage, what: &str, is_so: impl AsyncFn(&Stage) -> bool) {
    until(what, async || is_so(stage).await.then_some(()), async || String::new()).await;
    stage.end_operator().await;
    stage.start_operator();
}

async fn is_ordered(stage: &Stage) -> bool {
    let cluster = stage.clusters.get(CLUSTER).await.expect("it is there");
    cluster.annotations().contains_key(REPLACE_ANNOTATION)
}

async fn is_retired(stage: &Stage) -> bool {
    claims(stage).await.iter().any(|claim| claim.labels().contains_key(REPLACED_BY_LABEL))
}

async fn has_other_volumes(stage: &Stage) -> bool {
    let cluster = stage.clusters.get(CLUSTER).await.expect("it is there");
    cluster.status.is_some_and(|status| status.volume_name.is_some())
}

fn consent(id: &str) -> Value {
    json!({
        "backupName": "once", "clusterName": CLUSTER, "restoreType": "Replace", "replace": {"clusterID": id},
    })
}

pub fn with_consent_while_operators_end() {
    let world = world();
    world.runtime.block_on(async {
        let mut stage = Stage::start(world).await;
        stage.create(json!({"size": SIZE})).await;
        let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        create_secrets(&stage, &store).await;
        fill(&stage).await;
        let (before, copied) = all_keys(&stage, 0).await;
        let copy = back_up(&stage, &store).await;
        put(&stage, "after the copy").await;
        let old = stage.clusters.get(CLUSTER).await.expect("it is there");
        let all =
            Restores { restores: stage.world.all(&stage.namespace), jobs: stage.world.all(&stage.namespace) };

        // Consent for another cluster names this one, and is not over.
        all.create("other", consent("abc123")).await;
        let refused = async || Some(all.status("other").await).filter(|it| !it.conditions.is_empty());
        let status = until("no answer", refused, async || String::new()).await;
        let (reason, message) = Restores::stalled(&status);
        assert_eq!(reason, "ReplacementRefused");
        assert!(message.contains(&format!("set it to {} only if", id(&old))), "{message}");
        all.restores.delete("other", &DeleteParams::default()).await.expect("it is there");

        // A copy that is damaged changes nothing.
        let data = data_of(&store, &old, &copy);
        let whole = std::fs::read(&data).expect("it is there");
        std::fs::write(&data, &whole[..whole.len() / 2]).expect("it can be written");
        all.create("damaged", consent(&id(&old))).await;
        let failed = all.over("damaged").await;
        assert_eq!(
            (failed.phase, Restores::stalled(&failed).0.as_str()),
            (Some(RestorePhase::Failed), "CopyDamaged")
        );
        std::fs::write(&data, &whole).expect("it can be written");
        let no_volume = async || (claims(&stage).await.len() == usize::from(SIZE)).then_some(());
        until("its volume is left", no_volume, async || format!("{:?}", names(claims(&stage).await.iter())))
            .await;
        assert_eq!(id(&stage.clusters.get(CLUSTER).await.expect("it is there")), id(&old));
        put(&stage, "after a restore that failed").await;
        let (_, last) = all_keys(&stage, 0).await;

        all.create("back", consent(&id(&old))).await;
        let jobs = all.jobs.clone();
        interrupt(&mut stage, "no Job", async |_| {
            let jobs = jobs.list(&ListParams::default()).await.expect("a list").items;
            jobs.iter().any(|job| job.name_any().starts_with("back-"))
        })
        .await;
        interrupt(&mut stage, "no order", is_ordered).await;
        interrupt(&mut stage, "no volume is retired", is_retired).await;
        interrupt(&mut stage, "the volumes are not named", has_other_volumes).await;
        let status = all.over("back").await;
        assert_eq!(status.phase, Some(RestorePhase::Completed), "{:?}", Restores::stalled(&status));
        assert_eq!(
            (status.copy_name.as_deref(), status.restored_revision),
            (Some(copy.as_str()), Some(copied))
        );
        stage.until("it has three members", |it| Until::Ready(SIZE).holds(it)).await;

        let new = stage.clusters.get(CLUSTER).await.expect("it is there");
        let replaced = status.replaced.clone().expect("it says what was replaced");
        assert_eq!((new.uid(), id(&new)), (old.uid(), replaced.new_cluster_id.clone().unwrap_or_default()));
        assert_ne!(id(&new), id(&old));
        assert!(status.served_revision > Some(last), "clients would not notice");
        for ordinal in 0..SIZE {
            let (after, revision) = all_keys(&stage, ordinal).await;
            assert_eq!(after, before, "{ordinal}");
            assert_eq!(Some(revision), status.served_revision, "{ordinal}");
        }
        let mut client = Member::new(&stage.namespace, 0).client(&stage.recorder).await.expect("it serves");
        let from_before = WatchOptions::new().with_start_revision(last);
        let mut watch = client.watch("key-0001", Some(from_before)).await.expect("it serves");
        let response = watch.message().await.expect("it responds").expect("it responds");
        let cancelled =
            response.canceled() || watch.message().await.is_ok_and(|it| it.is_none_or(|it| it.canceled()));
        assert!(cancelled, "the watch goes on as if nothing had happened");

        // All previous volumes are there, named, and nobody's.
        let left = claims(&stage).await;
        let expected: Vec<String> = (0..SIZE).map(|it| format!("data-{CLUSTER}-{it}")).collect();
        assert_eq!(replaced.volumes, expected);
        let retired =
            left.iter().filter(|it| it.labels().get(REPLACED_BY_LABEL) == status.incarnation.as_ref());
        assert_eq!(names(retired), expected);
        let volumes = new.status.as_ref().and_then(|it| it.volume_name.clone()).expect("it is named");
        let own: Vec<String> = (0..SIZE).map(|it| format!("{volumes}-{CLUSTER}-{it}")).collect();
        assert_eq!(names(left.iter().filter(|it| it.name_any().starts_with(&volumes))), own);

        // The same consent again does nothing.
        all.create("again", consent(&id(&old))).await;
        let refused = async || Some(all.status("again").await).filter(|it| !it.conditions.is_empty());
        let status = until("no answer", refused, async || String::new()).await;
        assert_eq!(Restores::stalled(&status).0, "ReplacementRefused");
        put(&stage, "afterwards").await;
        stage.end().await;
    });
}

/// A cluster with some keys and a copy of them.
async fn with_copy(size: u8) -> (Stage, Restores, Keys, S3) {
    let stage = Stage::start(world()).await;
    stage.create(json!({"size": size})).await;
    let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
    let store = S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
    create_secrets(&stage, &store).await;
    fill(&stage).await;
    let (keys, _) = all_keys(&stage, 0).await;
    back_up(&stage, &store).await;
    put(&stage, "after the copy").await;
    let all =
        Restores { restores: stage.world.all(&stage.namespace), jobs: stage.world.all(&stage.namespace) };
    (stage, all, keys, store)
}

async fn completes(all: &Restores, name: &str) {
    let status = all.over(name).await;
    assert_eq!(status.phase, Some(RestorePhase::Completed), "{:?}", Restores::stalled(&status));
}

/// Nobody consents to continue with the member that is left: it is not needed.
pub fn without_a_quorum() {
    world().runtime.block_on(async {
        let (stage, all, keys, _store) = with_copy(SIZE).await;
        let old = stage.clusters.get(CLUSTER).await.expect("it is there");
        lose(&stage, &[0, 2]).await;
        let is_lost = |it: &Recorder| it.condition(condition::QUORUM_LOST)["status"] == "True";
        stage.until_within(LIMIT, "the loss is reported", is_lost).await;
        all.create("back", consent(&id(&old))).await;
        completes(&all, "back").await;
        stage.until_within(LIMIT, "it has three members", |it| Until::Ready(SIZE).holds(it)).await;
        for ordinal in 0..SIZE {
            assert_eq!(all_keys(&stage, ordinal).await.0, keys, "{ordinal}");
        }
        let left = claims(&stage).await;
        assert!(
            left.iter().any(|it| it.name_any() == format!("data-{CLUSTER}-1")),
            "the survivor's data is gone"
        );
        stage.end().await;
    });
}

/// A new EtcdCluster adopts volumes of the one with this UID.
async fn adopt(stage: &Stage, uid: &str, version: &str) {
    let spec = serde_json::from_value(json!({"size": 1, "version": version})).expect("a spec");
    let mut cluster = EtcdCluster::new(CLUSTER, spec);
    cluster.annotations_mut().insert(ADOPT_ANNOTATION.into(), uid.into());
    stage.clusters.create(&PostParams::default(), &cluster).await.expect("it is accepted");
    stage.until("adopted", |it| Until::Ready(1).holds(it)).await;
}

/// With the volumes that it had last, or, if a user wants that, with the previous ones.
pub fn adopted() {
    world().runtime.block_on(async {
        let (stage, all, keys, _store) = with_copy(1).await;
        let old = stage.clusters.get(CLUSTER).await.expect("it is there");
        let (uid, previous) = (old.uid().expect("it has one"), all_keys(&stage, 0).await.0);
        all.create("back", consent(&id(&old))).await;
        completes(&all, "back").await;
        stage.delete().await;
        adopt(&stage, &uid, &old.spec.version).await;
        assert_eq!(all_keys(&stage, 0).await.0, keys, "not what it had last");

        let adopted = stage.clusters.get(CLUSTER).await.expect("it is there");
        let restored = adopted.status.and_then(|it| it.volume_name).expect("it is named");
        stage.delete().await;
        let claims: Api<PersistentVolumeClaim> = stage.world.all(&stage.namespace);
        let name = format!("{restored}-{CLUSTER}-0");
        claims.delete(&name, &DeleteParams::default()).await.expect("it is there");
        let gone = async || claims.get_opt(&name).await.expect("an answer").is_none().then_some(());
        until("it is left", gone, async || String::new()).await;
        let unmark = Patch::Merge(json!({"metadata": {"labels": {REPLACED_BY_LABEL: null}}}));
        let previous_claim = format!("data-{CLUSTER}-0");
        claims.patch(&previous_claim, &PatchParams::default(), &unmark).await.expect("it is there");
        adopt(&stage, &uid, &old.spec.version).await;
        assert_eq!(all_keys(&stage, 0).await.0, previous, "not what it had before");
        stage.end().await;
    });
}
