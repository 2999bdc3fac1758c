//! The parts of a benchmark, each of which can be run alone.

use super::VERSIONS;
use crate::plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One and three members, by the operator and by the plain StatefulSet
    Create,
    /// From one member to three and five and back, while clients write
    Scale,
    /// From three members to one and back with some megabytes of data, while clients write
    Data,
    /// Stop and start with the data
    Stop,
    /// Twenty clusters at once, and what the operator needs for them
    Crowd,
}

impl Part {
    pub const ALL: [Self; 5] = [Self::Create, Self::Scale, Self::Data, Self::Stop, Self::Crowd];

    pub fn namespace(self) -> &'static str {
        match self {
            Self::Create => "bench-create",
            Self::Scale => "bench-scale",
            Self::Data => "bench-data",
            Self::Stop => "bench-stop",
            Self::Crowd => "bench-crowd",
        }
    }

    /// With which etcd it is measured.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Scale => &VERSIONS,
            Self::Create | Self::Data | Self::Stop | Self::Crowd => &[plain::VERSION],
        }
    }
}
