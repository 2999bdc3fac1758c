//! One file per fault in effect.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rustix::fs::{FlockOperation, flock};

use super::{FaultError, Injected, Kind, Result};
use crate::layout::Layout;

pub(super) struct Records {
    layout: Layout,
}

impl Records {
    pub fn of(layout: &Layout) -> Self {
        Self { layout: layout.clone() }
    }

    /// No number is given twice: an undo that comes late must not meet a new fault.
    pub fn new_id(&self, kind: Kind) -> Result<String> {
        self.next_number()
            .map(|number| format!("{}-{number}", kind.name()))
            .map_err(FaultError::machine("number the fault"))
    }

    fn next_number(&self) -> anyhow::Result<u64> {
        let _lock = lock(&self.layout)?;
        let file = self.layout.dir().join("fault-number");
        let last = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            text => text?.trim().parse().context("not a number")?,
        };
        replace(&self.layout, &file, &format!("{}\n", last + 1))?;
        Ok(last + 1)
    }

    pub fn write(&self, injected: &Injected) -> Result<()> {
        let write = || -> anyhow::Result<()> {
            std::fs::create_dir_all(self.layout.faults())?;
            Ok(replace(&self.layout, &self.file(&injected.id), &serde_json::to_string_pretty(injected)?)?)
        };
        write().map_err(FaultError::machine(format_args!("write the record {}", injected.id)))
    }

    pub fn contains(&self, id: &str) -> bool {
        self.file(id).exists()
    }

    pub fn remove(&self, id: &str) -> Result<()> {
        match std::fs::remove_file(self.file(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FaultError::machine(format_args!("remove the record of {id}"))(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The oldest first.
    pub fn all(&self) -> Result<Vec<Injected>> {
        self.read_all().map_err(FaultError::machine("read the records of faults"))
    }

    fn read_all(&self) -> anyhow::Result<Vec<Injected>> {
        let entries = match std::fs::read_dir(self.layout.faults()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let injected: Injected = match std::fs::read_to_string(&path) {
                // Undone by somebody else just now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                text => serde_json::from_str(&text?).with_context(|| format!("{}", path.display()))?,
            };
            let number = injected.id.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
            let number = number.ok_or_else(|| anyhow!("the id {} has no number", path.display()))?;
            found.push((number, injected));
        }
        found.sort_by_key(|(number, _)| *number);
        Ok(found.into_iter().map(|(_, injected)| injected).collect())
    }

    fn file(&self, id: &str) -> PathBuf {
        self.layout.faults().join(format!("{id}.json"))
    }
}

/// Keeps other threads and programs out of what two of them must not change at once, until it is dropped.
/// Not to be held while waiting for anything.
pub(super) fn lock(layout: &Layout) -> std::io::Result<File> {
    let file = File::create(layout.dir().join("fault-lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Writes a file so that a reader sees all of it or none, also if we are killed meanwhile.
/// The draft lies beside the records, not among them: whatever lies there counts as a fault in effect.
pub(super) fn replace(layout: &Layout, path: &Path, text: &str) -> std::io::Result<()> {
    let writer = format!("fault-draft-{}-{:?}", std::process::id(), std::thread::current().id());
    let draft = layout.dir().join(writer);
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::super::effect::Effect;
    use super::super::scratch::Scratch;
    use super::super::{Fault, in_effect};
    use super::*;

    fn denial(id: &str, name: &str) -> Injected {
        let names = vec![name.to_owned()];
        Injected {
            id: id.into(),
            fault: Fault::DenyNames { names: names.clone() },
            effect: Effect::DenyNames { names },
        }
    }

    fn scratch() -> (Scratch, Records) {
        let scratch = Scratch::new();
        let records = Records::of(&scratch);
        (scratch, records)
    }

    #[test]
    fn no_id_is_given_twice_even_when_many_ask_at_once() {
        let (_layout, records) = scratch();
        let ids = std::thread::scope(|scope| {
            let asking: Vec<_> =
                (0..20).map(|_| scope.spawn(|| records.new_id(Kind::Kill).expect("an id"))).collect();
            let ids: std::collections::BTreeSet<_> =
                asking.into_iter().map(|asked| asked.join().expect("no panic")).collect();
            ids
        });
        assert_eq!(ids.len(), 20);
        assert_eq!(records.new_id(Kind::CutPod).expect("an id"), "cut-pod-21");
    }

    #[test]
    fn faults_in_effect_are_listed_oldest_first_and_vanish_when_removed() {
        let (layout, records) = scratch();
        assert_eq!(in_effect(&layout).expect("no directory is no fault"), []);
        let (old, new) = (denial("deny-names-9", "a"), denial("deny-names-10", "b"));
        records.write(&new).expect("written");
        records.write(&old).expect("written");
        assert_eq!(in_effect(&layout).expect("readable"), [old, new.clone()]);
        records.remove("deny-names-9").expect("removed");
        records.remove("deny-names-9").expect("removing twice is fine");
        assert_eq!(in_effect(&layout).expect("readable"), [new]);
    }
}
