//! Runs the simulation for many seeds, or shows one.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use etcd_operator_sim::script::Script;

/// Runs the operator's decisions against a simulated Kubernetes and etcd
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The number of seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed; a random one by default
    #[arg(long)]
    from: Option<u64>,
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print what happens
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Continue after a failure, and list all failed seeds
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse(), &mut io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever reads has seen enough of a trace, as in `--trace | head`. What nobody saw is no success.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all went well.
fn run(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    let &Arguments { seeds, from, seed, trace, keep_going } = arguments;
    if let Some(seed) = seed {
        return show(&Script::random(seed), trace, out);
    }
    let from = from.unwrap_or_else(random_seed);
    writeln!(out, "first seed: {from}; to repeat: make sim SEED={from} SEEDS={seeds}")?;
    let mut failed = Vec::new();
    let (mut ticks, mut acked, mut effects) = (0, 0, 0);
    for seed in from..from + seeds {
        match Script::random(seed).run() {
            Ok(success) => {
                ticks += success.ticks;
                acked += success.acked;
                effects += success.effects;
            }
            Err(failure) if keep_going => {
                writeln!(out, "seed {seed}: {}", failure.problem)?;
                failed.push(seed);
            }
            Err(_) => return show(&Script::random(seed), true, out),
        }
        let done = seed - from + 1;
        if done.is_multiple_of(1000) {
            writeln!(out, "{done} of {seeds} seeds; {} failed", failed.len())?;
        }
    }
    writeln!(
        out,
        "{seeds} seeds: {} hours of simulated time, {acked} acknowledged writes, {effects} actions; {} failed {failed:?}",
        ticks / 36_000,
        failed.len()
    )?;
    Ok(failed.is_empty())
}

/// Short enough to be typed.
fn random_seed() -> u64 {
    RandomState::new().hash_one("the first seed") % 1_000_000_000
}

fn show(script: &Script, trace: bool, out: &mut impl Write) -> io::Result<bool> {
    let script = if trace { script.traced() } else { script.clone() };
    match script.run() {
        Ok(success) => {
            writeln!(out, "seed {}: {success:?}", script.seed)?;
            Ok(true)
        }
        Err(failure) => {
            writeln!(out, "{failure}\n{script:?}")?;
            let seed = failure.seed;
            writeln!(out, "to repeat: cargo run --release -p etcd-operator-sim -- --seed {seed} --trace")?;
            Ok(false)
        }
    }
}
