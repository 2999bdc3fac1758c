//! Conditions: a fact, since when it holds, and the generation of the spec that it is about.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::names::condition;

/// What a condition says, without when and about which generation.
pub(crate) struct Fact {
    pub type_: &'static str,
    pub value: Value,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    True,
    False,
    Unknown,
}

impl Value {
    fn text(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// In the order in which we write them: the API server can keep another.
pub(crate) fn ours(conditions: &[Condition]) -> Vec<Condition> {
    condition::ALL.iter().flat_map(|type_| find(conditions, type_)).cloned().collect()
}

pub(crate) fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == type_)
}

/// The conditions before: they have the times at which values changed.
#[derive(Clone, Copy)]
pub(crate) struct History<'a> {
    pub before: &'a [Condition],
    pub generation: Option<i64>,
    pub now: Timestamp,
}

impl History<'_> {
    pub fn conditions(&self, facts: Vec<Fact>) -> Vec<Condition> {
        facts
            .into_iter()
            .map(|fact| Condition {
                last_transition_time: Time(self.since(fact.type_, fact.value).unwrap_or(self.now)),
                type_: fact.type_.into(),
                status: fact.value.text().into(),
                reason: fact.reason.into(),
                message: fact.message,
                observed_generation: self.generation,
            })
            .collect()
    }

    /// Since when the condition has had this value, if it has it already.
    pub fn since(&self, type_: &str, value: Value) -> Option<Timestamp> {
        let there = find(self.before, type_).filter(|there| there.status == value.text())?;
        Some(there.last_transition_time.0)
    }
}
