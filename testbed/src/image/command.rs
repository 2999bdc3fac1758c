//! `testbed image`

use std::path::PathBuf;

use anyhow::Result;

use super::{Name, Written, prepared, standard};
use crate::{cache, say};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Build etcd from its Go modules, any version from 3.5 on
    Etcd {
        /// The version, such as v3.5.9
        version: String,
    },
    /// Package static programs; the image starts the first one
    Operator {
        /// The full name of the image, such as ghcr.io/example/operator:dev
        #[arg(long)]
        name: Name,
        #[arg(required = true)]
        programs: Vec<PathBuf>,
        /// The path of the archive [default: where the testbed's nodes pull from]
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
