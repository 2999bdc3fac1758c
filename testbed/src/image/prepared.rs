//! Images that are made on demand, so that the registry has them when a node asks.

use anyhow::{Context, Result};

use super::{Image, Written, standard};
use crate::build::{self, Programs};
use crate::cache;

/// What every pod of the testbed needs, and the debug image.
pub async fn ensure_base(programs: &Programs) -> Result<()> {
    write(standard::pause(&programs.pause)?).await?;
    write(standard::netshoot(standard::BUSYBOX.as_ref())?).await?;
    Ok(())
}

/// etcd of any version, built if need be.
pub async fn ensure_etcd(version: &str) -> Result<Written> {
    let programs = build::ensure_etcd(version).await?;
    write(standard::etcd(&programs.version, &programs.dir)?).await
}

async fn write(image: Image) -> Result<Written> {
    tokio::task::spawn_blocking(move || image.write_into(&cache::images()))
        .await
        .context("writing the image failed")?
}
