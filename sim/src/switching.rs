//! Another transport while members run: what a user asks for, and what must never happen on the way.

use etcd_operator_core::api::{PlainClients, Tls};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::tls::{ClientPort, Scheme, Section, Transport};

use crate::etcd::{Server, Tick};
use crate::form::Form;
use crate::kube::Objects;
use crate::problem::Violation;
use crate::world::World;

/// How long the operator has to notice what a late request did.
const NOTICED: Tick = 600;

/// The spec that asks for exactly this.
pub fn spec(transport: Transport) -> Tls {
    Tls {
        client_tls_enabled: transport.clients.is_tls(),
        peer_tls_enabled: transport.peers.has_certificates(),
        plain_clients: match transport.clients {
            ClientPort::Http => None,
            ClientPort::Both => Some(PlainClients::Allow),
            ClientPort::Https => Some(PlainClients::Refuse),
        },
        ..Tls::default()
    }
}

impl Objects {
    /// What members should have in the end.
    pub fn target(&self) -> Transport {
        let Some(cluster) = &self.cluster else { return Transport::default() };
        let (tls, in_effect) = (&cluster.tls, self.transport());
        let applied = cluster.goal.asked.apply_tls || self.order.is_some();
        Section::of(tls, applied, in_effect, self.section.as_ref()).target(tls, in_effect)
    }

    /// The form that pods should have in the end.
    pub fn final_form(&self) -> Option<Form> {
        Some(self.cluster.as_ref()?.form.with(self.target()))
    }

    /// Everything that pods have, will have or should have.
    pub fn transports(&self) -> Transport {
        let pods = self.pods.values().map(|pod| pod.template.form.transport);
        let of_new_pods = self.set.map(|set| set.spec.template.form.transport);
        pods.chain(of_new_pods).chain(self.transport()).fold(self.target(), Transport::or_more)
    }
}

impl World {
    pub fn edit_transport(&mut self, transport: Transport) {
        self.note(|| format!("a user edits the transport: {transport}"));
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.tls = spec(transport);
            cluster.version += 1;
        }
    }

    /// What a request did that arrived long after it was sent is repaired, but not prevented.
    pub fn urls_changed_late(&mut self) {
        self.urls_excused_until = self.now + NOTICED;
    }

    /// What the peer port of a pod serves.
    pub fn served(&self, ordinal: Ordinal) -> Scheme {
        let sandbox = self.kube.sandboxes.get(&ordinal);
        sandbox.map(|it| it.template.form.transport.peers.scheme()).unwrap_or_default()
    }

    /// Whether what runs in one pod can connect to another.
    pub fn can_dial(&self, from: Ordinal, to: Ordinal) -> bool {
        let sandbox = self.kube.sandboxes.get(&from);
        let certified = sandbox.is_some_and(|it| it.template.form.transport.peers.has_certificates());
        certified || self.served(to) == Scheme::Http
    }

    /// Every member is listed with what it serves, and every other one can connect to it.
    pub fn watch_peer_ports(&mut self) {
        if self.has_rivals || self.now < self.urls_excused_until {
            return;
        }
        let wrong = self.servers.iter().find_map(|(&ordinal, server)| {
            let members = self.members_of(server.data.cluster);
            let listed = members.get(&server.id())?;
            let is_hidden = !listed.schemes.contains(self.served(ordinal));
            let others = self.servers.iter().filter(|(_, it)| is_peer(it, server));
            let is_closed = || others.map(|(&other, _)| other).any(|other| !self.can_dial(other, ordinal));
            (is_hidden || is_closed()).then_some(ordinal)
        });
        if let Some(ordinal) = wrong {
            self.violate(Violation::OtherScheme(ordinal));
        }
    }
}

fn is_peer(one: &Server, other: &Server) -> bool {
    one.data.cluster == other.data.cluster && one.id() != other.id()
}
