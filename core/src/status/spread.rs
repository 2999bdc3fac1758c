//! Whether members share a zone or a node although they need not. It is only reported: nothing that the operator does depends
//! on it.

mod placement;

use super::conditions::Value;
use super::facts::Finding;
use super::view::{Service, View};
use crate::asked::REPLACE_MEMBER;
use crate::desired::ZONE_LABEL;
use crate::names::{ANNOTATION_OF, reason};
use crate::observed::{Ordinal, Seen, Unread};
use placement::{Level, Placement, Shared};

impl View<'_> {
    /// Nothing with fewer than two members, or before the first pods have found their nodes.
    pub fn spread(&self) -> Option<Finding> {
        let runs = !matches!(self.service, Service::NotBootstrapped | Service::Stopped);
        if self.size() < 2 || !runs || self.seen().cluster.deleting {
            return None;
        }
        let nodes = match &self.seen().nodes {
            Seen::Known(nodes) => nodes,
            Seen::Unknown(Unread::NotAsked) => return None,
            Seen::Unknown(why) => {
                return Some((Value::Unknown, reason::NODES_NOT_READABLE, not_readable(why)));
            }
        };
        let node_of = |ordinal: Ordinal| {
            let node = self.seen().pods.get(&ordinal)?.node.as_deref()?;
            nodes.by_name.contains_key(node).then_some(node)
        };
        let wanted = Ordinal::below(self.basis.goal.size);
        let (on_nodes, elsewhere): (Vec<_>, Vec<_>) =
            wanted.map(|it| (it, node_of(it))).partition(|(_, node)| node.is_some());
        if !elsewhere.is_empty() {
            let pods: Vec<_> = elsewhere.into_iter().map(|(ordinal, _)| ordinal).collect();
            let message = format!("not yet running on a known node: {}", self.terms().pods(&pods));
            return Some((Value::Unknown, reason::NOT_ALL_SCHEDULED, message));
        }
        let running_on: Vec<_> = on_nodes.into_iter().filter_map(|(it, node)| Some((it, node?))).collect();
        let placement = Placement::of(&nodes.by_name, &running_on);
        Some(match placement.shared() {
            Some(shared) if nodes.own_rules => {
                (Value::Unknown, reason::CUSTOM_PLACEMENT, self.own_rules(&shared))
            }
            Some(shared) => (Value::False, reason::SHARED_DOMAIN, self.way_out(&shared)),
            None => self.as_well_as_possible(&placement),
        })
    }

    fn as_well_as_possible(&self, placement: &Placement<'_>) -> Finding {
        let (level, domains) = placement.domains();
        let domain = |(domain, members): (&&str, &Vec<Ordinal>)| {
            format!("{} {domain}: {}", level.title(), self.terms().pods(members))
        };
        let mut text: Vec<_> = domains.iter().map(domain).collect();
        let critical = placement.critical();
        text.extend(critical.map(|(level, domain)| {
            let title = level.title();
            format!("without {title} {domain} no quorum is left: a better spread needs more {title}s that accept members")
        }));
        let without_zone = placement.without_zone();
        text.extend((!without_zone.is_empty()).then(|| {
            format!(
                "zones are not compared, because nodes have no label {ZONE_LABEL}: {}",
                without_zone.join(", ")
            )
        }));
        let reason = if critical.is_some() { reason::TOO_FEW_DOMAINS } else { reason::SPREAD_EVENLY };
        (Value::True, reason, text.join("; "))
    }

    fn sharing(&self, shared: &Shared<'_>) -> String {
        format!("{} share {} {}", self.terms().pods(shared.members), shared.level.title(), shared.domain)
    }

    fn own_rules(&self, shared: &Shared<'_>) -> String {
        format!(
            "{}; spec.podTemplate has affinity or topologySpreadConstraints, and the operator does not judge whether they \
             allow a better spread",
            self.sharing(shared)
        )
    }

    /// The volume of a member usually ties it to its zone, and often to its node, so only a new volume moves it for certain.
    fn way_out(&self, shared: &Shared<'_>) -> String {
        let names = self.basis.names;
        let listed = self.facts.listed();
        let member = |ordinal: &Ordinal| Some((listed?.at(*ordinal)?.0, *ordinal));
        let leads = |id| listed.and_then(|members| members.leader) == Some(id);
        // Any of them would do; the leader costs clients an election.
        let known = shared.members.iter().rev().filter_map(member);
        let moves = known.min_by_key(|(id, _)| leads(*id));
        let replace = moves.map(|(id, ordinal)| {
            let (namespace, cluster, pod) = (&names.namespace, &names.cluster, names.pod(ordinal));
            let restart = match shared.level {
                Level::Zone => String::new(),
                Level::Node => format!("delete pod {pod} if its volume can move to another node; otherwise "),
            };
            format!(
                ": {restart}replace {pod}, which gives it a new volume: kubectl annotate -n {namespace} etcd {cluster} \
                 {ANNOTATION_OF}{REPLACE_MEMBER}={id} --overwrite"
            )
        });
        format!(
            "{}, although {} {} accepts members{}",
            self.sharing(shared),
            shared.level.title(),
            shared.better,
            replace.unwrap_or_default()
        )
    }
}

fn not_readable(why: &Unread) -> String {
    match why {
        Unread::NotAsked | Unread::Forbidden => {
            "the operator is not allowed to read nodes, so it does not know zones; to allow it: kubectl apply --server-side \
             -k config/nodes"
                .into()
        }
        Unread::Failed(why) => format!("the operator cannot read nodes, retrying: {why}"),
    }
}
