//! `kubectl etcd`: says what will come.

use std::process::ExitCode;

use clap::Parser;

const COMING: &str = "\
This version implements no command. Planned commands:
  status    show members, leader, version, and what the operator does and why
  plan      show what the operator would do now, without doing it
  members   show etcd's member list
  backup    create, list and verify backups
  pause     stop the operator from changing a cluster";

/// Manages etcd clusters on Kubernetes
#[derive(Parser)]
#[command(name = "kubectl-etcd", bin_name = "kubectl etcd", version, after_help = COMING)]
struct Arguments {
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.words.first() {
        Some(verb) => eprintln!("kubectl etcd {verb}: not implemented.\n\n{COMING}"),
        None => eprintln!("{COMING}"),
    }
    ExitCode::from(2)
}
