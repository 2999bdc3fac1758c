//! Volumes that do not have the size or the class that the spec asks for.

use super::conditions::Value;
use super::view::View;
use crate::api::Quantity;
use crate::decide::Volumes;
use crate::names::reason;
use crate::observed::{Claim, Ordinal, Resize};
use crate::plan::Refusal;
use crate::request::Object;

/// What is different, and whether that ends by itself.
pub(super) struct Difference {
    pub reason: &'static str,
    pub message: String,
    /// Whether the operator or the storage goes on with it.
    pub reconciling: Value,
}

impl View<'_> {
    /// None if all volumes are as the spec asks, and while no member is wanted.
    pub fn volumes(&self) -> Option<Difference> {
        let wanted = self.basis.spec.is_ok() && self.size() > 0 && !self.seen().cluster.deleting;
        let volumes = Volumes::new(self.basis.goal, self.seen()).filter(|_| wanted)?;
        let refused = volumes.refusals(self.facts.listed()).refusals;
        let stays = refused.iter().any(|it| matches!(it, Refusal::ClassNeedsMembers { .. }));
        let mut found: Vec<(&'static str, String)> = self.failed(&volumes);
        found.extend(refused.iter().map(|it| (it.reason(), self.terms().refused(it))));
        let ends_with_an_edit = !found.is_empty();
        let all = volumes.claims().count();
        let class = volumes.wanted.class.as_ref().filter(|_| !stays);
        let others = volumes.of_another_class().count();
        if let Some(class) = class.filter(|_| others > 0) {
            let message = format!("{} of {all} volumes have class {class}", all - others);
            found.push((reason::STORAGE_CLASS_CHANGING, message));
        }
        let growing: Vec<_> = volumes.growing().filter(|(_, claim)| is_smaller(claim, &volumes)).collect();
        if !growing.is_empty() {
            found.push((reason::VOLUMES_RESIZING, self.progress(&volumes, &growing, all)));
        }
        if found.is_empty() && volumes.growing().next().is_some() {
            let message = "volumes that have enough still request more, which is being reverted".into();
            found.push((reason::VOLUMES_RESIZING, message));
        }
        let (reason, _) = found.first()?;
        Some(Difference {
            reason,
            message: found.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; "),
            reconciling: if ends_with_an_edit { Value::False } else { Value::True },
        })
    }

    fn progress(&self, volumes: &Volumes<'_>, growing: &[(Ordinal, &Claim)], all: usize) -> String {
        let waits = growing.iter().filter(|(_, claim)| claim.resize == Some(Resize::FileSystemPending));
        let waits: Vec<_> = waits.map(|(ordinal, _)| self.basis.names.claim(*ordinal)).collect();
        let file_systems = match waits.is_empty() {
            true => String::new(),
            false => format!("; waiting for the file system to grow: {}", waits.join(", ")),
        };
        let size = Quantity::of_bytes(volumes.wanted.bytes);
        format!("{} of {all} volumes have {size}{file_systems}", all - growing.len())
    }

    /// In the words of the storage or of the API server.
    fn failed(&self, volumes: &Volumes<'_>) -> Vec<(&'static str, String)> {
        let rejected = |ordinal: Ordinal| {
            let title = Object::Claim(ordinal).title(self.basis.names);
            self.basis.failed_writes.iter().find(|it| it.object == title).map(|it| it.error.as_str())
        };
        let size =
            |bytes: Option<u64>| bytes.map_or("unknown".into(), |it| Quantity::of_bytes(it).to_string());
        let failed = |(ordinal, claim): (Ordinal, &Claim)| {
            let name = self.basis.names.claim(ordinal);
            let (has, requests) = (size(claim.capacity_bytes), size(claim.requested_bytes));
            if claim.requested_bytes > Some(volumes.wanted.bytes) {
                let words = rejected(ordinal)?;
                return Some(format!(
                    "volume {name} has {has} and still requests {requests}, which cannot be reverted: {words}; set \
                     spec.storage.size to {requests} again"
                ));
            }
            let reported = match &claim.resize {
                Some(Resize::Failed(words)) => Some(words.as_str()),
                Some(Resize::InProgress | Resize::FileSystemPending) | None => None,
            };
            let words = rejected(ordinal).or(reported)?;
            Some(format!(
                "volume {name} has {has} and cannot be resized to {}: {words}; set spec.storage.size back to {has}, or \
                 set spec.storage.storageClassName to a class that can expand its volumes",
                Quantity::of_bytes(volumes.wanted.bytes)
            ))
        };
        let failed = volumes.growing().filter_map(failed);
        failed.map(|message| (reason::VOLUME_RESIZE_FAILED, message)).collect()
    }
}

fn is_smaller(claim: &Claim, volumes: &Volumes<'_>) -> bool {
    claim.capacity_bytes.is_some_and(|it| it < volumes.wanted.bytes)
}
