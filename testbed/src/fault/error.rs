use thiserror::Error;

pub type Result<T> = std::result::Result<T, FaultError>;

/// Why a fault could not be done or undone.
#[derive(Debug, Error)]
pub enum FaultError {
    #[error("pod {namespace}/{pod} does not exist")]
    NoSuchPod { namespace: String, pod: String },
    #[error("pod {pod} has no container `{container}`; it has {}", there.join(", "))]
    NoSuchContainer { pod: String, container: String, there: Vec<String> },
    #[error("container `{container}` of pod {pod} is not running")]
    ContainerNotRunning { pod: String, container: String },
    #[error("container `{container}` of pod {pod} has no process `{process}`; it has {}", there.join(", "))]
    NoSuchProcess { pod: String, container: String, process: String, there: Vec<String> },
    #[error("pod {pod} has no running process")]
    PodNotRunning { pod: String },
    #[error("pod {pod} has no IP address")]
    NoAddress { pod: String },
    #[error("pod {pod} uses the network of node {node}: use `testbed fault cut-node {node}`")]
    SharesNodeNetwork { pod: String, node: String },
    #[error("node `{node}` does not exist; nodes: {}", there.join(", "))]
    NoSuchNode { node: String, there: Vec<String> },
    #[error("node {node} runs the control plane: choose another node")]
    CarriesControlPlane { node: String },
    #[error("PVC {namespace}/{claim} does not exist")]
    NoSuchClaim { namespace: String, claim: String },
    #[error("PVC {namespace}/{claim} is not bound to a volume")]
    ClaimNotBound { namespace: String, claim: String },
    #[error("volume {volume} is not mounted below {below}, so the testbed did not create it")]
    VolumeNotMounted { volume: String, below: String },
    #[error("`{name}` is not a valid DNS name")]
    NotAName { name: String },
    #[error("cannot undo {id}: {reason}")]
    CannotBeUndone { id: String, reason: &'static str },
    #[error("{id} needs no undo: {reason}")]
    NothingToUndo { id: String, reason: &'static str },
    #[error("fault `{id}` is not active")]
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
