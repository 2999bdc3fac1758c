//! The parts of a benchmark, each of which can be run alone.

use super::VERSIONS;
use crate::plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Create one and three members, with the operator, without TLS, and with a plain StatefulSet
    Create,
    /// Scale from one member to three and five and back, while clients write; to three also without TLS
    Scale,
    /// Scale from three members to one and back with some megabytes of data, while clients write
    Data,
    /// Stop and start with the data
    Stop,
    /// Restart three and five members one after the other, while clients write, beside `kubectl rollout restart`
    Roll,
    /// Store a copy of a cluster's data in S3, beside `etcdctl snapshot save` and an upload
    Backup,
    /// Create twenty clusters at once, and measure the operator's memory and CPU
    Crowd,
}

impl Part {
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Scale, Self::Data, Self::Stop, Self::Roll, Self::Backup, Self::Crowd];

    pub fn namespace(self) -> &'static str {
        match self {
            Self::Create => "bench-create",
            Self::Scale => "bench-scale",
            Self::Data => "bench-data",
            Self::Stop => "bench-stop",
            Self::Roll => "bench-roll",
            Self::Backup => "bench-backup",
            Self::Crowd => "bench-crowd",
        }
    }

    /// With which etcd it is measured.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Scale => &VERSIONS,
            Self::Create | Self::Data | Self::Stop | Self::Roll | Self::Backup | Self::Crowd => {
                &[plain::VERSION]
            }
        }
    }
}
