//! What users chose for the pods of members, as far as it matters here: which etcd runs in them, and whether it can.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::form::{Digest, Wanted};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::tls::Transport;

use crate::etcd::Release;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Two forms with the same number are the same.
    pub number: u64,
    pub release: Release,
    pub flaw: Option<Flaw>,
    /// Two forms with the same one have the same image and arguments.
    pub proof: u64,
    /// What pods of this form serve; of what a user chose it says nothing.
    pub transport: Transport,
}

/// Why no etcd of a form ever runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    ImageMissing,
    /// etcd does not accept its arguments.
    Rejected,
    /// It accepts them, and exits when it starts.
    Crashes,
}

/// What a user changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Something that does no harm, and that is neither the image nor an argument.
    Harmless,
    /// Arguments that etcd accepts.
    Arguments,
    /// To the next release of etcd, if there is one here.
    Upgrade,
    Flawed(Flaw),
    /// Back to what all members ran together last.
    Revert,
}

impl Form {
    pub fn digest(self) -> Digest {
        let Transport { clients, peers } = self.transport;
        Digest(format!("form-{}-{clients:?}-{peers:?}", self.number))
    }

    #[must_use]
    pub fn with(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    pub fn wanted(self) -> Wanted {
        let (form, plain) = (self.digest(), Some(self.with(Transport::default()).digest()));
        Wanted { form, version: self.release.version(), proof: Some(self.proof()), plain }
    }

    pub fn proof(self) -> Digest {
        Digest(format!("proof-{}", self.proof))
    }
}

/// What became of forms, in all of a run.
#[derive(Debug, Default)]
pub struct Forms {
    /// How many there were.
    pub count: u64,
    /// The pods in which a voter served in a form.
    served: BTreeMap<Digest, BTreeSet<Ordinal>>,
}

impl Forms {
    pub fn has_served(&self, form: Form) -> bool {
        self.served.contains_key(&form.digest())
    }

    pub fn has_served_in(&self, form: Form, ordinal: Ordinal) -> bool {
        self.served.get(&form.digest()).is_some_and(|ordinals| ordinals.contains(&ordinal))
    }

    pub fn serves(&mut self, form: Form, ordinal: Ordinal) {
        self.served.entry(form.digest()).or_default().insert(ordinal);
    }
}

impl World {
    pub fn new_form(&mut self, release: Release, flaw: Option<Flaw>) -> Form {
        self.forms.count += 1;
        let (count, transport) = (self.forms.count, Transport::default());
        Form { number: count, release, flaw, proof: count, transport }
    }

    pub fn edit_form(&mut self, edit: Edit) {
        let Some(there) = self.kube.objects.cluster.as_ref().map(|cluster| cluster.form) else { return };
        let recorded = self.kube.objects.record.map(|record| record.form.with(there.transport));
        let form = match edit {
            Edit::Harmless if there.flaw.is_none() => {
                Form { proof: there.proof, ..self.new_form(there.release, None) }
            }
            Edit::Harmless | Edit::Arguments => self.new_form(there.release, None),
            // 3.7 needs members that run 3.6 together.
            Edit::Upgrade if there.release == Release::V3_6 && recorded != Some(there) => {
                self.new_form(there.release, None)
            }
            Edit::Upgrade => self.new_form(there.release.next(), None),
            Edit::Flawed(flaw) => self.new_form(there.release, Some(flaw)),
            Edit::Revert => match recorded {
                Some(form) => form,
                None => self.new_form(there.release, None),
            },
        };
        self.set_form(form);
    }

    /// Where the way to 3.7 is blocked, the operator asks for the version before it.
    pub fn take_back_upgrade(&mut self) {
        let there = self.kube.objects.cluster.as_ref().map(|cluster| cluster.form.release);
        let runs_it =
            |it: &Ordinal| self.servers.get(it).is_some_and(|server| server.release == Release::V3_7);
        let all_run_it = self.members().values().all(|peer| runs_it(&peer.ordinal));
        if there == Some(Release::V3_7) && (!all_run_it || self.servers.is_empty()) {
            let form = self.new_form(Release::V3_6, None);
            self.set_form(form);
        }
    }

    fn set_form(&mut self, form: Form) {
        self.note(|| format!("a user edits the form: {form:?}"));
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.form = form;
            cluster.version += 1;
        }
    }
}
