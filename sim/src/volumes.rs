//! Sizes and classes of volumes: storage that grows them, or does not, and what users ask for.

use etcd_operator_core::observed::VolumeForm;

use crate::kube::{Claim, Kube};
use crate::random::Random;
use crate::world::World;

const MI: u64 = 1 << 20;

/// What a volume is asked to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volumes {
    pub mebibytes: u64,
    pub class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Of the Kubernetes cluster.
    Default,
    Slow,
    Fast,
    /// No volume of this class is ever provisioned.
    Missing,
}

impl Class {
    /// What a claim without a class gets.
    pub fn of_claim(self) -> Self {
        if self == Self::Default { Self::Slow } else { self }
    }

    pub fn name(self) -> Option<String> {
        (self != Self::Default).then(|| format!("{self:?}"))
    }
}

impl Volumes {
    pub const FIRST: Self = Self { mebibytes: 1024, class: Class::Slow };

    pub fn form(self) -> VolumeForm {
        VolumeForm { bytes: self.mebibytes * MI, class: self.class.name() }
    }
}

impl Claim {
    /// As the API server checks it: a request is lowered only to more than the volume has.
    pub fn resize(&mut self, bytes: u64) -> Result<(), &'static str> {
        if self.volume.is_none() {
            return Err("spec is immutable after creation except resources.requests for bound claims");
        }
        if bytes < self.requested && bytes <= self.capacity {
            return Err("field can not be less than status.capacity");
        }
        self.requested = bytes;
        self.version += 1;
        Ok(())
    }

    pub fn grows(&self) -> bool {
        self.volume.is_some() && self.capacity < self.requested
    }
}

impl Kube {
    /// Volumes get what their claims ask for, each when its storage has time.
    pub fn grow_volumes(&mut self, random: &mut Random) {
        for claim in self.objects.claims.values_mut().filter(|claim| claim.grows()) {
            if !self.growth_fails && random.chance(100) {
                claim.capacity = claim.requested;
                claim.version += 1;
            }
        }
    }
}

impl World {
    pub fn edit_volumes(&mut self, volumes: Volumes) {
        self.note(|| format!("a user edits the volumes: {volumes:?}"));
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.volumes = volumes;
            cluster.version += 1;
        }
    }

    /// Whether storage still has something to do.
    pub fn volumes_grow(&self) -> bool {
        !self.kube.growth_fails && self.kube.objects.claims.values().any(Claim::grows)
    }

    /// Whether every volume is as wanted, as far as that is possible: none shrinks, and the only one cannot move.
    pub fn volumes_are_as_wanted(&self) -> bool {
        let objects = &self.kube.objects;
        let Some(cluster) = &objects.cluster else { return true };
        let VolumeForm { bytes, .. } = cluster.volumes.form();
        let moves = cluster.volumes.class != Class::Default && cluster.goal.size > 1;
        objects.claims.values().all(|claim| {
            let class = !moves || claim.class == cluster.volumes.class;
            let size = claim.capacity >= bytes || self.kube.growth_fails;
            class && size && (claim.requested <= bytes + MI || claim.capacity > bytes)
        })
    }

    /// Whether new volumes are as wanted; those that would be smaller than others are not.
    pub fn new_volumes_are_as_wanted(&self) -> bool {
        let objects = &self.kube.objects;
        let Some((cluster, set)) = objects.cluster.as_ref().zip(objects.set) else { return true };
        let bytes = cluster.volumes.form().bytes;
        let shrinks =
            objects.claims.values().any(|claim| claim.capacity > bytes && claim.requested > bytes + MI);
        let there = set.spec.volumes;
        there.class == cluster.volumes.class && (there == cluster.volumes || shrinks)
    }
}
