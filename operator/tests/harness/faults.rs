//! Faults between the operator and the API server or etcd: which request, and what happens to it.
//!
//! Effects are the writes that change a cluster, on both sides, in one numbering: statuses, events and the Lease are none.

pub mod etcd;
pub mod kube;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::kube::Client;
use etcd_operator::client::{Asked, Verb};
use hyper::body::Bytes;
use tokio::sync::Notify;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Delay(Duration),
    /// It is not sent, and its connection breaks.
    DropBefore,
    /// It is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// It is not sent, and this is the answer. etcd answers that the request timed out.
    Answer(u16),
    /// It is not sent, and there is no answer.
    Hang,
    /// A watch: after so many parts of its answer nothing comes any more.
    Freeze {
        after: usize,
    },
    /// A watch: after so many parts of its answer it ends, because what it would tell next is not known any more (410).
    Expire {
        after: usize,
    },
    /// A list: the first answer to the same request, once more.
    OldList,
    /// The operator ends before it is sent.
    KillBefore,
    /// The operator ends when it has been carried out.
    KillAfter,
}

/// The nth request like this, counted from one.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub verb: Verb,
    pub resource: &'static str,
    pub nth: usize,
    pub fault: Fault,
}

/// Which effects a fault happens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hits {
    /// The nth of this kind: how many of another kind come before it can be chance.
    Nth(String, usize),
    /// Each, but a repetition of one that was hit gets through.
    Each,
}

/// What the restart of a member begins with.
pub const EVICTION: &str = "create pods/eviction ";

/// One run: what happened so far, and what is to happen.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

struct Shared {
    namespace: String,
    killed: Notify,
    state: Mutex<State>,
}

struct State {
    rules: Vec<(Rule, usize)>,
    effects_hit: Option<(Hits, Fault)>,
    /// From when on faults happen, and effects count.
    on: bool,
    effects: Vec<Effect>,
    /// Whether the EtcdCluster was read from the API server since the last effect that could do harm.
    read_live: bool,
    /// Whether a Secret was read since the last eviction.
    read_secrets: bool,
    /// Changes every object right before it is written: who does it, and how often each was about to be written.
    overtakes: Option<(Client, HashMap<String, usize>)>,
    overtaken: Vec<(String, u16)>,
    /// How many faults have happened.
    happened: usize,
    begun: Instant,
    last: Instant,
    /// The first answer to each list, by its URI.
    lists: HashMap<String, Bytes>,
}

/// One write, with all attempts until it is carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// `create configmaps kv-bootstrap`, `MemberAdd http://...`
    pub what: String,
    pub attempts: usize,
    pub carried_out: bool,
    /// Nothing that could do harm is done on the word of a cache.
    pub confirmed: bool,
    /// Whether a Secret was read since the eviction before.
    pub read_secrets: bool,
    pub fault: Option<Fault>,
    /// When the last attempt was made.
    seconds: f64,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, attempts, carried_out, confirmed: _, read_secrets: _, fault, seconds } = self;
        let end = if *carried_out { "carried out" } else { "not carried out" };
        write!(f, "{seconds:6.2} s {what}: {end}, attempts: {attempts}")?;
        fault.map_or(Ok(()), |fault| write!(f, ", {fault:?}"))
    }
}

impl Effect {
    /// Without the ID of a member and the namespace, which are others in each run.
    pub fn kind(&self) -> &str {
        match self.what.split_once(' ') {
            Some((method, _)) if ["MemberPromote", "MemberRemove", "MoveLeader"].contains(&method) => method,
            Some(("MemberAdd", _)) => self.what.split('.').next().unwrap_or(&self.what),
            _ => &self.what,
        }
    }

    /// Effects that are harmless on an old observation: they add something that is always right, or fail.
    fn is_harmless(what: &str) -> bool {
        let harmless = [
            "patch etcdclusters",
            "patch persistentvolumeclaims ",
            // What pods trust is never replaced on the word of a cache: then an authority exists already.
            "create secrets ",
            "update secrets ",
            "create services ",
            "patch services ",
            "create poddisruptionbudgets ",
            "patch poddisruptionbudgets ",
            "delete poddisruptionbudgets ",
            "create networkpolicies ",
            "patch networkpolicies ",
            "delete networkpolicies ",
            // Nothing else creates pods here.
            "create pods ",
            "delete pods kv-preflight-",
        ];
        harmless.iter().any(|beginning| what.starts_with(beginning))
    }
}

impl Faults {
    pub fn none(namespace: &str) -> Self {
        Self::new(namespace, Vec::new(), None, None)
    }

    pub fn at_requests(namespace: &str, rules: Vec<Rule>) -> Self {
        Self::new(namespace, rules, None, None)
    }

    pub fn at_effects(namespace: &str, hits: Hits, fault: Fault) -> Self {
        Self::new(namespace, Vec::new(), Some((hits, fault)), None)
    }

    /// Somebody else changes each object right before the operator does, every other time.
    pub fn overtaking(namespace: &str, by: Client) -> Self {
        Self::new(namespace, Vec::new(), None, Some(by))
    }

    fn new(
        namespace: &str,
        rules: Vec<Rule>,
        effects_hit: Option<(Hits, Fault)>,
        overtakes: Option<Client>,
    ) -> Self {
        let state = State {
            rules: rules.into_iter().map(|rule| (rule, 0)).collect(),
            effects_hit,
            on: false,
            effects: Vec::new(),
            read_live: false,
            read_secrets: false,
            overtakes: overtakes.map(|client| (client, HashMap::new())),
            overtaken: Vec::new(),
            happened: 0,
            begun: Instant::now(),
            last: Instant::now(),
            lists: HashMap::new(),
        };
        Self(Arc::new(Shared {
            namespace: namespace.to_owned(),
            killed: Notify::new(),
            state: Mutex::new(state),
        }))
    }

    /// From now on faults happen, and effects count.
    pub fn begin(&self) {
        let mut state = self.state();
        (state.on, state.effects) = (true, Vec::new());
    }

    /// What happens to this request, as far as it is about the run.
    pub fn request(&self, asked: &Asked) -> Option<Fault> {
        let mut state = self.state();
        if (asked.verb, asked.resource.as_str()) == (Verb::Get, "etcdclusters") {
            state.read_live = true;
        }
        state.read_secrets |= (asked.verb, asked.resource.as_str()) == (Verb::Get, "secrets");
        let mut fault = None;
        for (rule, count) in &mut state.rules {
            if (rule.verb, rule.resource) == (asked.verb, asked.resource.as_str()) {
                *count += 1;
                fault = fault.or((*count == rule.nth).then_some(rule.fault));
            }
        }
        state.happened += usize::from(fault.is_some());
        fault
    }

    /// An attempt at an effect, if it is one of the run: the next one, or one more attempt.
    pub fn attempt(&self, namespace: Option<&str>, what: String) -> Option<Attempt> {
        if namespace != Some(&self.0.namespace) {
            return None;
        }
        let mut state = self.state();
        state.last = Instant::now();
        let seconds = state.begun.elapsed().as_secs_f64();
        let confirmed = Effect::is_harmless(&what) || state.read_live;
        // With a StatefulSet its pods are deleted, on the same observation.
        let follows = ["delete statefulsets ", "delete pods "].iter().any(|it| what.starts_with(it));
        state.read_live &= Effect::is_harmless(&what) || follows;
        let read_secrets = state.read_secrets;
        state.read_secrets &= !what.starts_with(EVICTION);
        let pending = |effect: &Effect| effect.what == what && !effect.carried_out;
        let index = state.effects.iter().rposition(pending).unwrap_or_else(|| {
            let (attempts, carried_out, fault) = (0, false, None);
            state.effects.push(Effect {
                what,
                attempts,
                carried_out,
                confirmed,
                read_secrets,
                fault,
                seconds,
            });
            state.effects.len() - 1
        });
        let kind = state.effects[index].kind();
        let of_kind = state.effects[..=index].iter().filter(|effect| effect.kind() == kind).count();
        let hit = state.effects_hit.as_ref().filter(|(hits, _)| match hits {
            Hits::Nth(wanted, nth) => (kind, of_kind) == (wanted.as_str(), *nth),
            Hits::Each => true,
        });
        let fault = hit.filter(|_| state.on).map(|(_, fault)| *fault);
        let effect = &mut state.effects[index];
        (effect.attempts, effect.seconds) = (effect.attempts + 1, seconds);
        effect.confirmed &= confirmed;
        let fault = fault.filter(|_| effect.fault.is_none());
        Some(Attempt { faults: self.clone(), index, fault })
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.state().effects.clone()
    }

    /// Who changes the object of this request before it is sent, if somebody does.
    pub fn overtakes(&self, asked: &Asked) -> Option<Client> {
        let writes = matches!(asked.verb, Verb::Update | Verb::Patch | Verb::Delete);
        let ours = asked.namespace.as_deref() == Some(&self.0.namespace) && asked.resource != "leases";
        let mut state = self.state();
        let (client, times) = state.overtakes.as_mut().filter(|_| writes && ours)?;
        let key = format!("{} {} {:?}", asked.verb, asked.resource, asked.name);
        let times = times.entry(key).or_default();
        *times += 1;
        (*times % 2 == 1).then(|| client.clone())
    }

    /// What the API server answered to a write that was overtaken.
    pub fn was_overtaken(&self, asked: &Asked, status: u16) {
        self.state().overtaken.push((format!("{} {}", asked.verb, asked.resource), status));
    }

    pub fn overtaken(&self) -> Vec<(String, u16)> {
        self.state().overtaken.clone()
    }

    pub fn happened(&self) -> usize {
        self.state().happened
    }

    /// How long no effect was attempted.
    pub fn quiet_for(&self) -> Duration {
        self.state().last.elapsed()
    }

    /// Keeps the first answer to a list, and returns it.
    pub fn first_answer(&self, uri: &str, answer: Bytes) -> Bytes {
        self.state().lists.entry(uri.to_owned()).or_insert(answer).clone()
    }

    pub fn wants_old_lists(&self) -> bool {
        self.state().rules.iter().any(|(rule, _)| rule.fault == Fault::OldList)
    }

    /// Ends the operator. Whatever asked never gets an answer.
    pub async fn kill<T>(&self) -> T {
        self.0.killed.notify_one();
        std::future::pending().await
    }

    /// Completes when the operator is to end.
    pub async fn killed(&self) {
        self.0.killed.notified().await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One attempt at an effect.
pub struct Attempt {
    faults: Faults,
    index: usize,
    /// What is to happen to it.
    pub fault: Option<Fault>,
}

impl Attempt {
    /// The fault happens now.
    pub fn suffers(&self) {
        let mut state = self.faults.state();
        state.happened += 1;
        state.effects[self.index].fault = self.fault;
    }

    /// What was sent was not refused.
    pub fn is_carried_out(&self) {
        self.faults.state().effects[self.index].carried_out = true;
    }
}
