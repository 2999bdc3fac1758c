//! What users can do about a quorum that is lost for good, with the values to apply.

use super::view::{Service, View};
use crate::decide::{Loss, Remnant};
use crate::names::Names;
use crate::notices::{Kind, Notice};
use crate::observed::Ordinal;

impl View<'_> {
    /// With consent, and nothing refuses it: one member is about to continue alone.
    pub fn recovers(&self) -> bool {
        let consented = self.basis.goal.recovery.is_some() && self.basis.plan.refusals.is_empty();
        consented && self.seen().recovery.is_some()
    }

    /// The consent to give, and what is lost with it; or the backup to restore.
    pub fn recovery_offer(&self) -> Option<String> {
        let loss = Loss::of(&self.facts);
        if self.basis.goal.size == 0 || self.basis.goal.recovery.is_some() {
            return None;
        }
        if self.facts.data_lost || loss.responding.is_empty() && !loss.lost.is_empty() {
            return self.restorable();
        }
        let order = self.seen().recovery.as_ref().filter(|order| order.start.is_none() && loss.is_final());
        let ((survivor, answer), cluster) = loss.responding.first().zip(order.and(self.facts.cluster))?;
        let names = self.basis.names;
        let pods =
            |which: Vec<Ordinal>| which.into_iter().map(|it| names.pod(it)).collect::<Vec<_>>().join(", ");
        let others: Vec<_> = loss.others(*survivor).collect();
        let unknown = others.iter().filter(|(_, it)| matches!(it, Remnant::Unknown(_))).map(|(it, _)| *it);
        let unknown: Vec<_> = unknown.collect();
        let deleted: Vec<_> =
            others.iter().filter(|(_, it)| *it == Remnant::Responds).map(|(it, _)| *it).collect();
        let mut text = format!(
            "{} has the most data of those that respond (raft index {}, term {}); if the others are lost for \
             good, set spec.recovery.acceptDataLoss to {{clusterID: {cluster}, survivor: Auto}}: that member then continues alone, and \
             what only others had is lost",
            names.pod(*survivor),
            answer.commit_index,
            answer.term,
        );
        if !deleted.is_empty() {
            text += &format!(
                "; their volumes would be deleted: {} (with the reclaim policy Retain, the PersistentVolumes stay)",
                deleted.iter().map(|it| names.claim(*it)).collect::<Vec<_>>().join(", ")
            );
        }
        if !unknown.is_empty() {
            text += &format!(
                "; these might have data, and have to return or to be deleted first: {}",
                pods(unknown)
            );
        }
        Some(text)
    }

    /// The newest backup, and what to apply.
    fn restorable(&self) -> Option<String> {
        let backups = self.seen().backups.iter().filter_map(|(name, it)| Some((it.last_success?, name)));
        let Some((time, name)) = backups.max() else {
            return Some(
                "no member responds that could continue, and no EtcdBackup of this cluster has a copy".into(),
            );
        };
        let (namespace, backup) = name.split_once('/').unwrap_or(("", name));
        let Names { cluster, namespace: own, .. } = self.basis.names;
        let elsewhere =
            if namespace == own { String::new() } else { format!("backupNamespace: {namespace}, ") };
        Some(format!(
            "no member responds that could continue; the newest copy is that of EtcdBackup {name} from {time:.0}: apply an EtcdRestore with \
             spec {{backupName: {backup}, {elsewhere}clusterName: {cluster}-restored, clusterTemplate: {{...}}}}, where clusterTemplate is the \
             spec of this cluster"
        ))
    }

    /// Consent that is there for no loss.
    pub fn idle_consent(&self) -> Option<Notice> {
        let is_idle = self.service == Service::Available && self.seen().recovery.is_none();
        (is_idle && self.basis.goal.recovery.is_some()).then(|| Notice {
            kind: Kind::NoEffect,
            field: "spec.recovery.acceptDataLoss",
            message: "no effect: a quorum serves, and only consent that is given after a loss was reported has an effect, once: \
                      remove it"
                .into(),
        })
    }
}
