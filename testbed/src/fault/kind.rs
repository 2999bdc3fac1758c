//! The kinds of faults by name, what undoing one means, and how one reads in a sentence.

use clap::ValueEnum;

use super::{Direction, Fault};

/// A fault without its object. Its name is its command, and stands in front of the number in an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Kill,
    Pause,
    CutPod,
    CutCalls,
    CutNode,
    CrashNode,
    #[value(name = "stop-apiserver")]
    StopApiServer,
    WipeVolume,
    DamageLog,
    DeleteVolume,
    AlterValue,
    FillDisk,
    FailGrowth,
    DenyNames,
}

/// What becomes of a fault when it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// It stays in effect until it is undone; then this happens.
    Restores(&'static str),
    /// It was over at once.
    Nothing(&'static str),
    Impossible(&'static str),
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::CutPod => "cut-pod",
            Self::CutCalls => "cut-calls",
            Self::CutNode => "cut-node",
            Self::CrashNode => "crash-node",
            Self::StopApiServer => "stop-apiserver",
            Self::WipeVolume => "wipe-volume",
            Self::DamageLog => "damage-log",
            Self::DeleteVolume => "delete-volume",
            Self::AlterValue => "alter-value",
            Self::FillDisk => "fill-disk",
            Self::FailGrowth => "fail-growth",
            Self::DenyNames => "deny-names",
        }
    }

    /// From the id of a fault, in effect or not.
    pub fn of_id(id: &str) -> Option<Self> {
        let (name, number) = id.rsplit_once('-')?;
        number.parse::<u64>().ok()?;
        Self::value_variants().iter().copied().find(|kind| kind.name() == name)
    }

    pub fn undo(self) -> Undo {
        match self {
            Self::Kill => Undo::Nothing("the kubelet starts the container again"),
            Self::Pause => Undo::Restores("the processes run again"),
            Self::CutPod | Self::CutCalls => {
                Undo::Restores("the testbed removed its packet filter rules from the pod")
            }
            Self::CutNode => Undo::Restores("the testbed removed its packet filter rules from the node"),
            Self::CrashNode => Undo::Restores("the node runs again"),
            Self::StopApiServer => Undo::Restores("the API server runs again"),
            Self::WipeVolume => Undo::Impossible("the files are deleted"),
            Self::DamageLog => Undo::Impossible("the log is damaged"),
            Self::DeleteVolume => Undo::Impossible("the PVC, the volume and its files are deleted"),
            Self::AlterValue => Undo::Impossible("the value is overwritten"),
            Self::FillDisk => Undo::Restores("the testbed removed the file that filled the volume"),
            Self::FailGrowth => Undo::Restores("the volume can grow again"),
            Self::DenyNames => Undo::Restores("DNS returns the names again"),
        }
    }
}

impl Fault {
    pub fn kind(&self) -> Kind {
        match self {
            Self::KillProcess { .. } => Kind::Kill,
            Self::PauseProcess { .. } => Kind::Pause,
            Self::CutPod { .. } => Kind::CutPod,
            Self::CutCalls { .. } => Kind::CutCalls,
            Self::CutNode { .. } => Kind::CutNode,
            Self::CrashNode { .. } => Kind::CrashNode,
            Self::StopApiServer => Kind::StopApiServer,
            Self::WipeVolume { .. } => Kind::WipeVolume,
            Self::DamageLog { .. } => Kind::DamageLog,
            Self::DeleteVolume { .. } => Kind::DeleteVolume,
            Self::AlterValue { .. } => Kind::AlterValue,
            Self::FillDisk { .. } => Kind::FillDisk,
            Self::FailGrowth { .. } => Kind::FailGrowth,
            Self::DenyNames { .. } => Kind::DenyNames,
        }
    }
}

/// What was done, as the beginning of a sentence.
impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KillProcess { namespace, pod, container, process } => {
                write!(f, "killed {}{} of pod {namespace}/{pod}", processes(process), within(container))
            }
            Self::PauseProcess { namespace, pod, container, process } => {
                write!(f, "paused {}{} of pod {namespace}/{pod}", processes(process), within(container))
            }
            Self::CutPod { namespace, pod, direction } => {
                write!(f, "dropping {} pod {namespace}/{pod}", packets(*direction))
            }
            Self::CutCalls { namespace, pod, to, port } => {
                write!(
                    f,
                    "rejecting connections from pod {namespace}/{pod} to port {port} of pod {namespace}/{to}"
                )
            }
            Self::CutNode { node, direction } => write!(f, "dropping {} node {node}", packets(*direction)),
            Self::CrashNode { node } => write!(f, "crashed node {node}"),
            Self::StopApiServer => f.write_str("stopped the API server"),
            Self::WipeVolume { namespace, claim } => {
                write!(f, "deleted all files in the volume of PVC {namespace}/{claim}")
            }
            Self::DamageLog { namespace, claim } => {
                write!(f, "damaged the log of etcd in the volume of PVC {namespace}/{claim}")
            }
            Self::DeleteVolume { namespace, claim } => {
                write!(f, "deleted PVC {namespace}/{claim} and its volume")
            }
            Self::AlterValue { namespace, claim, value, to } => {
                write!(f, "replaced {value:?} by {to:?} in the volume of PVC {namespace}/{claim}")
            }
            Self::FillDisk { namespace, claim, leave_bytes } => {
                write!(f, "filled the volume of PVC {namespace}/{claim} except {leave_bytes} bytes")
            }
            Self::FailGrowth { namespace, claim } => {
                write!(f, "preventing growth of the volume of PVC {namespace}/{claim}")
            }
            Self::DenyNames { names } => write!(f, "DNS returns NXDOMAIN for {}", names.join(", ")),
        }
    }
}

fn processes(process: &Option<String>) -> &str {
    process.as_deref().unwrap_or("all processes")
}

fn within(container: &Option<String>) -> String {
    container
        .as_ref()
        .map_or_else(|| " in the first container".into(), |name| format!(" in container {name}"))
}

fn packets(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "packets to",
        Direction::Out => "packets from",
        Direction::Both => "packets to and from",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_read_off_an_id() {
        for kind in Kind::value_variants() {
            assert_eq!(Kind::of_id(&format!("{}-12", kind.name())), Some(*kind));
        }
        for wrong in ["", "kill", "kill-", "cut-pod", "cut-3", "kill-x"] {
            assert_eq!(Kind::of_id(wrong), None, "{wrong}");
        }
    }
}
