//! The volume has the data: the Job ends, the claim gets its label, and the cluster starts.

use kube::ResourceExt;

use super::request::Write;
use super::{Next, Seen, Standing, end_jobs, job};
use crate::api::{EtcdCluster, EtcdRestoreStatus};
use crate::desired::Desired;
use crate::names::{MEMBER_ID_LABEL, Names, condition, reason};
use crate::observed::{MemberId, Ordinal};
use crate::status::find;
use crate::validate::validate;

pub(super) fn start(
    seen: &Seen<'_>,
    before: &EtcdRestoreStatus,
    cluster: &EtcdCluster,
    volume: &str,
) -> Next {
    if !seen.runs.is_empty() {
        return Next::working(before, "the Job is being removed", end_jobs(seen));
    }
    let name = cluster.name_any();
    let status = cluster.status.clone().unwrap_or_default();
    if status.cluster_id.is_some() && status.ready_replicas.unwrap_or_default() > 0 {
        return Next::new(before.clone(), Standing::Completed);
    }
    let starting = || {
        let ready = find(&status.conditions, condition::RECONCILING).map(|it| it.message.clone());
        format!("EtcdCluster {name} starts: {}", ready.unwrap_or_default())
    };
    if status.cluster_id.is_some() {
        return Next::working(before, &starting(), Vec::new());
    }
    let claim = seen.claims.get(&Ordinal(0)).filter(|claim| {
        claim.uid().as_deref() == Some(volume) && claim.metadata.deletion_timestamp.is_none()
    });
    let Some(claim) = claim else {
        let message = format!(
            "the volume with the restored data was deleted before etcd started: delete EtcdCluster {name}, and create another \
             EtcdRestore"
        );
        return Next::failed(before, reason::DATA_LOST, &message);
    };
    if claim.labels().contains_key(MEMBER_ID_LABEL) {
        return Next::working(before, &starting(), Vec::new());
    }
    let Some(member) = member_of(seen, cluster) else {
        let message = format!("the spec of EtcdCluster {name} breaks rules: see its status");
        return Next::new(before.clone(), Standing::Waits(reason::INVALID_SPEC, message));
    };
    let label = Write::Label {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: volume.to_owned(),
        version: claim.resource_version().unwrap_or_default(),
        member,
        keeps_owner: true,
    };
    Next::working(before, &format!("the data is restored, and EtcdCluster {name} starts"), vec![label])
}

/// Whose data is on the volume.
fn member_of(seen: &Seen<'_>, cluster: &EtcdCluster) -> Option<MemberId> {
    let of_cluster = validate(cluster).ok()?;
    let names = Names::of(cluster, seen.domain);
    let desired = Desired { intent: &of_cluster, names: &names, agent_image: seen.image, operator: None };
    Some(job::restoration(seen.restore, &desired, None).member_id())
}
