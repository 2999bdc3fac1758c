//! Counts calls to the API server and to members: each once, when its response or its end is known.

use std::sync::LazyLock;
use std::time::Instant;

use hyper::StatusCode;

use super::{Counters, Histograms, histograms};

pub static API: LazyLock<Calls> = LazyLock::new(|| Calls::new("verb"));
pub static ETCD: LazyLock<Calls> = LazyLock::new(|| Calls::new("call"));

pub struct Calls {
    label: &'static str,
    pub(super) total: Counters,
    pub(super) seconds: Histograms,
}

impl Calls {
    fn new(label: &'static str) -> Self {
        Self { label, total: Counters::default(), seconds: histograms() }
    }

    pub fn begin(&'static self, what: &'static str) -> Call {
        Call { calls: self, what, begun: Instant::now(), outcome: "no_response" }
    }
}

/// A call that has begun. One that is dropped before its end had no response.
pub struct Call {
    calls: &'static Calls,
    what: &'static str,
    begun: Instant,
    outcome: &'static str,
}

impl Call {
    pub fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    pub fn responded(self, status: StatusCode) {
        self.end(match status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::CONFLICT => "conflict",
            status if status.is_client_error() => "rejected",
            status if status.is_server_error() => "failed",
            _ => "ok",
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let &Calls { label, ref total, ref seconds } = self.calls;
        total.get_or_create(&[(label, self.what), ("outcome", self.outcome)]).inc();
        seconds.get_or_create(&[(label, self.what)]).observe(self.begun.elapsed().as_secs_f64());
    }
}
