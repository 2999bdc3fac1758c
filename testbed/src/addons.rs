//! What the cluster needs beside Kubernetes and runs for as long as it does: the image registry and the
//! provisioner of volumes, both in one process of the testbed's own program.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tokio::net::TcpListener;

use crate::layout::{HOST_ADDRESS, Layout, REGISTRY_PORT};
use crate::process::Daemon;
use crate::{cache, control_plane, registry, volumes};

/// The hidden subcommand that [`serve`]s.
pub const SUBCOMMAND: &str = "serve-addons";

pub async fn start(layout: &Layout) -> Result<()> {
    Daemon::new("addons", own_program()?).argument(SUBCOMMAND).start(layout).await?;
    Ok(())
}

pub async fn serve(layout: Layout) -> Result<()> {
    let listener = TcpListener::bind((HOST_ADDRESS, REGISTRY_PORT))
        .await
        .context("the registry cannot listen on its port")?;
    let registry = registry::serve(listener, vec![layout.images(), cache::images()]);
    let provisioner = async {
        let client = control_plane::wait_ready(&layout).await?;
        volumes::provision(client, layout.clone()).await
    };
    tokio::try_join!(registry, provisioner)?;
    Ok(())
}

/// The program `testbed`: this one, or the one beside the test that uses the library.
fn own_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    let beside = this.ancestors().take(3).map(|path| path.with_file_name("testbed"));
    beside.into_iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "cannot find the program `testbed` next to {}: run `cargo build -p etcd-operator-testbed`",
            this.display()
        )
    })
}
