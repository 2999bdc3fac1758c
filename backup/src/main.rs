//! The program `etcd-backup`: everything that a backup has to do with a store. Each run has one verb, reads its inputs from one
//! file, and ends with one result. `docs/backup.md` describes them.

mod archive;
mod copies;
mod decode;
mod encode;
mod error;
mod etcd;
mod install;
mod probe;
mod read;
mod record;
mod replay;
mod restore;
mod segments;
mod snapshot;
mod store;
mod take;
mod upload;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use etcd_operator_core::backup::FormatVersion;
use etcd_operator_core::backup::inputs::{INPUTS_VARIABLE, Inputs};
use etcd_operator_core::backup::layout::CopyName;
use etcd_operator_core::backup::report::{Done, Failure, Outcome, Report, Summary};
use etcd_operator_core::backup::restorable;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::decode::identities;
use crate::error::Error;
use crate::replay::Target;
use crate::store::Store;

/// The kubelet creates it in every container; elsewhere there is none.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Takes, lists, verifies, deletes and fetches copies of etcd's data in a store, archives every revision and replays it: S3, GCS, Azure, or a directory. Prints the result
/// as one line of JSON, and writes it to the termination message of its container.
///
/// Exit codes: 0 success, 2 invalid configuration, 3 store unreachable, 4 store denied access, 5 store rejected the request,
/// 6 etcd unavailable, 7 copy not found, 8 copy damaged, 9 copy unusable, 10 output failed, 11 interrupted, 12 chain broken,
/// 13 copy needed, 14 replay failed.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The file with the inputs, as JSON; without it, the environment variable ETCD_BACKUP_INPUTS has them
    #[arg(long, global = true)]
    inputs: Option<PathBuf>,
    /// The file to write the result to, instead of the termination message
    #[arg(long, global = true)]
    result: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Find out whether the store can be used: write, read and delete a small object
    Probe,
    /// Take a copy of the cluster's data
    Take,
    /// List the clusters that have copies in the store
    Clusters,
    /// List the copies of a cluster, newest first, in pages
    List {
        /// List older copies than this one: `next` of the previous page
        #[arg(long)]
        before: Option<CopyName>,
    },
    /// Compare a copy with its manifest
    Verify {
        name: CopyName,
        /// A file with the age identity, to also check the content of an encrypted copy
        #[arg(long)]
        identity: Option<PathBuf>,
    },
    /// Delete copies
    Delete {
        #[arg(required = true)]
        names: Vec<CopyName>,
    },
    /// Follow the cluster and store every revision, until a signal ends it
    Archive {
        /// How long a revision waits until it is stored
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
        flush_interval_seconds: u64,
        /// For how long etcd or the store can be unavailable before the run ends
        #[arg(long, default_value_t = 600)]
        patience_seconds: u64,
        /// The file to write the progress to
        #[arg(long)]
        status: Option<PathBuf>,
    },
    /// Delete the copies that the retention of the inputs does not keep
    Prune,
    /// Restore a revision or a moment from a copy and the archive, as a snapshot in a file
    #[command(group(clap::ArgGroup::new("target").required(true)))]
    Replay {
        #[arg(long, group = "target")]
        to_revision: Option<i64>,
        /// Such as 2026-11-16T03:00:00Z
        #[arg(long, group = "target")]
        to_time: Option<Timestamp>,
        #[arg(long)]
        output: PathBuf,
        /// A directory that does not exist, with room for the database and its log; it is removed at the end
        #[arg(long)]
        scratch: PathBuf,
        /// The program etcd
        #[arg(long)]
        etcd: PathBuf,
        /// The program etcdutl, of the same version
        #[arg(long)]
        etcdutl: PathBuf,
        /// A file with the age identity of encrypted copies and segments
        #[arg(long)]
        identity: Option<PathBuf>,
        #[command(flatten)]
        restore: ForRestore,
    },
    /// Copy this program to a directory
    Install { directory: PathBuf },
    /// Write the snapshot of a copy to a file
    Fetch {
        /// Default: the newest copy
        name: Option<CopyName>,
        #[arg(long)]
        output: PathBuf,
        /// A file with the age identity of an encrypted copy
        #[arg(long)]
        identity: Option<PathBuf>,
        #[command(flatten)]
        restore: ForRestore,
    },
}

/// For a restore into a new member.
#[derive(clap::Args)]
pub struct ForRestore {
    /// Only what this version of etcd can use, if the volume has room for the restore. Replaces what an earlier attempt left
    #[arg(long)]
    pub for_etcd: Option<String>,
    /// Write nothing if this file exists
    #[arg(long)]
    pub unless_exists: Option<PathBuf>,
    /// A file that gets the highest revision that copies and archive have
    #[arg(long)]
    pub highest: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let Arguments { inputs, result, verb } = Arguments::parse();
    let outcome = if let Verb::Install { directory } = &verb {
        // It has no result to report, except a failure.
        match install::install(directory) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Err(error),
        }
    } else {
        run(inputs.as_deref(), verb).await
    };
    let code = outcome.as_ref().map_or_else(|error| error.reason().exit_code(), |_| 0);
    if let Err(error) = &outcome {
        eprintln!("etcd-backup: {error}");
    }
    let outcome = outcome.map_or_else(|error| Outcome::Failed(Failure::from(&error)), Outcome::Succeeded);
    let report = Report {
        format_version: FormatVersion::CURRENT,
        program_version: env!("CARGO_PKG_VERSION").into(),
        outcome,
    };
    let text = report.render();
    // It is in the termination message as well; nobody might read this.
    let _ = writeln!(std::io::stdout(), "{text}");
    let log = Some(PathBuf::from(TERMINATION_LOG)).filter(|file| file.exists());
    if let Some(file) = result.or(log)
        && let Err(error) = std::fs::write(&file, text)
    {
        eprintln!("etcd-backup: cannot write the result to {}: {error}", file.display());
    }
    // Threads that compute for a run that failed are not waited for.
    std::process::exit(code.into());
}

async fn run(file: Option<&Path>, verb: Verb) -> Result<Done, Error> {
    let inputs = inputs(file)?;
    if let Verb::Take = verb {
        return take::take(&inputs, interrupted()).await;
    }
    if let Verb::Archive { flush_interval_seconds, patience_seconds, status } = verb {
        let flush_interval = Duration::from_secs(flush_interval_seconds);
        let options =
            archive::Options { flush_interval, patience: Duration::from_secs(patience_seconds), status };
        return archive::archive(&inputs, options, interrupted()).await;
    }
    tokio::select! {
        done = others(&inputs, verb) => done,
        () = interrupted() => Err(Error::Interrupted),
    }
}

async fn others(inputs: &Inputs, verb: Verb) -> Result<Done, Error> {
    let store = Store::open(inputs)?;
    let layout = || store.layout(inputs);
    match verb {
        Verb::Probe => probe::probe(&store, inputs).await,
        Verb::Take | Verb::Archive { .. } => unreachable!("it handles interrupts itself"),
        Verb::Install { .. } => unreachable!("it has no inputs"),
        Verb::Clusters => copies::clusters(&store).await,
        Verb::List { before } => copies::list(&store, &layout()?, before.as_ref()).await,
        Verb::Verify { name, identity } => {
            let (layout, identities) = (layout()?, identity.as_deref().map(identities).transpose()?);
            let manifest = copies::find(&store, &layout, Some(&name)).await?;
            read::verify(&store, &layout, manifest, identities).await
        }
        Verb::Delete { names } => copies::delete(&store, &layout()?, &names).await,
        Verb::Prune => copies::prune(&store, &layout()?, inputs).await,
        Verb::Replay { to_revision, to_time, output, scratch, etcd, etcdutl, identity, restore } => {
            let target = match (to_revision, to_time) {
                (Some(revision), _) => Target::Revision(revision),
                (None, Some(time)) => Target::Time(time),
                (None, None) => unreachable!("one of them is required"),
            };
            let layout = restore::layout(&store, inputs).await?;
            let options = replay::Options { target, output, identity, scratch, etcd, etcdutl, restore };
            replay::replay(&store, &layout, inputs, &options).await
        }
        Verb::Fetch { name, output, identity, restore } => {
            let identities = identity.as_deref().map(identities).transpose()?;
            let layout = restore::layout(&store, inputs).await?;
            let manifest = copies::find(&store, &layout, name.as_ref()).await?;
            if restore.unless_exists.as_ref().is_some_and(|file| file.exists()) {
                return Ok(Done::Fetch { copy: Summary::from(&manifest) });
            }
            if let Some(version) = &restore.for_etcd {
                restore::prepare(&manifest, version, &output, restorable::room(&manifest))?;
            }
            if let Some(file) = &restore.highest {
                restore::write_highest(&store, &layout, file).await?;
            }
            read::fetch(&store, &layout, manifest, identities, &output).await
        }
    }
}

fn inputs(file: Option<&Path>) -> Result<Inputs, Error> {
    let source = file.map_or_else(|| INPUTS_VARIABLE.into(), |file| file.display().to_string());
    let wrong = |error: &dyn std::fmt::Display| Error::Configuration(format!("{source}: {error}"));
    let text = match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| wrong(&error))?,
        None => std::env::var(INPUTS_VARIABLE).map_err(|error| wrong(&error))?,
    };
    let inputs: Inputs = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    inputs.problem().map_or(Ok(inputs), |problem| Err(Error::Configuration(problem)))
}

/// Kubernetes ends a pod with SIGTERM, people end a program with SIGINT.
async fn interrupted() {
    let signals = signal(SignalKind::terminate()).and_then(|it| Ok((it, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = signals.expect("signals can be received");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
