//! An observation with its goal, as the operator logs it on request: what followed from it can be seen again at any time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::asked::Asked;
use crate::assess::assess;
use crate::decide::{Goal, decide};
use crate::observed::{Observed, VolumeForm};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub goal: Goal,
    pub observed: Observed,
}

/// The goal, the facts and the plan.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Goal { size, paused, on_stop, on_delete, adopts, form, volumes, .. } = &self.goal;
        let Goal { disruption_budget: _, supervised, asked, windows, lowest_agent: _, auth, .. } = &self.goal;
        write!(f, "goal: size {size}, on stop {on_stop:?}, on delete {on_delete:?}")?;
        f.write_str(if *paused { ", paused" } else { "" })?;
        adopts.iter().try_for_each(|uid| write!(f, ", adopts the volumes of {uid}"))?;
        form.iter().try_for_each(|it| write!(f, ", form {} (etcd {})", it.form, it.version))?;
        if let Some(VolumeForm { bytes, class }) = volumes {
            let class = class.as_deref().unwrap_or("default");
            write!(f, ", volumes of {} (class {class})", Quantity::of_bytes(*bytes))?;
        }
        f.write_str(if *supervised { ", supervised" } else { "" })?;
        f.write_str(if auth.is_enabled() { ", authentication" } else { "" })?;
        if *asked != Asked::default() {
            write!(f, ", asked for {asked:?}")?;
        }
        windows.iter().try_for_each(|it| write!(f, ", window {} for {} minutes", it.schedule, it.minutes))?;
        f.write_str(if self.observed.cluster.deleting { ", being deleted\n" } else { "\n" })?;
        assess(&self.observed).fmt(f)?;
        let plan = decide(&self.goal, &self.observed);
        if plan.is_settled() { writeln!(f, "nothing to do") } else { plan.fmt(f) }
    }
}
