//! Runs the simulation for many seeds, or shows one.

use std::process::ExitCode;

use clap::Parser;
use etcd_operator_sim::script::Script;

/// Runs the operator's decisions against a simulated world.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this one
    #[arg(long)]
    seed: Option<u64>,
    /// Show what happens in it
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Go on after a failure, and name all seeds that fail
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let Arguments { seeds, from, seed, trace, keep_going } = Arguments::parse();
    if let Some(seed) = seed {
        return show(&Script::random(seed), trace);
    }
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
                println!("seed {seed}: {}", failure.problem);
                failed.push(seed);
            }
            Err(_) => return show(&Script::random(seed), true),
        }
        let done = seed - from + 1;
        if done.is_multiple_of(1000) {
            println!("{done} of {seeds} seeds; {} failed", failed.len());
        }
    }
    println!(
        "{seeds} seeds: {} hours of simulated time, {acked} acknowledged writes, {effects} actions; {} failed {failed:?}",
        ticks / 36_000,
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(script: &Script, trace: bool) -> ExitCode {
    let script = if trace { script.traced() } else { script.clone() };
    match script.run() {
        Ok(success) => {
            println!("seed {}: {success:?}", script.seed);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}\n{script:?}");
            println!("again: cargo run --release -p etcd-operator-sim -- --seed {} --trace", failure.seed);
            ExitCode::FAILURE
        }
    }
}
