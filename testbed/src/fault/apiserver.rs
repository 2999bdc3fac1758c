//! The API server, gone and back.

use super::{FaultError, Result};
use crate::cluster::Testbed;
use crate::control_plane::{self, API_SERVER};
use crate::layout::Layout;
use crate::process;

pub(super) async fn stop(layout: &Layout) -> Result<()> {
    let ids: Vec<u32> = process::running(layout, API_SERVER).into_iter().collect();
    process::kill_and_wait(&ids).await.map_err(FaultError::machine("stop the API server"))
}

/// Starts it, unless it runs, and waits until it is ready.
pub(super) async fn start(bed: &Testbed) -> Result<()> {
    let start = async || -> anyhow::Result<()> {
        if process::running(bed.layout(), API_SERVER).is_none() {
            bed.start_apiserver().await?;
        }
        control_plane::wait_ready(bed.layout()).await?;
        Ok(())
    };
    start().await.map_err(FaultError::machine("start the API server"))
}
