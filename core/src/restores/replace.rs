//! Other data for a cluster that exists, with the consent of a user.
//!
//! Everything is checked and made beside the cluster, which serves meanwhile: on a volume of another name, by the same Job that makes
//! the data of a new cluster. Then the status says that it is handed over, the EtcdCluster gets the order to continue with that data,
//! and its worker carries it out. Before that a failure leaves the cluster as it is; after that nothing fails but what the user deletes.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::mark::{Made, Mark};
use super::replacement::Replacement;
use super::request::Write;
use super::{Next, Run, Seen, Standing, end_jobs, is_of, prepare};
use crate::api::{
    EtcdCluster, EtcdRestore, EtcdRestoreStatus, Replaced, RestorePhase, RestoreType, RevisionBump,
};
use crate::backup::layout::cluster_id;
use crate::intent::OnStop;
use crate::names::{MEMBER_ID_LABEL, condition, reason, volumes_of_restore};
use crate::observed::{MemberId, Ordinal};
use crate::runs::Failed;
use crate::status::find;
use crate::tls::Scheme;
use crate::validate::validate;
use crate::version::Version;

/// Before anything exists: consent is compared with what is there.
pub(super) fn begin(seen: &Seen<'_>, before: &EtcdRestoreStatus) -> Next {
    let stand = |standing| Next::new(before.clone(), standing);
    let name = &seen.restore.spec.cluster_name;
    let Some(cluster) = seen.cluster else {
        let message = format!(
            "EtcdCluster {name} does not exist: correct clusterName, or use restoreType New to create it with the copy"
        );
        return stand(Standing::Waits(reason::CLUSTER_NOT_FOUND, message));
    };
    if let Err(standing) = consented(seen, cluster).and_then(|()| is_ready_for_it(seen, cluster)) {
        return stand(standing);
    }
    let recorded = EtcdRestoreStatus {
        start_time: Some(Time(seen.now)),
        restored_cluster: Some(name.clone()),
        incarnation: seen.restore.uid(),
        replaced: Some(Replaced {
            cluster_uid: cluster.uid().unwrap_or_default(),
            cluster_id: id_of(cluster).unwrap_or_default().to_owned(),
            ..Replaced::default()
        }),
        ..before.clone()
    };
    Next::new(recorded, Standing::Works(format!("the data of EtcdCluster {name} will be replaced")))
}

fn id_of(cluster: &EtcdCluster) -> Option<&str> {
    cluster.status.as_ref()?.cluster_id.as_deref()
}

fn consented(seen: &Seen<'_>, cluster: &EtcdCluster) -> Result<(), Standing> {
    let name = cluster.name_any();
    let Some(actual) = id_of(cluster) else {
        let message =
            format!("EtcdCluster {name} has not bootstrapped, so it has no data that could be replaced");
        return Err(Standing::Waits(reason::NOT_BOOTSTRAPPED, message));
    };
    let given = seen.restore.spec.replace.as_ref().map(|it| it.cluster_id.as_str()).unwrap_or_default();
    if cluster_id(given).is_none() || cluster_id(given) != cluster_id(actual) {
        let message = format!(
            "spec.replace.clusterID is {given}, and EtcdCluster {name} has cluster ID {actual}: set it to {actual} only if this \
             is the data that you want to replace"
        );
        return Err(Standing::Blocked(reason::REPLACEMENT_REFUSED, message));
    }
    Ok(())
}

/// What would keep the members from being started with other data, as far as the EtcdCluster shows it. Its worker looks again.
fn is_ready_for_it(seen: &Seen<'_>, cluster: &EtcdCluster) -> Result<(), Standing> {
    let name = cluster.name_any();
    let wait = |reason, message: String| Err(Standing::Waits(reason, message));
    if cluster.metadata.deletion_timestamp.is_some() {
        return wait(reason::CLUSTER_NOT_FOUND, format!("EtcdCluster {name} is being deleted"));
    }
    let Ok(intent) = validate(cluster) else {
        return wait(
            reason::INVALID_SPEC,
            format!("the spec of EtcdCluster {name} breaks rules: see its status"),
        );
    };
    if intent.paused {
        return wait(reason::PAUSED, format!("EtcdCluster {name} is paused: set its spec.paused to false"));
    }
    if intent.size == 0 && intent.storage.on_stop == OnStop::Delete {
        let message = format!(
            "EtcdCluster {name} has size 0 and storage.onStop Delete, which would delete the restored data, too: change one of them"
        );
        return Err(Standing::Blocked(reason::REPLACEMENT_REFUSED, message));
    }
    let runs = cluster.status.as_ref().and_then(|status| Version::parse(status.version.as_deref()?));
    if let Some(runs) = runs.filter(|runs| runs.minor() != intent.form.version.minor()) {
        let message = format!(
            "EtcdCluster {name} changes from version {runs} to {}: that has to end, or its spec.version to be set back",
            intent.form.version
        );
        return wait(reason::ROLLING_OUT, message);
    }
    match under_way(cluster).filter(|other| Some(&other.uid) != seen.restore.uid().as_ref()) {
        Some(Replacement { restore, .. }) => wait(
            reason::RESTORE_RUNNING,
            format!("EtcdRestore {restore} replaces the data of EtcdCluster {name}"),
        ),
        None => Ok(()),
    }
}

/// An order that the worker of the cluster has not carried out.
fn under_way(cluster: &EtcdCluster) -> Option<Replacement> {
    Replacement::on(cluster).filter(|it| id_of(cluster).and_then(cluster_id) == Some(it.replaces))
}

/// Consent was accepted.
pub(super) fn proceed(seen: &Seen<'_>, before: &EtcdRestoreStatus, replaced: &Replaced) -> Next {
    let name = before.restored_cluster.clone().unwrap_or_default();
    let own = seen.cluster.filter(|cluster| {
        cluster.uid().as_ref() == Some(&replaced.cluster_uid) && cluster.metadata.deletion_timestamp.is_none()
    });
    let Some(cluster) = own else {
        let message = format!("EtcdCluster {name} was deleted before its data was replaced");
        return Next::failed(before, reason::CLUSTER_GONE, &message);
    };
    if replaced.handed_over {
        return carried_out(seen, before, replaced, cluster);
    }
    if let Err(standing) = still_consented(seen.restore, replaced, cluster) {
        return Next::new(before.clone(), standing);
    }
    match &before.restored_volume_uid {
        Some(volume) => hand_over(seen, before, replaced, cluster, volume),
        None => prepare(seen, before, cluster),
    }
}

/// Until the data is ready, consent can be withdrawn.
fn still_consented(
    restore: &EtcdRestore,
    replaced: &Replaced,
    cluster: &EtcdCluster,
) -> Result<(), Standing> {
    let name = cluster.name_any();
    let failed = |message: &str| Err(Standing::Failed(Failed::new(reason::REPLACEMENT_REFUSED, message)));
    let given = restore.spec.replace.as_ref().and_then(|it| cluster_id(&it.cluster_id));
    let accepted = cluster_id(&replaced.cluster_id);
    if restore.spec.restore_type != Some(RestoreType::Replace)
        || given != accepted
        || restore.spec.cluster_name != name
    {
        return failed(&format!(
            "consent was changed before the data was ready, and EtcdCluster {name} is as it was: create another EtcdRestore"
        ));
    }
    if id_of(cluster).and_then(cluster_id) != accepted {
        return failed(&format!(
            "the data of EtcdCluster {name} was replaced by something else meanwhile: create another EtcdRestore with its present \
             status.clusterID"
        ));
    }
    Ok(())
}

fn restored<'a>(seen: &Seen<'a>, volume: &str) -> Option<&'a PersistentVolumeClaim> {
    let claim = seen.claims.get(&Ordinal(0))?;
    (claim.uid().as_deref() == Some(volume) && claim.metadata.deletion_timestamp.is_none()).then_some(claim)
}

/// The Job is gone, the volume is there, and nothing else changes the cluster: from then on its worker acts.
fn hand_over(
    seen: &Seen<'_>,
    before: &EtcdRestoreStatus,
    replaced: &Replaced,
    cluster: &EtcdCluster,
    volume: &str,
) -> Next {
    let name = cluster.name_any();
    if !seen.runs.is_empty() {
        return Next::working(before, "the Job is being removed", end_jobs(seen));
    }
    if restored(seen, volume).is_none_or(|claim| !is_of(claim, cluster)) {
        let message = format!(
            "the volume with the restored data was deleted, and EtcdCluster {name} is as it was: create another EtcdRestore"
        );
        return Next::failed(before, reason::DATA_LOST, &message);
    }
    if let Err(standing) = is_ready_for_it(seen, cluster) {
        return Next::new(before.clone(), standing);
    }
    let handed_over = Replaced { handed_over: true, ..replaced.clone() };
    let recorded = EtcdRestoreStatus { replaced: Some(handed_over), ..before.clone() };
    Next::new(recorded, Standing::Works(format!("EtcdCluster {name} continues with the restored data")))
}

/// It is the worker of the cluster that acts, and this that follows it.
fn carried_out(
    seen: &Seen<'_>,
    before: &EtcdRestoreStatus,
    replaced: &Replaced,
    cluster: &EtcdCluster,
) -> Next {
    let (name, actual) = (cluster.name_any(), id_of(cluster).and_then(cluster_id));
    let volume = before.restored_volume_uid.as_deref().unwrap_or_default();
    if actual == cluster_id(&replaced.cluster_id) {
        return order(seen, before, replaced, cluster, volume);
    }
    if actual != replaced.new_cluster_id.as_deref().and_then(cluster_id) {
        let message =
            format!("EtcdCluster {name} has another cluster ID by now: its data was replaced again");
        return Next::failed(before, reason::CLUSTER_GONE, &message);
    }
    if replaced.volumes != seen.replaced {
        let replaced = Replaced { volumes: seen.replaced.to_vec(), ..replaced.clone() };
        let recorded = EtcdRestoreStatus { replaced: Some(replaced), ..before.clone() };
        return Next::new(recorded, Standing::Works(starting(cluster)));
    }
    let serves = cluster.status.as_ref().is_some_and(|status| status.ready_replicas.unwrap_or_default() > 0);
    if serves || cluster.spec.size == 0 {
        return Next::new(before.clone(), Standing::Completed);
    }
    if restored(seen, volume).is_none() {
        let message = format!(
            "the volume with the restored data was deleted before etcd started; the previous data of EtcdCluster {name} is on volumes {}",
            replaced.volumes.join(", ")
        );
        return Next::failed(before, reason::DATA_LOST, &message);
    }
    Next::working(before, &starting(cluster), Vec::new())
}

fn starting(cluster: &EtcdCluster) -> String {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let doing = find(conditions, condition::RECONCILING).map(|it| it.message.clone());
    format!(
        "EtcdCluster {} continues with the restored data: {}",
        cluster.name_any(),
        doing.unwrap_or_default()
    )
}

/// The order first and then the label, without which the members are not stopped: so what has the label was ordered.
fn order(
    seen: &Seen<'_>,
    before: &EtcdRestoreStatus,
    replaced: &Replaced,
    cluster: &EtcdCluster,
    volume: &str,
) -> Next {
    let Some(claim) = restored(seen, volume) else {
        let message = format!(
            "the volume with the restored data was deleted before EtcdCluster {} continued with it: create another EtcdRestore",
            cluster.name_any()
        );
        return Next::failed(before, reason::DATA_LOST, &message);
    };
    let Some((replacement, member)) = order_of(seen.restore, before, replaced, volume) else {
        return Next::failed(
            before,
            reason::RUN_LOST,
            "the status lacks what was restored: create another EtcdRestore",
        );
    };
    match under_way(cluster) {
        Some(other) if other.uid != replacement.uid => {
            let message = format!("EtcdRestore {} replaces the data of the cluster", other.restore);
            return Next::new(before.clone(), Standing::Waits(reason::RESTORE_RUNNING, message));
        }
        Some(there) if there == replacement => {}
        Some(_) | None => {
            let order = Write::order(cluster, Some(replacement));
            return Next::working(before, &starting(cluster), vec![order]);
        }
    }
    if claim.labels().contains_key(MEMBER_ID_LABEL) {
        return Next::working(before, &starting(cluster), Vec::new());
    }
    let label = Write::Label {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: volume.to_owned(),
        version: claim.resource_version().unwrap_or_default(),
        member,
        keeps_owner: false,
    };
    Next::working(before, &starting(cluster), vec![label])
}

fn order_of(
    restore: &EtcdRestore,
    before: &EtcdRestoreStatus,
    replaced: &Replaced,
    volume: &str,
) -> Option<(Replacement, MemberId)> {
    let uid = restore.uid()?;
    let above = before.served_revision.filter(|_| restore.spec.revision_bump != Some(RevisionBump::Disabled));
    let member = u64::from_str_radix(replaced.member_id.as_deref()?, 16).ok().map(MemberId)?;
    let replacement = Replacement {
        restore: restore.name_any(),
        replaces: cluster_id(&replaced.cluster_id)?,
        cluster: cluster_id(replaced.new_cluster_id.as_deref()?)?,
        volumes: volumes_of_restore(&uid),
        claim: volume.to_owned(),
        version: Version::parse(replaced.version.as_deref()?)?,
        peers: if replaced.peer_tls { Scheme::Https } else { Scheme::Http },
        above,
        uid,
    };
    Some((replacement, member))
}

/// What a successful attempt has made.
pub(super) fn with_made(replaced: Option<Replaced>, run: &Run) -> Option<Replaced> {
    let Some(Made { member_id, cluster_id, version, peer_tls }) = run.attempt.made.clone() else {
        return replaced;
    };
    Some(Replaced {
        member_id: Some(member_id),
        new_cluster_id: Some(cluster_id),
        version: Some(version),
        peer_tls,
        ..replaced?
    })
}

/// What a restore that has failed leaves behind, and takes back: the order if it was not carried out, and the volume before it was
/// handed over.
pub(super) fn take_back(seen: &Seen<'_>, status: &EtcdRestoreStatus) -> Vec<Write> {
    let Some(replaced) = status.replaced.as_ref().filter(|_| status.phase == Some(RestorePhase::Failed))
    else {
        return Vec::new();
    };
    let is_ours = |it: &&EtcdCluster| {
        under_way(it).is_some_and(|order| Some(order.uid) == seen.restore.uid())
            && it.uid().as_ref() == Some(&replaced.cluster_uid)
    };
    let order = seen.cluster.filter(is_ours).map(|cluster| Write::order(cluster, None));
    let is_made = |claim: &&PersistentVolumeClaim| {
        !replaced.handed_over
            && claim.metadata.deletion_timestamp.is_none()
            && !claim.labels().contains_key(MEMBER_ID_LABEL)
            && Mark::on(*claim).is_some_and(|mark| mark.is_of(seen.restore))
    };
    let claim = seen.claims.get(&Ordinal(0)).filter(is_made).map(|claim| Write::DeleteClaim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
    });
    order.into_iter().chain(claim).collect()
}
