//! What a claim asks for, and why it cannot have it.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};

use super::{PROVISIONER, quantity};
use crate::layout::Node;

const PROVISIONER_ANNOTATION: &str = "volume.kubernetes.io/storage-provisioner";
const NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";

/// Below this ext4 has little room for anything beside its journal.
pub const SMALLEST_BYTES: u64 = 8 << 20;
/// Loop devices and file systems count in blocks; an odd size is rounded up to this.
const BLOCK_BYTES: u64 = 4096;

/// A disk to be made, mounted or grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub node: Node,
    pub size_bytes: u64,
}

/// Why a volume cannot be had; said in an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no node is selected: use a storage class with volumeBindingMode WaitForFirstConsumer")]
    NoNode,
    #[error("the selected node {0} is not a node of this testbed: schedule the pod on another node")]
    UnknownNode(String),
    #[error("volumeMode {0} is not supported: use Filesystem")]
    UnsupportedMode(String),
    #[error("access mode {0} is not supported: use ReadWriteOnce or ReadWriteOncePod")]
    UnsupportedAccess(String),
    #[error("a selector or a data source is not supported: remove it")]
    UnsupportedSource,
    #[error("the requested size {0:?} is not a quantity: use a size such as 1Gi")]
    UnreadableSize(String),
    #[error("{0} bytes are too small for a file system: request at least {SMALLEST_BYTES} (8Mi)")]
    TooSmall(u64),
    #[error(
        "{requested_bytes} bytes requested, but the machine has only {free_bytes} free: request less or free space"
    )]
    NoSpace { requested_bytes: u64, free_bytes: u64 },
    #[error(
        "the disk of this volume on node {0} and its data are lost: delete the volume and the PVC to get a new one"
    )]
    DiskLost(Node),
    #[error(
        "{requested_bytes} bytes requested, but the file system of this volume can only grow to {most_bytes}: request less"
    )]
    GrowthTooLarge { requested_bytes: u64, most_bytes: u64 },
    #[error("a fault prevents this volume from growing: undo it with `testbed fault undo`")]
    GrowthFails,
}

impl Refusal {
    /// The event's reason. Each has its own: events of one reason about one object are counted as one.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoNode => "NoNodeSelected",
            Self::UnknownNode(_) => "UnknownNode",
            Self::UnsupportedMode(_) => "UnsupportedVolumeMode",
            Self::UnsupportedAccess(_) => "UnsupportedAccessMode",
            Self::UnsupportedSource => "UnsupportedSource",
            Self::UnreadableSize(_) => "UnreadableSize",
            Self::TooSmall(_) => "VolumeTooSmall",
            Self::NoSpace { .. } => "NoSpaceOnMachine",
            Self::DiskLost(_) => "DiskLost",
            Self::GrowthTooLarge { .. } | Self::GrowthFails => "VolumeResizeFailed",
        }
    }

    /// Whether it may pass without a change of the claim or volume.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::GrowthFails)
    }
}

/// Whether a claim is ours to provide for and still has no volume.
pub fn is_waiting(claim: &PersistentVolumeClaim) -> bool {
    let has_volume =
        claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()).is_some_and(|name| !name.is_empty());
    annotation(claim, PROVISIONER_ANNOTATION) == Some(PROVISIONER)
        && !has_volume
        && claim.metadata.deletion_timestamp.is_none()
}

/// What has to be made for a claim.
pub fn order(claim: &PersistentVolumeClaim, free_bytes: u64) -> Result<Order, Refusal> {
    let spec = claim.spec.clone().unwrap_or_default();
    let node = annotation(claim, NODE_ANNOTATION).ok_or(Refusal::NoNode)?;
    let node = Node::by_name(node).ok_or_else(|| Refusal::UnknownNode(node.to_owned()))?;
    if let Some(mode) = spec.volume_mode.as_ref().filter(|&mode| mode != "Filesystem") {
        return Err(Refusal::UnsupportedMode(mode.clone()));
    }
    let for_one_node = |mode: &&String| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod");
    if let Some(mode) = spec.access_modes.iter().flatten().find(|mode| !for_one_node(mode)) {
        return Err(Refusal::UnsupportedAccess(mode.clone()));
    }
    if spec.selector.is_some() || spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err(Refusal::UnsupportedSource);
    }
    let requested_bytes = bytes_of(&requested_storage(&spec))?;
    if requested_bytes < SMALLEST_BYTES {
        return Err(Refusal::TooSmall(requested_bytes));
    }
    if requested_bytes > free_bytes {
        return Err(Refusal::NoSpace { requested_bytes, free_bytes });
    }
    Ok(Order { node, size_bytes: requested_bytes })
}

/// The size of a disk that has this much; between two blocks, the larger one.
pub fn bytes_of(quantity: &str) -> Result<u64, Refusal> {
    let bytes = quantity::bytes(quantity).ok_or_else(|| Refusal::UnreadableSize(quantity.to_owned()))?;
    Ok(bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX))
}

pub fn requested_storage(spec: &PersistentVolumeClaimSpec) -> String {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get("storage")).map(|size| size.0.clone()).unwrap_or_default()
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
