//! Processes that die or stand still.

use anyhow::{Result, ensure};

use super::{BACK_OFF_LIMIT, LIMIT, Three, all_serve, kill, pause};
use crate::runner::Context;
use crate::wait;

pub async fn killed(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let victim = &three.members[1];
    let before = wait::restarts(&context.pods().get(&victim.name).await?);
    let kill = context.inject(kill(context, &victim.name)).await?;
    let came_back = |pod: &_| wait::restarts(pod) > before && wait::is_ready(pod);
    wait::present(context.pods(), &victim.name, "the member runs again", BACK_OFF_LIMIT, came_back).await?;
    three.whole_again(context, LIMIT).await?;
    // The kubelet has undone it already.
    context.undo(&kill).await
}

pub async fn paused(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let victim = &three.members[1];
    let before = wait::restarts(&context.pods().get(&victim.name).await?);
    let pause = context.inject(pause(context, &victim.name)).await?;
    ensure!(victim.status().await.is_err(), "a paused member answers");
    ensure!(victim.serializable_read(super::KEY).await.is_err(), "a paused member reads");
    let others = || three.others(victim);
    // If the leader was paused, the others need an election.
    wait::until("the others serve", LIMIT, async || all_serve(others()).await.map(|()| true)).await?;
    context.step("the paused member does not respond, the others serve");
    context.undo(&pause).await?;
    three.whole_again(context, LIMIT).await?;
    let after = wait::restarts(&context.pods().get(&victim.name).await?);
    ensure!(after == before, "it was started anew instead of resumed");
    Ok(())
}
