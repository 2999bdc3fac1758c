//! The controllers and kubelets: the StatefulSet controller (Parallel, OnDelete), garbage collection, eviction from
//! nodes that are down, the protection of volume claims in use.

use etcd_operator_core::observed::{Blocked, Ordinal, Process};

use super::{Claim, Kube, Pod, Sandbox, SetSpec, Template, Volume};
use crate::agent::Memory;
use crate::etcd::Tick;
use crate::random::Random;
use crate::secrets::Authorities;
use crate::volumes::Class;

/// Kubernetes waits for more than five minutes by default; nothing happens in the rest of them.
const EVICTION: Tick = 200;
/// Until the node controller marks the pods of a node that does not respond. It waits for 40 seconds by default.
const DETECTION: Tick = 50;

impl Kube {
    /// One pass of the controllers and kubelets, each of which may be late.
    pub fn tick(&mut self, random: &mut Random, now: Tick) {
        if random.chance(700) {
            self.collect_garbage();
        }
        if random.chance(700) {
            let reads = random.chance(600);
            self.run_statefulset_controller(reads, now);
        }
        self.mark_lost(now);
        self.evict(now);
        for ordinal in self.objects.pods.keys().copied().collect::<Vec<_>>() {
            self.run_kubelet(ordinal, random, now);
        }
        self.run_preflights(random, now);
        self.mount_secrets(random, now);
        self.protect_claims();
        self.grow_volumes(random);
        self.report(random, now);
    }

    /// What is owned by an object that is gone goes, too.
    fn collect_garbage(&mut self) {
        if self.objects.set.take_if(|set| set.orphaning).is_some() {
            self.objects.pods.values_mut().for_each(|pod| pod.set = None);
        }
        let cluster = self.objects.cluster.as_ref().map(|cluster| cluster.uid);
        self.objects.set.take_if(|set| Some(set.spec.template.cluster) != cluster);
        self.objects.record.take_if(|record| Some(record.cluster) != cluster);
        self.objects.order.take_if(|order| Some(order.cluster) != cluster);
        self.objects.preflights.retain(|_, preflight| Some(preflight.cluster) == cluster);
        self.objects.secrets.retain(|_, secret| Some(secret.cluster) == cluster);
        let set = self.objects.set.map(|set| set.uid);
        self.objects
            .pods
            .values_mut()
            .filter(|pod| pod.set.is_some() && pod.set != set)
            .for_each(|pod| pod.terminating = true);
    }

    /// A name is free only when the pod that had it is gone, however long that takes.
    fn run_statefulset_controller(&mut self, reads: bool, now: Tick) {
        let Some(there) = self.objects.set.as_mut().filter(|set| !set.orphaning) else { return };
        if reads && !there.is_followed() {
            there.read = Some((there.spec, there.generation));
            there.version += 1;
        }
        let (set, Some((SetSpec { replicas, template, volumes }, _))) = (there.uid, there.read) else {
            return;
        };
        self.objects.pods.values_mut().for_each(|pod| {
            pod.set.get_or_insert(set);
        });
        for ordinal in Ordinal::below(replicas) {
            if self.objects.pods.contains_key(&ordinal) {
                continue;
            }
            match self.objects.claims.get(&ordinal) {
                // The real one reports an error and tries again, too.
                Some(claim) if claim.terminating => continue,
                Some(_) => {}
                None => {
                    let claim = Claim {
                        uid: self.uid(),
                        version: 1,
                        terminating: false,
                        cluster_uid: template.cluster,
                        member: None,
                        volume: None,
                        class: volumes.class.of_claim(),
                        requested: volumes.form().bytes,
                        capacity: 0,
                    };
                    self.objects.claims.insert(ordinal, claim);
                }
            }
            let pod = Pod {
                uid: self.uid(),
                set: Some(set),
                template,
                created: now,
                node: None,
                lost: None,
                terminating: false,
                published: false,
                ready: false,
                reported: Process::CannotStart(Blocked::Unschedulable("not placed yet".into())),
            };
            self.objects.pods.insert(ordinal, pod);
            self.created.push(ordinal);
        }
        let excess = self.objects.pods.iter_mut().filter(|(ordinal, _)| ordinal.0 >= replicas);
        excess.for_each(|(_, pod)| pod.terminating = true);
    }

    /// A pod that runs nowhere is lost with the node of its volume. A kubelet that returns reports its pods again.
    fn mark_lost(&mut self, now: Tick) {
        let Self { objects, sandboxes, nodes_down, volumes, .. } = self;
        for (ordinal, pod) in &mut objects.pods {
            let claim = objects.claims.get(ordinal).and_then(|claim| volumes.get(&claim.volume?));
            let runs_on = sandboxes.get(ordinal).map(|sandbox| sandbox.node);
            let node = runs_on.or(claim.map(|volume| volume.node));
            let down = node.and_then(|node| nodes_down.get(&node));
            match down {
                Some(since) if now - since > DETECTION => _ = pod.lost.get_or_insert(now),
                Some(_) => {}
                None => pod.lost = None,
            }
        }
    }

    /// Pods on a node that stays down are deleted, but their kubelet cannot confirm that they ended: they stay Terminating
    /// until the node returns or a user forces the deletion.
    fn evict(&mut self, now: Tick) {
        let Self { objects, sandboxes, nodes_down, .. } = self;
        for (ordinal, sandbox) in sandboxes {
            let long = nodes_down.get(&sandbox.node).is_some_and(|since| now - since > EVICTION);
            if let Some(pod) = objects.pods.get_mut(ordinal).filter(|_| long) {
                pod.terminating = true;
            }
        }
    }

    fn run_kubelet(&mut self, ordinal: Ordinal, random: &mut Random, now: Tick) {
        let Some(pod) = self.objects.pods.get(&ordinal) else { return };
        let (uid, template, terminating) = (pod.uid, pod.template, pod.terminating);
        match self.sandboxes.get_mut(&ordinal) {
            Some(sandbox) if self.nodes_down.contains_key(&sandbox.node) => {}
            Some(sandbox) if terminating => {
                let ends = *sandbox.ends.get_or_insert(now + random.between(1, 20));
                if now >= ends {
                    self.sandboxes.remove(&ordinal);
                    self.objects.pods.remove(&ordinal);
                }
            }
            None if terminating => {
                self.objects.pods.remove(&ordinal);
            }
            Some(_) => {}
            None if self.unplaceable.contains(&ordinal) || !random.chance(300) => {}
            None => self.place(ordinal, uid, template, random, now),
        }
    }

    /// A pod goes where its volume is; a new volume is on a node that is up.
    fn place(&mut self, ordinal: Ordinal, uid: u64, template: Template, random: &mut Random, now: Tick) {
        let Some(claim) = self.objects.claims.get(&ordinal).filter(|claim| !claim.terminating) else {
            return;
        };
        let volume = match claim.volume {
            Some(volume) => volume,
            None if claim.class == Class::Missing => return,
            None => self.provision(ordinal),
        };
        let Some(node) = self.volumes.get(&volume).map(|volume| volume.node) else { return };
        if self.nodes_down.contains_key(&node) {
            return;
        }
        let sandbox = Sandbox {
            uid,
            template,
            node,
            volume,
            order: self.objects.order,
            mounted: template.form.transport.is_plain().then(Authorities::default),
            mounted_late: false,
            trusts: Authorities::default(),
            starts: now + random.between(1, 15),
            published_from: now + random.between(0, 10),
            state: Process::Beginning,
            ready: false,
            failures: 0,
            memory: Memory::default(),
            ends: None,
        };
        self.sandboxes.insert(ordinal, sandbox);
        self.objects.pods.entry(ordinal).and_modify(|pod| pod.node = Some(node));
    }

    fn provision(&mut self, ordinal: Ordinal) -> u64 {
        let (volume, node) = (self.uid(), self.uid());
        self.volumes.insert(volume, Volume { node, ..Volume::default() });
        if let Some(claim) = self.objects.claims.get_mut(&ordinal) {
            claim.volume = Some(volume);
            claim.capacity = claim.requested;
            claim.version += 1;
        }
        volume
    }

    /// A claim that is deleted stays while a pod on a node uses it, and its volume goes with it.
    fn protect_claims(&mut self) {
        let Self { objects, sandboxes, .. } = self;
        let unused =
            objects.claims.iter().filter(|(it, claim)| claim.terminating && !sandboxes.contains_key(it));
        let unused: Vec<Ordinal> = unused.map(|(&ordinal, _)| ordinal).collect();
        unused.into_iter().for_each(|ordinal| self.lose_claim(ordinal));
    }

    /// Kubelets mount the order and report what their pods do.
    fn report(&mut self, random: &mut Random, now: Tick) {
        let Self { objects, sandboxes, nodes_down, .. } = self;
        for (ordinal, sandbox) in sandboxes {
            let up = !nodes_down.contains_key(&sandbox.node);
            if random.chance(300) && up {
                sandbox.order = objects.order;
            }
            let Some(pod) = objects.pods.get_mut(ordinal) else { continue };
            let published = sandbox.is_published(now);
            let heard = random.chance(500) && up;
            let ready = sandbox.ready && sandbox.ends.is_none();
            if heard && (&pod.reported, pod.published, pod.ready) != (&sandbox.state, published, ready) {
                pod.reported = sandbox.state.clone();
                pod.published = published;
                pod.ready = ready;
                if let Some(set) = &mut objects.set {
                    set.version += 1;
                }
            }
        }
    }
}
