//! `testbed fault`: what the library does, for people.

use anyhow::Result;
use clap::Subcommand;

use super::{Fault, FaultError, Injected, Kind, Undo, in_effect, inject, undo_all};
use crate::cluster::Testbed;
use crate::say;

#[derive(Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    #[command(flatten)]
    Inject(Fault),
    /// List active faults, oldest first.
    List,
    /// Undo one active fault, or all, newest first.
    #[command(arg_required_else_help = true)]
    Undo {
        /// The id that `list` and the fault's own output show.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        #[arg(long)]
        all: bool,
    },
}

/// Prints a line for each fault: what was done and how to undo it.
pub async fn run(command: Command, bed: &Testbed) -> Result<()> {
    match command {
        Command::Inject(fault) => say!("{}", done(&inject(bed, fault).await?)),
        Command::List => {
            let faults = in_effect(bed.layout())?;
            if faults.is_empty() {
                say!("no active faults");
            }
            for injected in faults {
                say!("{:18} {}", injected.id, injected.fault);
            }
        }
        Command::Undo { id: Some(id), .. } => {
            let injected = in_effect(bed.layout())?.into_iter().find(|injected| injected.id == id);
            let injected = injected.ok_or_else(|| not_in_effect(&id))?;
            injected.undo(bed).await?;
            say!("{}", undone(&injected));
        }
        Command::Undo { id: None, .. } => {
            let faults = undo_all(bed).await?;
            if faults.is_empty() {
                say!("no active faults");
            }
            for injected in faults {
                say!("{}", undone(&injected));
            }
        }
    }
    Ok(())
}

fn done(injected: &Injected) -> String {
    let Injected { id, fault, .. } = injected;
    match fault.kind().undo() {
        Undo::Restores(_) => format!("{fault}; undo: testbed fault undo {id}"),
        Undo::Nothing(reason) => format!("{fault}; nothing to undo: {reason}"),
        Undo::Impossible(reason) => format!("{fault}; undo is impossible: {reason}"),
    }
}

fn undone(injected: &Injected) -> String {
    match injected.fault.kind().undo() {
        Undo::Restores(what) => format!("reverted {}: {what}", injected.id),
        Undo::Nothing(reason) | Undo::Impossible(reason) => format!("nothing to revert: {reason}"),
    }
}

/// Ids of faults that were over at once are asked for too; the answer is why there is nothing to undo.
fn not_in_effect(id: &str) -> FaultError {
    match Kind::of_id(id).map(Kind::undo) {
        Some(Undo::Impossible(reason)) => FaultError::CannotBeUndone { id: id.to_owned(), reason },
        Some(Undo::Nothing(reason)) => FaultError::NothingToUndo { id: id.to_owned(), reason },
        Some(Undo::Restores(_)) | None => FaultError::NotInEffect { id: id.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Direction;
    use super::*;
    use clap::{CommandFactory, Parser, ValueEnum};

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> std::result::Result<Command, clap::Error> {
        Line::try_parse_from(["fault"].into_iter().chain(line.split(' '))).map(|line| line.command)
    }

    #[test]
    fn commands_are_read_with_their_defaults() {
        let kill = Fault::KillProcess {
            namespace: "default".into(),
            pod: "db-0".into(),
            container: None,
            process: Some("etcd".into()),
        };
        assert_eq!(parse("kill db-0 --process etcd").expect("valid"), Command::Inject(kill));
        let cut = |direction| {
            Command::Inject(Fault::CutPod { namespace: "x".into(), pod: "db-0".into(), direction })
        };
        assert_eq!(parse("cut-pod db-0 -n x").expect("valid"), cut(Direction::Both));
        assert_eq!(parse("cut-pod db-0 -n x --direction in").expect("valid"), cut(Direction::In));
        let calls =
            Fault::CutCalls { namespace: "x".into(), pod: "db-0".into(), to: "db-1".into(), port: 2380 };
        let line = "cut-calls db-0 --to db-1 --port 2380 -n x";
        assert_eq!(parse(line).expect("valid"), Command::Inject(calls));
        assert_eq!(parse("stop-apiserver").expect("valid"), Command::Inject(Fault::StopApiServer));
    }

    #[test]
    fn undo_takes_an_id_or_all_but_not_both_and_not_nothing() {
        assert_eq!(parse("undo --all").expect("valid"), Command::Undo { id: None, all: true });
        assert_eq!(
            parse("undo pause-1").expect("valid"),
            Command::Undo { id: Some("pause-1".into()), all: false }
        );
        assert!(parse("undo").is_err());
        assert!(parse("undo pause-1 --all").is_err());
    }

    #[test]
    fn every_kind_is_a_command_and_its_help_gives_the_undo() {
        let line = Line::command();
        for kind in Kind::value_variants() {
            let command = line.find_subcommand(kind.name()).expect("a command of that name");
            let help = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Undo: "), "{}: {help}", kind.name());
        }
    }

    #[test]
    fn asking_to_undo_what_is_over_says_why() {
        assert_eq!(
            not_in_effect("kill-3").to_string(),
            "kill-3 needs no undo: the kubelet starts the container again"
        );
        assert_eq!(
            not_in_effect("wipe-volume-4").to_string(),
            "cannot undo wipe-volume-4: the files are deleted"
        );
        assert_eq!(not_in_effect("cut-pod-9").to_string(), "fault `cut-pod-9` is not active");
    }
}
