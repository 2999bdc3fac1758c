//! Things that go wrong on purpose, each with its undo.
//!
//! A fault is first looked up (which process, which network, which directory), then recorded, then done. The record
//! holds what the undo needs and goes away with it, so a fault that outlived the program that made it can still be
//! undone, and without asking the API: the API server may be what is down.

mod altered;
mod apiserver;
pub mod command;
mod container;
mod crash;
mod cut;
mod damage;
mod effect;
mod error;
mod kind;
mod name;
mod record;
#[cfg(test)]
mod scratch;
mod volume;

use clap::{Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::cluster::Testbed;
use crate::layout::Layout;
pub use altered::alter_value;
use effect::Effect;
pub use error::{FaultError, Result};
pub use kind::{Kind, Undo};
use record::Records;

/// All faults there are. The comments are also the help texts of `testbed fault`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Subcommand)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// Kill (SIGKILL) the processes of a container.
    ///
    /// Undo: nothing to undo. The kubelet restarts the container.
    #[command(name = "kill")]
    KillProcess {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// The container [default: the first one of the pod]
        #[arg(short, long)]
        container: Option<String>,
        /// The name of a program in the container [default: all processes]
        #[arg(long)]
        process: Option<String>,
    },
    /// Pause (SIGSTOP) the processes of a container.
    ///
    /// Undo: resumes the processes (SIGCONT). It is not an error if a liveness probe has replaced the container.
    #[command(name = "pause")]
    PauseProcess {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// The container [default: the first one of the pod]
        #[arg(short, long)]
        container: Option<String>,
        /// The name of a program in the container [default: all processes]
        #[arg(long)]
        process: Option<String>,
    },
    /// Drop a pod's packets, including those of open connections.
    ///
    /// Loopback still works, and so does the node's address on the pods' bridge (10.244.N.1), which the kubelet's
    /// probes use: programs on the machine can still reach a pod on n1. The fault ends when the pod is replaced or its
    /// node crashes.
    ///
    /// Undo: packets pass again. Other faults of the same pod stay active.
    CutPod {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        #[arg(short, long, value_enum, default_value_t)]
        direction: Direction,
    },
    /// Reject connections from a pod to a port of another pod, and reset open ones.
    ///
    /// Connections in the other direction still work. The fault ends when one of the pods is replaced.
    ///
    /// Undo: connections work again. Other faults of the same pod stay active.
    CutCalls {
        pod: String,
        /// The pod that becomes unreachable, in the same namespace.
        #[arg(long)]
        to: String,
        #[arg(long)]
        port: u16,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Drop all packets between a node and the rest, including those of open connections.
    ///
    /// Pods on the node still reach each other. n1 runs the control plane and cannot be chosen.
    ///
    /// Undo: packets pass again. Other faults of the same node stay active.
    CutNode {
        node: String,
        #[arg(short, long, value_enum, default_value_t)]
        direction: Direction,
    },
    /// Kill everything on a node at once: kubelet, kube-proxy, containerd, all containers and the network.
    ///
    /// Written data is kept, synced or not, because the machine keeps running. n1 keeps its network and the control plane.
    ///
    /// Undo: the node and its pods start as after a reboot.
    CrashNode { node: String },
    /// Kill (SIGKILL) the API server.
    ///
    /// Undo: starts the API server and waits until it is ready.
    #[command(name = "stop-apiserver")]
    #[serde(rename = "stop-apiserver")]
    StopApiServer,
    /// Delete all files in the volume of a PVC, even while a pod uses it.
    ///
    /// Undo: impossible.
    WipeVolume {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Flip one bit in the newest file of etcd's log in the volume of a PVC, even while a pod uses it.
    ///
    /// etcd notices when it starts the next time.
    ///
    /// Undo: impossible.
    DamageLog {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Delete a PVC and its volume with all data, even while a pod uses them.
    ///
    /// A running pod keeps its open files on the old disk until it terminates.
    ///
    /// Undo: impossible.
    DeleteVolume {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Replace a value in the database of the etcd that uses the volume of a PVC, as a disk does that returns other bytes than
    /// were written.
    ///
    /// etcd can run meanwhile, and serves the other value at once.
    ///
    /// Undo: impossible.
    AlterValue {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        #[arg(long)]
        value: String,
        /// Another value of the same length.
        #[arg(long)]
        to: String,
    },
    /// Fill the volume of a PVC with one file.
    ///
    /// Undo: removes that file.
    FillDisk {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// The number of bytes to leave free.
        #[arg(long, default_value_t = 0)]
        leave_bytes: u64,
    },
    /// Make every growth of a PVC's volume fail.
    ///
    /// The PVC keeps its capacity and gets the condition ControllerResizeError.
    ///
    /// Undo: the volume grows to the size that the PVC requests then.
    FailGrowth {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Make cluster DNS return NXDOMAIN for names and their subdomains.
    ///
    /// With a DNS profile that caches, cached answers stay valid after the fault starts and after it ends.
    ///
    /// Undo: DNS returns these names again, unless another fault denies them.
    DenyNames {
        /// Full names, such as `db-0.db.default.svc.cluster.local`; `.` is every name.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Which packets a cut drops, as seen from what is cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    In,
    Out,
    #[default]
    Both,
}

/// A fault that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    pub id: String,
    pub fault: Fault,
    effect: Effect,
}

/// Does a fault. One that is in effect already is done again, for example to a pod that was replaced, and stays one.
pub async fn inject(bed: &Testbed, fault: Fault) -> Result<Injected> {
    let effect = Effect::of(bed, &fault).await?;
    let records = Records::of(bed.layout());
    let former = records.all()?.into_iter().find(|former| former.fault == fault);
    let id = match former {
        Some(former) => {
            if former.effect != effect {
                former.effect.end(bed, &former.id).await?;
            }
            former.id
        }
        None => records.new_id(fault.kind())?,
    };
    let injected = Injected { id, fault, effect };
    match injected.fault.kind().undo() {
        Undo::Nothing(_) | Undo::Impossible(_) => injected.effect.begin(bed, &injected.id).await?,
        Undo::Restores(_) => {
            records.write(&injected)?;
            if let Err(error) = injected.effect.begin(bed, &injected.id).await {
                // Half a fault is worse than none. If not even this works, the record stays for a later undo.
                let _ = injected.undo(bed).await;
                return Err(error);
            }
        }
    }
    Ok(injected)
}

/// The faults in effect, the oldest first.
pub fn in_effect(layout: &Layout) -> Result<Vec<Injected>> {
    Records::of(layout).all()
}

/// Whether a fault keeps a volume from growing. The provisioner asks before each growth.
pub fn prevents_growth(layout: &Layout, volume: &str) -> Result<bool> {
    Ok(in_effect(layout)?.iter().any(|injected| injected.effect.prevents_growth(volume)))
}

/// Undoes all faults in effect, the newest first; one that fails does not keep the others from being undone.
pub async fn undo_all(bed: &Testbed) -> Result<Vec<Injected>> {
    let mut faults = in_effect(bed.layout())?;
    faults.reverse();
    let mut first_error = Ok(());
    for injected in &faults {
        let undone = injected.undo(bed).await;
        first_error = first_error.and(undone);
    }
    first_error.map(|()| faults)
}

impl Injected {
    /// Takes the fault back; one that was undone already is fine.
    pub async fn undo(&self, bed: &Testbed) -> Result<()> {
        match self.fault.kind().undo() {
            Undo::Nothing(_) => Ok(()),
            Undo::Impossible(reason) => Err(FaultError::CannotBeUndone { id: self.id.clone(), reason }),
            Undo::Restores(_) => {
                let records = Records::of(bed.layout());
                if !records.contains(&self.id) {
                    return Ok(());
                }
                self.effect.end(bed, &self.id).await?;
                records.remove(&self.id)
            }
        }
    }
}
