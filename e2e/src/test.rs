//! What a test is: what it needs, what it is about, and what it can run beside.

use anyhow::Result;
use futures::future::LocalBoxFuture;
use testbed::cluster::Config;

use crate::context::Context;

/// What a test needs to be there when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Nothing is up: the test brings up and takes down what it wants.
    Bare,
    Up(Config),
}

/// What a test proves something about, and so the sources that it has to be repeated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    Testbed,
    Operator,
    /// The commands in the documents, which the operator has to follow.
    Documents,
}

/// Which other tests can run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It changes nothing outside of its own namespace, and asserts nothing that load could change.
    Shared,
    /// It needs the machine for itself: the API server, nodes, DNS, the operator's process, or the length of write gaps.
    Exclusive,
}

/// Which runs a test is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `make e2e`.
    Full,
    /// `make test`, too. A test of the testbed only if its sources changed.
    Smoke,
    /// `make test`, too, in any case.
    Always,
}

pub type Run = for<'a> fn(&'a Context) -> LocalBoxFuture<'a, Result<()>>;

#[derive(Clone)]
pub struct Test {
    pub name: &'static str,
    pub topology: Topology,
    pub about: About,
    pub sharing: Sharing,
    pub part: Part,
    pub run: Run,
}

impl Topology {
    pub fn shared(&self, name: &'static str, run: Run) -> Test {
        self.test(name, Sharing::Shared, run)
    }

    pub fn exclusive(&self, name: &'static str, run: Run) -> Test {
        self.test(name, Sharing::Exclusive, run)
    }

    fn test(&self, name: &'static str, sharing: Sharing, run: Run) -> Test {
        Test { name, topology: self.clone(), about: About::Operator, sharing, part: Part::Full, run }
    }
}

impl Test {
    pub fn smoke(self) -> Self {
        Self { part: Part::Smoke, ..self }
    }

    pub fn always(self) -> Self {
        Self { part: Part::Always, ..self }
    }

    pub fn about(self, about: About) -> Self {
        Self { about, ..self }
    }
}
