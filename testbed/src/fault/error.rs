use thiserror::Error;

pub type Result<T> = std::result::Result<T, FaultError>;

/// Why a fault could not be done or undone.
#[derive(Debug, Error)]
pub enum FaultError {
    #[error("there is no pod {namespace}/{pod}")]
    NoSuchPod { namespace: String, pod: String },
    #[error("pod {pod} has no container `{container}`, only {}", there.join(", "))]
    NoSuchContainer { pod: String, container: String, there: Vec<String> },
    #[error("container `{container}` of pod {pod} does not run")]
    ContainerNotRunning { pod: String, container: String },
    #[error("no process `{process}` in container `{container}` of pod {pod}, only {}", there.join(", "))]
    NoSuchProcess { pod: String, container: String, process: String, there: Vec<String> },
    #[error("no process of pod {pod} runs")]
    PodNotRunning { pod: String },
    #[error("pod {pod} has no address")]
    NoAddress { pod: String },
    #[error("pod {pod} uses the network of node {node}: cut the node off instead")]
    SharesNodeNetwork { pod: String, node: String },
    #[error("there is no node `{node}`, only {}", there.join(", "))]
    NoSuchNode { node: String, there: Vec<String> },
    #[error("node {node} carries the control plane, so its network is not cut")]
    CarriesControlPlane { node: String },
    #[error("there is no claim {namespace}/{claim}")]
    NoSuchClaim { namespace: String, claim: String },
    #[error("claim {namespace}/{claim} is not bound to a volume")]
    ClaimNotBound { namespace: String, claim: String },
    #[error("volume {volume} is not mounted below {below}: not one that the testbed made")]
    VolumeNotMounted { volume: String, below: String },
    #[error("`{name}` is not a name that DNS could answer")]
    NotAName { name: String },
    #[error("{id} cannot be undone: {reason}")]
    CannotBeUndone { id: String, reason: &'static str },
    #[error("{id} needs no undo: {reason}")]
    NothingToUndo { id: String, reason: &'static str },
    #[error("no fault `{id}` is in effect")]
    NotInEffect { id: String },
    #[error("cannot read or change {object}")]
    Api { object: String, source: kube::Error },
    #[error("cannot {step}")]
    Machine { step: String, source: anyhow::Error },
}

impl FaultError {
    pub(super) fn api(object: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { object: object.to_string(), source }
    }

    pub(super) fn machine<E: Into<anyhow::Error>>(step: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        move |source| Self::Machine { step: step.to_string(), source: source.into() }
    }
}
