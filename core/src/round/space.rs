//! What was done about a database that reached its quota.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::assess::assess;
use crate::observed::{Alarm, AlarmKind, MemberId, Observed, Reclaimed};
use crate::plan::Action;

#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Whether the alarm was active in the last observation.
    pub is_full: bool,
    compacted: Option<(i64, Option<Timestamp>)>,
    defragmented: BTreeSet<MemberId>,
    disarming: bool,
    disarmed: Option<Timestamp>,
}

impl Space {
    /// A step that was sent, whether or not there was a response.
    pub fn sent(&mut self, action: &Action) {
        if let Action::Compact { revision, cluster: _ } = action {
            (self.compacted, self.defragmented) = (Some((*revision, None)), BTreeSet::new());
        }
        if let Action::Defragment { member, cluster: _ } = action {
            self.defragmented.insert(*member);
        }
        self.disarming |= matches!(action, Action::Disarm { kind: AlarmKind::NoSpace, .. });
    }

    /// Forgets what was done for an alarm that is over.
    pub fn note(&mut self, seen: &Observed) -> Reclaimed {
        let facts = assess(seen);
        let is_active = facts.alarms().iter().any(|alarm| alarm.kind == Alarm::NOSPACE);
        if !is_active && facts.serving().next().is_some() {
            let disarmed = self.disarming.then_some(seen.now);
            *self = Self { disarmed: disarmed.or(self.disarmed), ..Self::default() };
        }
        self.is_full = is_active;
        if let Some((_, at)) = &mut self.compacted {
            at.get_or_insert(seen.now);
        }
        Reclaimed {
            compacted: self.compacted.map(|(revision, at)| (revision, at.unwrap_or(seen.now))),
            defragmented: self.defragmented.clone(),
            disarmed: self.disarmed,
        }
    }
}
