//! Where members run, and whether moving one would spread them better.

use std::collections::BTreeMap;

use crate::observed::{Node, Ordinal};
use crate::quorum::quorum;

/// What fails together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Zone,
    Node,
}

impl Level {
    pub fn title(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Node => "node",
        }
    }
}

/// Where the wanted members run.
pub struct Placement<'a> {
    /// The nodes that matter, with those of all members among them.
    nodes: &'a BTreeMap<String, Node>,
    by_node: BTreeMap<&'a str, Vec<Ordinal>>,
    /// None if the zone of a member is not known.
    by_zone: Option<BTreeMap<&'a str, Vec<Ordinal>>>,
}

/// Members that share a domain, and another one that would make the spread better.
#[derive(Debug, PartialEq, Eq)]
pub struct Shared<'a> {
    pub level: Level,
    pub domain: &'a str,
    pub members: &'a [Ordinal],
    pub better: &'a str,
}

impl<'a> Placement<'a> {
    pub fn of(nodes: &'a BTreeMap<String, Node>, running_on: &[(Ordinal, &'a str)]) -> Self {
        let mut by_node: BTreeMap<&str, Vec<Ordinal>> = BTreeMap::new();
        let mut by_zone: Option<BTreeMap<&str, Vec<Ordinal>>> = Some(BTreeMap::new());
        for &(ordinal, node) in running_on {
            by_node.entry(node).or_default().push(ordinal);
            match (nodes.get(node).and_then(|it| it.zone.as_deref()), &mut by_zone) {
                (Some(zone), Some(zones)) => zones.entry(zone).or_default().push(ordinal),
                (None, _) => by_zone = None,
                (Some(_), None) => {}
            }
        }
        Self { nodes, by_node, by_zone }
    }

    fn on(&self, node: &str) -> usize {
        self.by_node.get(node).map_or(0, Vec::len)
    }

    /// Zones first: one that fails takes its nodes with it.
    pub fn shared(&self) -> Option<Shared<'_>> {
        self.shared_zone().or_else(|| self.shared_node())
    }

    /// A member can only move to a zone with a node that accepts it, and it has to be better there than here.
    fn shared_zone(&self) -> Option<Shared<'_>> {
        let zones = self.by_zone.as_ref()?;
        let count = |zone: &str| zones.get(zone).map_or(0, Vec::len);
        let accepting = self.nodes.values().filter(|node| node.accepts_members);
        let better = accepting.filter_map(|node| node.zone.as_deref()).min_by_key(|zone| count(zone))?;
        let (&domain, members) = zones.iter().max_by_key(|(_, members)| members.len())?;
        let helps = members.len() > count(better) + 1;
        helps.then_some(Shared { level: Level::Zone, domain, members, better })
    }

    /// Without making the zones worse.
    fn shared_node(&self) -> Option<Shared<'_>> {
        let zone_of = |node: &str| self.nodes.get(node).and_then(|it| it.zone.as_deref());
        let keeps_zones = |from: &str, to: &str| match (&self.by_zone, zone_of(from), zone_of(to)) {
            (None, ..) => true,
            (Some(zones), Some(from), Some(to)) => {
                let count = |zone: &str| zones.get(zone).map_or(0, Vec::len);
                from == to || count(to) < count(from)
            }
            (Some(_), ..) => false,
        };
        let mut shared: Vec<_> = self.by_node.iter().filter(|(_, members)| members.len() > 1).collect();
        shared.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
        shared.into_iter().find_map(|(&domain, members)| {
            let helps = |&(to, node): &(&String, &Node)| {
                node.accepts_members && members.len() > self.on(to) + 1 && keeps_zones(domain, to)
            };
            let (better, _) = self.nodes.iter().filter(helps).min_by_key(|(to, _)| self.on(to))?;
            Some(Shared { level: Level::Node, domain, members, better })
        })
    }

    /// What fails together and is compared: zones, or nodes if zones are not known.
    pub fn domains(&self) -> (Level, &BTreeMap<&'a str, Vec<Ordinal>>) {
        match &self.by_zone {
            Some(zones) => (Level::Zone, zones),
            None => (Level::Node, &self.by_node),
        }
    }

    /// The domain whose failure costs the quorum, if it takes several members with it: a single one is the size's fault.
    pub fn critical(&self) -> Option<(Level, &'a str)> {
        let (level, domains) = self.domains();
        let size: usize = domains.values().map(Vec::len).sum();
        let (&domain, members) = domains.iter().max_by_key(|(_, members)| members.len())?;
        (members.len() > 1 && size - members.len() < quorum(size)).then_some((level, domain))
    }

    pub fn without_zone(&self) -> Vec<&'a str> {
        let without = |node: &&&str| self.nodes.get(**node).is_none_or(|it| it.zone.is_none());
        self.by_node.keys().filter(without).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
    const ZONES: [Option<&str>; 3] = [Some("a"), Some("b"), None];

    /// The same digits in base `base`, one for each of four.
    fn digits(number: usize, base: usize) -> [usize; 4] {
        [0, 1, 2, 3].map(|place| number / base.pow(place) % base)
    }

    /// Members in the fullest domains, fullest first: less is better. Zones count first, if all are known.
    fn cost(placement: &Placement<'_>) -> (Option<Vec<usize>>, Vec<usize>) {
        let counts = |domains: &BTreeMap<&str, Vec<Ordinal>>| {
            let mut counts: Vec<_> = domains.values().map(Vec::len).collect();
            counts.sort_by(|one, other| other.cmp(one));
            counts
        };
        (placement.by_zone.as_ref().map(counts), counts(&placement.by_node))
    }

    /// For every way to place three members on four nodes.
    #[test]
    fn members_share_a_domain_without_need_exactly_if_moving_one_of_them_makes_it_better() {
        for described in 0..6_usize.pow(4) {
            let node = |(name, kind): (&str, usize)| {
                let zone = ZONES[kind % 3].map(String::from);
                (name.to_owned(), Node { zone, accepts_members: kind < 3 })
            };
            let nodes: BTreeMap<_, _> = NODES.into_iter().zip(digits(described, 6)).map(node).collect();
            for placed in 0..4_usize.pow(3) {
                let members = [0, 1, 2].map(|it| (Ordinal(it), NODES[digits(placed, 4)[usize::from(it)]]));
                let now = Placement::of(&nodes, &members);
                let after = |moved: usize, to: &'static str| {
                    let mut members = members;
                    members[moved].1 = to;
                    cost(&Placement::of(&nodes, &members))
                };
                // Of a member whose zone is not known it is not known what a move makes better.
                let comparable = |moved: usize, to: &str| {
                    let zone = |node: &str| nodes.get(node).is_some_and(|it| it.zone.is_some());
                    now.by_zone.is_none() || zone(to) && zone(members[moved].1)
                };
                let accepting = || NODES.into_iter().filter(|name| nodes[*name].accepts_members);
                let better = |moved: usize, to: &'static str| {
                    let (zones, counts) = after(moved, to);
                    match &now.by_zone {
                        Some(_) => comparable(moved, to) && (zones, counts) < cost(&now),
                        None => counts < cost(&now).1,
                    }
                };
                let can_be_better = (0..3).any(|moved| accepting().any(|to| better(moved, to)));
                match now.shared() {
                    None => assert!(!can_be_better, "{nodes:?} {members:?}"),
                    Some(shared) => {
                        let moved = usize::from(shared.members[0].0);
                        let there = |name: &&str| match shared.level {
                            Level::Zone => nodes[*name].zone.as_deref() == Some(shared.better),
                            Level::Node => *name == shared.better,
                        };
                        let helps = accepting().filter(there).any(|to| better(moved, to));
                        assert!(helps, "{shared:?} {nodes:?} {members:?}");
                    }
                }
            }
        }
    }
}
