//! `kubectl etcd`: says what will come.

use std::process::ExitCode;

use clap::Parser;

const COMING: &str = "\
Nothing is in here yet. These verbs will come, as the operator learns to do the work behind them:
  status    one screen about a cluster: members, leader, version, what is being done and why
  plan      what the operator would do now, without doing it
  members   the member list, as etcd itself tells it
  backup    make, list and check backups
  pause     stop the operator from touching a cluster";

/// Looks after etcd clusters on Kubernetes.
#[derive(Parser)]
#[command(name = "kubectl-etcd", bin_name = "kubectl etcd", version, after_help = COMING)]
struct Arguments {
    /// What to do, and to what
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "VERB")]
    words: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.words.first() {
        Some(verb) => eprintln!("kubectl etcd {verb}: not there yet.\n\n{COMING}"),
        None => eprintln!("{COMING}"),
    }
    ExitCode::from(2)
}
