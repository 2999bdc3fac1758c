//! What was done about the space in databases.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::assess::assess;
use crate::intent::Thresholds;
use crate::observed::{Alarm, AlarmKind, File, MemberId, Observed, Reclaimed, Seen};
use crate::plan::Action;

/// A member is not defragmented again sooner: a file that grows again within a day needs its size.
const DEFRAGMENTED_AGAIN_SECONDS: i64 = 86_400;

#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Whether the alarm was active in the last observation.
    is_full: bool,
    /// Whether a file was fragmented.
    is_fragmented: bool,
    compacted: Option<(i64, Option<Timestamp>)>,
    defragmented: BTreeMap<MemberId, Option<Timestamp>>,
    disarming: bool,
    disarmed: Option<Timestamp>,
}

impl Space {
    /// Whether members might be defragmented, the leader after leadership moved.
    pub fn is_reclaimed(&self) -> bool {
        self.is_full || self.is_fragmented
    }

    /// A step that was sent, whether or not there was a response.
    pub fn sent(&mut self, action: &Action) {
        if let Action::Compact { revision, cluster: _ } = action {
            (self.compacted, self.defragmented) = (Some((*revision, None)), BTreeMap::new());
        }
        if let Action::Defragment { member, .. } = action {
            self.defragmented.insert(*member, None);
        }
        self.disarming |= matches!(action, Action::Disarm { kind: AlarmKind::NoSpace, .. });
    }

    /// Forgets what was done for an alarm that is over.
    pub fn note(&mut self, seen: &Observed) -> Reclaimed {
        let facts = assess(seen);
        let is_active = facts.alarms().iter().any(|alarm| alarm.kind == Alarm::NOSPACE);
        if !is_active && facts.serving().next().is_some() {
            let disarmed = self.disarming.then_some(seen.now).or(self.disarmed);
            let defragmented = std::mem::take(&mut self.defragmented);
            *self = Self { disarmed, defragmented, ..Self::default() };
        }
        self.is_full = is_active;
        if let Some((_, at)) = &mut self.compacted {
            at.get_or_insert(seen.now);
        }
        let now = seen.now.as_second();
        self.defragmented
            .retain(|_, at| now - at.get_or_insert(seen.now).as_second() < DEFRAGMENTED_AGAIN_SECONDS);
        Reclaimed {
            compacted: self.compacted.map(|(revision, at)| (revision, at.unwrap_or(seen.now))),
            defragmented: self.defragmented.keys().copied().collect(),
            disarmed: self.disarmed,
        }
    }

    /// Finds the members whose files have reached both thresholds.
    pub fn note_files(&mut self, seen: &mut Observed, thresholds: Option<Thresholds>) {
        let Some(Thresholds { percent, bytes }) = thresholds else { return };
        let answers = seen.etcd.answers.values().filter_map(Seen::known);
        let is_fragmented = |file: File| file.size >= bytes && file.unused_percent() >= percent;
        let fragmented = answers.filter(|it| it.file.is_some_and(is_fragmented)).map(|it| it.member);
        seen.etcd.fragmented = fragmented.collect();
        self.is_fragmented = !seen.etcd.fragmented.is_empty();
    }
}
