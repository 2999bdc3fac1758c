//! Inspects, lets `core` decide, and becomes etcd; or waits and inspects again.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use etcd_operator_core::agent::{Protocol, Reason, Report, path};
use etcd_operator_core::etcd_config::{InitialState, METRICS_PORT, peer_url, whole_log_until};
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::recovery::RecoveryOrder;
use etcd_operator_core::start::{
    Evidence, Identity, Member, Memory, Order, Refusal, Start, Volume, Waiting, decide_start,
};
use jiff::Timestamp;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::addresses::{Lookup, Names};
use crate::awaited::Awaited;
use crate::fetch::{self, Receiver};
use crate::files::read_if_there;
use crate::page::Page;
use crate::peers::Peers;
use crate::settings::{self, Settings};
use crate::{etcd, log, volume};

/// How long the operator has to send the published addresses, before the agent of an order looks up the name of the
/// others, and before any agent takes its own address for published.
const UNTOLD: Duration = Duration::from_secs(3);
/// How long to wait for a first response of the resolver.
const FIRST_LOOKUP: Duration = Duration::from_secs(1);
const FIRST_LOOKUP_OF_RESTART: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    #[error("invalid environment of the etcd container")]
    Settings(#[source] settings::Error),
    #[error("cannot use the volume")]
    Volume(#[source] volume::Error),
    #[error("{reason}: {0}", reason = .0.reason())]
    Refused(Refusal),
    #[error(transparent)]
    Etcd(etcd::Error),
}

/// Returns only if etcd must not or cannot be started.
pub fn start() -> Result<Infallible, Error> {
    let receiver = Receiver::default();
    end_when_told(receiver.clone())?;
    let settings = Settings::from_environment().map_err(Error::Settings)?;
    let mut guard = Guard::new(&settings);
    loop {
        let evidence = guard.look()?;
        match (decide_start(&evidence), guard.obstacle.take()) {
            (Start::Refuse(refusal), _) => return Err(Error::Refused(refusal)),
            (Start::Restart { adopt }, _) => {
                if adopt {
                    sign(&settings, &evidence, None, None)?;
                }
                keep_private(&settings);
                let compares = guard.all_others_serve();
                log::info("restarting etcd", &[("initial-corrupt-check", &compares.to_string())]);
                return etcd::become_etcd(&settings, InitialState::Known { compares }).map_err(Error::Etcd);
            }
            (Start::Force { order }, _) => {
                etcd::check_arguments(&settings, InitialState::Forced).map_err(Error::Etcd)?;
                let (used, incarnation) = (Some(&order.nonce), Some(order.nonce.clone()));
                sign(&settings, &evidence, used, incarnation)?;
                keep_private(&settings);
                log::warn("starting etcd without the other members, once", &[("order", &order.nonce)]);
                return etcd::become_etcd(&settings, InitialState::Forced).map_err(Error::Etcd);
            }
            (Start::Wait(_) | Start::Join { .. } | Start::Bootstrap { .. }, Some(obstacle)) => {
                guard.wait(obstacle, &evidence);
            }
            (Start::Wait(waiting), None) => guard.wait(waiting.into(), &evidence),
            (Start::Join { members, fetch_until }, None) => {
                begin(&settings, &evidence, InitialState::Joins(&members), None)?;
                let cluster = ("cluster", settings.config.cluster_uid.as_str());
                let Some(wanted) = fetch_until else {
                    log::info("starting etcd as a new member", &[cluster]);
                    return etcd::become_etcd(&settings, InitialState::Joins(&members)).map_err(Error::Etcd);
                };
                log::info("starting etcd to receive data from the other members", &[cluster]);
                guard.fetch(wanted, evidence, &members, &receiver)?;
                log::info("starting etcd with the received data", &[cluster]);
                // There is nothing to compare: its data has just come from the others.
                return etcd::become_etcd(&settings, InitialState::Known { compares: false })
                    .map_err(Error::Etcd);
            }
            (Start::Bootstrap { order }, None) => {
                begin(&settings, &evidence, InitialState::Bootstraps(&order), Some(&order))?;
                log::info("starting etcd to bootstrap the cluster", &[("order", &order.nonce)]);
                return etcd::become_etcd(&settings, InitialState::Bootstraps(&order)).map_err(Error::Etcd);
            }
        }
    }
}

/// Process 1 of a container ignores signals that it has no handler for, so a pod could not be stopped quickly.
fn end_when_told(receiver: Receiver) -> Result<(), Error> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Error::Signals)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _none_from_now_on = receiver.end();
            log::info("received a termination signal before etcd started", &[]);
            std::process::exit(0);
        }
    });
    Ok(())
}

struct Guard<'a> {
    settings: &'a Settings,
    began: Instant,
    page: Option<Page>,
    lookup: Option<Lookup>,
    peers: Peers<'a>,
    names: Names,
    memory: Memory,
    /// Why the other pods could not be asked the last time.
    obstacle: Option<Awaited>,
    /// What is waited for, and since when.
    current: Option<(Awaited, Timestamp)>,
}

impl<'a> Guard<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            began: Instant::now(),
            page: None,
            lookup: None,
            peers: Peers::new(settings),
            names: Names::default(),
            memory: Memory::default(),
            obstacle: None,
            current: None,
        }
    }

    fn look(&mut self) -> Result<Evidence, Error> {
        let settings = self.settings;
        let found = volume::look(&settings.volume).map_err(Error::Volume)?;
        let used_nonces = volume::used_nonces(&found, &settings.run).map_err(Error::Volume)?;
        let evidence = Evidence {
            name: settings.local.name.clone(),
            peer_address: settings.peer_address.clone(),
            cluster_uid: settings.config.cluster_uid.clone(),
            adopts: settings.config.adopts.clone(),
            attempt: settings.config.attempt,
            volume: found,
            used_nonces,
            void_nonces: BTreeSet::new(),
            order: read_order(settings),
            recovery: read_recovery(settings),
            peers: Vec::new(),
            names: BTreeMap::new(),
            added_for: Duration::ZERO,
            whole_log_until: whole_log_until(&settings.config),
        };
        // A restart asks no other pod, so that it needs none.
        if evidence.volume.has_log {
            return Ok(evidence);
        }
        self.be_found(&evidence);
        let addresses = self.addresses(&evidence);
        let replies = match self.peers.ask(&addresses, self.is_published(&evidence)) {
            Ok(replies) => replies,
            Err(error) => {
                self.obstacle = Some(Awaited::from(&error));
                return Ok(evidence);
            }
        };
        let evidence = self.memory.add(replies, evidence, self.began.elapsed());
        Ok(Evidence { names: self.names.of_those_to_join(&evidence), ..evidence })
    }

    /// For a restart this is good to know, but not worth waiting long for.
    fn all_others_serve(&self) -> bool {
        let found = Lookup::begin(&self.settings.config.peer_host).found_within(FIRST_LOOKUP_OF_RESTART);
        let others: Vec<IpAddr> = found.into_iter().filter(|&it| it != self.settings.own_address).collect();
        !others.is_empty() && self.peers.all_serve(&others)
    }

    /// The other pods have to find this one before it has found them.
    fn be_found(&mut self, evidence: &Evidence) {
        if self.page.is_some() {
            return;
        }
        let address = SocketAddr::new(self.settings.local.listen, METRICS_PORT);
        match Page::open(address, self.report(&Waiting::Looking.into(), Timestamp::now(), evidence)) {
            Ok(page) => self.page = Some(page),
            Err(error) => log::warn("cannot serve the agent's status", &[("error", &error.to_string())]),
        }
    }

    fn addresses(&mut self, evidence: &Evidence) -> Vec<IpAddr> {
        let told = self.page.as_ref().and_then(Page::told);
        let ordered =
            matches!(&evidence.order, Order::There(order) if !evidence.used_nonces.contains(&order.nonce));
        let must_ask = !ordered || (told.is_none() && self.began.elapsed() >= UNTOLD);
        if must_ask && self.lookup.is_none() {
            self.lookup = Some(Lookup::begin(&self.settings.config.peer_host));
        }
        let found = self.lookup.as_ref().map(|lookup| match &told {
            Some(_) => lookup.found().unwrap_or_default(),
            None => lookup.found_within(FIRST_LOOKUP),
        });
        let known: BTreeSet<IpAddr> = told.into_iter().flatten().chain(found.into_iter().flatten()).collect();
        known.into_iter().filter(|&address| address != self.settings.own_address).collect()
    }

    /// Whether DNS returns the address of this pod: the operator sends no address earlier. Without its message that is
    /// assumed after a while, and where etcd was started before.
    fn is_published(&self, evidence: &Evidence) -> bool {
        let told = self.page.as_ref().and_then(Page::told).unwrap_or_default();
        told.contains(&self.settings.own_address)
            || self.began.elapsed() >= UNTOLD
            || was_ever_started(evidence)
    }

    /// The page stays open meanwhile, because this process has not become etcd yet.
    fn fetch(
        &mut self,
        wanted: u64,
        evidence: Evidence,
        members: &[Member],
        receiver: &Receiver,
    ) -> Result<(), Error> {
        let settings = self.settings;
        // From here on etcd itself looks for the others.
        (self.lookup, self.names) = (None, Names::default());
        let evidence =
            Evidence { volume: volume::look(&settings.volume).map_err(Error::Volume)?, ..evidence };
        let wait = |applied| self.wait(Waiting::Fetching { applied, wanted }.into(), &evidence);
        fetch::until(wanted, settings, members, receiver, wait).map_err(Error::Etcd)
    }

    /// Reports and logs once what is waited for, and waits a little.
    fn wait(&mut self, awaited: Awaited, evidence: &Evidence) {
        let pause = awaited.pause(self.began.elapsed());
        let since = match &self.current {
            Some((current, since)) if *current == awaited => *since,
            _ => {
                log::info("waiting", &[("reason", awaited.name()), ("for", &awaited.message)]);
                Timestamp::now()
            }
        };
        match &self.page {
            Some(page) => {
                page.show(self.report(&awaited, since, evidence));
                page.wait(pause);
            }
            None => std::thread::sleep(pause),
        }
        self.current = Some((awaited, since));
    }

    fn report(&self, awaited: &Awaited, since: Timestamp, evidence: &Evidence) -> Report {
        Report {
            protocol_version: Protocol::CURRENT,
            cluster_uid: evidence.cluster_uid.clone(),
            name: evidence.name.clone(),
            peer_url: peer_url(self.settings.config.transport.peers.scheme(), &self.settings.local.host),
            ever_started: was_ever_started(evidence),
            waiting: Reason::Known(awaited.waiting.clone()),
            message: awaited.message.clone(),
            since,
        }
    }
}

fn was_ever_started(evidence: &Evidence) -> bool {
    evidence.volume.identity.is_some() || !evidence.used_nonces.is_empty()
}

fn read_order(settings: &Settings) -> Order {
    match read_if_there(&settings.order) {
        Ok(None) => Order::None,
        Ok(Some(text)) => match BootstrapOrder::parse(&text) {
            Ok(order) => Order::There(order),
            Err(error) => Order::Malformed(error.to_string()),
        },
        Err(error) => Order::Malformed(error.to_string()),
    }
}

/// One that cannot be read is none: a restart needs no order.
fn read_recovery(settings: &Settings) -> Option<RecoveryOrder> {
    let text = match read_if_there(&settings.recovery) {
        Ok(text) => text?,
        Err(error) => {
            log::warn("cannot read the order for a recovery", &[("error", &error.to_string())]);
            return None;
        }
    };
    let order = RecoveryOrder::parse(&text);
    order
        .inspect_err(|error| log::warn("invalid order for a recovery", &[("error", &error.to_string())]))
        .ok()
}

/// Everything that has to be done before etcd starts without a log. Its arguments are checked first, so that a
/// mistake in them does not use the order up.
fn begin(
    settings: &Settings,
    evidence: &Evidence,
    initial_state: InitialState<'_>,
    order: Option<&BootstrapOrder>,
) -> Result<(), Error> {
    etcd::check_arguments(settings, initial_state).map_err(Error::Etcd)?;
    sign(settings, evidence, order.map(|order| &order.nonce), None)?;
    let Volume { has_log: _, has_remains, identity: _ } = evidence.volume;
    if has_remains {
        log::warn("moving data without a write-ahead log aside", &[("directory", path::DISCARDED)]);
        volume::put_remains_aside(&settings.volume).map_err(Error::Volume)?;
    }
    keep_private(settings);
    Ok(())
}

/// etcd starts with a directory that others can read, too, so this is no reason to keep it down.
fn keep_private(settings: &Settings) {
    if let Err(error) = volume::keep_private(&settings.volume) {
        log::warn("cannot restrict the data directory to its owner", &[("error", &error.to_string())]);
    }
}

/// A volume keeps the recovery that its data comes from.
fn sign(
    settings: &Settings,
    evidence: &Evidence,
    used: Option<&String>,
    incarnation: Option<String>,
) -> Result<(), Error> {
    let used = evidence.used_nonces.iter().chain(used);
    let there = evidence.volume.identity.as_ref().filter(|_| evidence.volume.has_log);
    let identity = Identity {
        cluster_uid: evidence.cluster_uid.clone(),
        name: evidence.name.clone(),
        used_nonces: used.cloned().collect(),
        incarnation: incarnation.or_else(|| there?.incarnation.clone()),
    };
    volume::sign(&settings.volume, &settings.run, &identity).map_err(Error::Volume)
}
