//! `testbed image`

use std::path::PathBuf;

use anyhow::Result;

use super::{Name, Written, prepared, standard};
use crate::{cache, say};

#[derive(clap::Subcommand)]
pub enum Command {
    /// etcd of any version from 3.5 on, built from its Go modules
    Etcd {
        /// For example v3.5.9
        version: String,
    },
    /// Static programs of our own; the first one is what the image starts
    Operator {
        /// The image's full name, for example ghcr.io/example/operator:dev
        #[arg(long)]
        name: Name,
        #[arg(required = true)]
        programs: Vec<PathBuf>,
        /// Where the archive goes; without it, where the testbed's nodes pull from
        #[arg(long)]
        output: Option<PathBuf>,
    },
}

pub async fn run(command: Command) -> Result<()> {
    let written = match command {
        Command::Etcd { version } => prepared::ensure_etcd(&version).await?,
        Command::Operator { name, programs, output } => {
            let image = standard::operator([name], &programs)?;
            match output {
                Some(path) => image.write(&path)?,
                None => image.write_into(&cache::images())?,
            }
        }
    };
    let Written { path, digest, unchanged } = written;
    say!("{}: {} ({digest})", if unchanged { "unchanged" } else { "written" }, path.display());
    Ok(())
}
