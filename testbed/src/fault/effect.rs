//! What a fault comes to on this machine: found before it begins, and enough to end it without the API.

use serde::{Deserialize, Serialize};

use super::container::Selection;
use super::cut::Cut;
use super::volume::Volume;
use super::{Fault, Result, apiserver, container, crash, cut, in_effect, name, volume};
use crate::cluster::Testbed;
use crate::layout::Node;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Effect {
    Kill(Selection),
    Pause(Selection),
    Cut(Cut),
    Crash {
        node: Node,
    },
    StopApiServer,
    Wipe(Volume),
    DamageLog(Volume),
    Delete {
        volume: Volume,
        namespace: String,
        claim: String,
    },
    Alter {
        volume: Volume,
        value: String,
        to: String,
    },
    Fill {
        volume: Volume,
        leave_bytes: u64,
    },
    /// Its record is all of it: the provisioner reads that.
    FailGrowth(Volume),
    DenyNames {
        names: Vec<String>,
    },
}

impl Effect {
    pub async fn of(bed: &Testbed, fault: &Fault) -> Result<Self> {
        Ok(match fault {
            Fault::KillProcess { namespace, pod, container, process } => Self::Kill(
                container::select(bed, namespace, pod, container.as_deref(), process.as_deref()).await?,
            ),
            Fault::PauseProcess { namespace, pod, container, process } => Self::Pause(
                container::select(bed, namespace, pod, container.as_deref(), process.as_deref()).await?,
            ),
            Fault::CutPod { namespace, pod, direction } => {
                Self::Cut(cut::of_pod(bed, namespace, pod, *direction).await?)
            }
            Fault::CutCalls { namespace, pod, to, port } => {
                Self::Cut(cut::of_calls(bed, namespace, pod, to, *port).await?)
            }
            Fault::CutNode { node, direction } => Self::Cut(cut::of_node(bed, node, *direction)?),
            Fault::CrashNode { node } => Self::Crash { node: crash::find(bed, node)? },
            Fault::StopApiServer => Self::StopApiServer,
            Fault::WipeVolume { namespace, claim } => {
                Self::Wipe(volume::of_claim(bed, namespace, claim).await?)
            }
            Fault::DamageLog { namespace, claim } => {
                Self::DamageLog(volume::of_claim(bed, namespace, claim).await?)
            }
            Fault::DeleteVolume { namespace, claim } => Self::Delete {
                volume: volume::of_claim(bed, namespace, claim).await?,
                namespace: namespace.clone(),
                claim: claim.clone(),
            },
            Fault::AlterValue { namespace, claim, value, to } => Self::Alter {
                volume: volume::of_claim(bed, namespace, claim).await?,
                value: value.clone(),
                to: to.clone(),
            },
            Fault::FillDisk { namespace, claim, leave_bytes } => Self::Fill {
                volume: volume::of_claim(bed, namespace, claim).await?,
                leave_bytes: *leave_bytes,
            },
            Fault::FailGrowth { namespace, claim } => {
                Self::FailGrowth(volume::of_claim(bed, namespace, claim).await?)
            }
            Fault::DenyNames { names } => Self::DenyNames { names: name::normal(names)? },
        })
    }

    /// May be repeated.
    pub async fn begin(&self, bed: &Testbed, id: &str) -> Result<()> {
        match self {
            Self::Kill(selection) => selection.kill().await,
            Self::Pause(selection) => selection.pause(),
            Self::Cut(cut) => cut.begin(id).await,
            Self::Crash { node } => crash::begin(bed.layout(), *node).await,
            Self::StopApiServer => apiserver::stop(bed.layout()).await,
            Self::Wipe(volume) => volume.wipe(),
            Self::DamageLog(volume) => volume.damage_log(),
            Self::Delete { volume, namespace, claim } => volume.delete(bed, namespace, claim).await,
            Self::Alter { volume, value, to } => volume.alter(value, to),
            Self::Fill { volume, leave_bytes } => volume.fill(id, *leave_bytes),
            Self::FailGrowth(_) => Ok(()),
            Self::DenyNames { names } => name::deny(bed.layout(), names),
        }
    }

    /// May be repeated, and may come before the beginning was complete. What is gone meanwhile is fine.
    pub async fn end(&self, bed: &Testbed, id: &str) -> Result<()> {
        match self {
            Self::Kill(_)
            | Self::Wipe(_)
            | Self::DamageLog(_)
            | Self::Delete { .. }
            | Self::Alter { .. }
            | Self::FailGrowth(_) => Ok(()),
            Self::Pause(selection) => selection.resume(),
            Self::Cut(cut) => cut.end(id).await,
            Self::Crash { node } => crash::end(bed, *node).await,
            Self::StopApiServer => apiserver::start(bed).await,
            Self::Fill { volume, .. } => volume.unfill(id),
            Self::DenyNames { names } => {
                let mut others = in_effect(bed.layout())?;
                others.retain(|other| other.id != id);
                let still_denied: Vec<String> =
                    others.iter().flat_map(|other| other.effect.names()).cloned().collect();
                name::allow(bed.layout(), names, &still_denied)
            }
        }
    }

    fn names(&self) -> &[String] {
        match self {
            Self::DenyNames { names } => names,
            Self::Kill(_)
            | Self::Pause(_)
            | Self::Cut(_)
            | Self::Crash { .. }
            | Self::StopApiServer
            | Self::Wipe(_)
            | Self::DamageLog(_)
            | Self::Delete { .. }
            | Self::Alter { .. }
            | Self::Fill { .. }
            | Self::FailGrowth(_) => &[],
        }
    }

    pub fn prevents_growth(&self, of: &str) -> bool {
        matches!(self, Self::FailGrowth(volume) if volume.name() == of)
    }
}
