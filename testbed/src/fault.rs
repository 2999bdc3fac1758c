//! Things that go wrong on purpose, each with its undo.
//!
//! A fault is first looked up (which process, which network, which directory), then recorded, then done. The record
//! holds what the undo needs and goes away with it, so a fault that outlived the program that made it can still be
//! undone, and without asking the API: the API server may be what is down.

mod apiserver;
pub mod command;
mod container;
mod crash;
mod cut;
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
    /// Undo: nothing to undo. The kubelet starts the container again.
    #[command(name = "kill")]
    KillProcess {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// The pod's first container if not given.
        #[arg(short, long)]
        container: Option<String>,
        /// The name of one program in the container; all its processes if not given.
        #[arg(long)]
        process: Option<String>,
    },
    /// Pause (SIGSTOP) the processes of a container.
    ///
    /// Undo: they go on (SIGCONT). A liveness probe may have replaced the container meanwhile; that is no error.
    #[command(name = "pause")]
    PauseProcess {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// The pod's first container if not given.
        #[arg(short, long)]
        container: Option<String>,
        /// The name of one program in the container; all its processes if not given.
        #[arg(long)]
        process: Option<String>,
    },
    /// Drop a pod's packets, those of open connections too.
    ///
    /// Loopback stays, and so does the address of its node on the pods' bridge (10.244.N.1), from which the kubelet
    /// probes: a pod on n1 stays within reach of programs on the machine itself. The cut belongs to the pod's network:
    /// a pod that is replaced, or whose node crashes, comes back without it.
    ///
    /// Undo: packets pass again. Other cuts of the same pod stay.
    CutPod {
        pod: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        #[arg(short, long, value_enum, default_value_t)]
        direction: Direction,
    },
    /// Keep a pod from calling a port of another pod: it is refused, and open connections are reset.
    ///
    /// The other one still calls it and is answered. The cut belongs to both pods' networks: when one of them is
    /// replaced, it is over.
    ///
    /// Undo: calls arrive again. Other cuts of the same pod stay.
    CutCalls {
        pod: String,
        /// The pod that is not reached any more, in the same namespace.
        #[arg(long)]
        to: String,
        #[arg(long)]
        port: u16,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Drop all packets between a node and the rest, those of open connections too.
    ///
    /// Pods of the node still reach each other. n1 carries the control plane and cannot be cut off.
    ///
    /// Undo: packets pass again. Other cuts of the same node stay.
    CutNode {
        node: String,
        #[arg(short, long, value_enum, default_value_t)]
        direction: Direction,
    },
    /// Kill everything on a node at once: kubelet, kube-proxy, containerd and all containers; its network goes too.
    ///
    /// Written data stays, synced or not: the machine itself goes on. n1 keeps its network and the control plane.
    ///
    /// Undo: the node starts as after a reboot, and its pods with it.
    CrashNode { node: String },
    /// Kill (SIGKILL) the API server.
    ///
    /// Undo: it is started, and ready when the undo is done.
    #[command(name = "stop-apiserver")]
    #[serde(rename = "stop-apiserver")]
    StopApiServer,
    /// Delete all files of a claim's volume, also while a pod uses it.
    ///
    /// Undo: impossible.
    WipeVolume {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Delete a claim and its volume with all data, also while a pod uses them.
    ///
    /// A pod that runs keeps its open view of the old disk until it ends.
    ///
    /// Undo: impossible.
    DeleteVolume {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Fill a claim's volume with one file.
    ///
    /// Undo: that file is removed.
    FillDisk {
        claim: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
        /// How much stays free.
        #[arg(long, default_value_t = 0)]
        leave_bytes: u64,
    },
    /// Let cluster DNS answer NXDOMAIN for names and all below them.
    ///
    /// With a DNS profile that remembers answers, what was remembered outlives the fault's beginning, and its end.
    ///
    /// Undo: these names are answered again, unless another such fault names them too.
    DenyNames {
        /// Full names, for example `db-0.db.default.svc.cluster.local`; `.` is every name.
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
