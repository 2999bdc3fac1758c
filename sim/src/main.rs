//! The simulation: Kubernetes and etcd membership in one process, driven by a seed. It comes with the engine
//! that it has to test.

use clap::Parser;

/// Runs the operator's decisions against a simulated world.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
}

fn main() {
    let Arguments { seeds } = Arguments::parse();
    println!("no simulation yet: it comes with the membership engine (0 of {seeds} seeds run)");
}
