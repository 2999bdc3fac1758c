//! What the benchmark measures, how, and how it is told: `docs/bench.md` describes the file.

mod backup;
mod change;
mod crowd;
mod footprint;
mod operation;
mod part;
mod report;
mod roll;
mod samples;
mod stage;
mod table;

pub use footprint::{Figure, Process, shipped};
pub use operation::{By, Operation, Subject};
pub use part::Part;
pub use report::{Machine, Report, Row, rows};
pub use samples::{Sample, Samples};
pub use stage::Stage;

use crate::plain;

/// Everything is measured with the first; scaling, which etcd does in another way since 3.6, with both.
pub const VERSIONS: [&str; 2] = [plain::VERSION, "v3.6.16"];
