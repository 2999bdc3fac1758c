//! Packets that do not arrive, and names that do not resolve.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::fault::{Direction, Fault};
use testbed::layout::HOST_ADDRESS;
use tokio::net::{TcpListener, TcpStream};

use super::{KEY, LIMIT, Three, VALUE, all_serve};
use crate::namespace::in_network_of;
use crate::runner::Context;
use crate::tools::{Spec, Tools};
use crate::wait;

const PORT: u16 = 7000;
/// For one attempt to connect; the first packet is sent again after a second.
const ATTEMPT: Duration = Duration::from_secs(3);

pub async fn pod_cut_off(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    // A pod on the machine itself stays within its reach even then, because its node is the machine.
    let victim = three.on("n2")?;
    let cut = context.inject(cut_pod(context, &victim.name, Direction::Both)).await?;
    ensure!(victim.status().await.is_err(), "a member that is cut off answers");
    let others = || three.others(victim);
    wait::until("the others serve", LIMIT, async || all_serve(others()).await.map(|()| true)).await?;
    context.step("the member is unreachable, the others serve");
    context.undo(&cut).await?;
    three.whole_again(context, LIMIT).await
}

pub async fn pod_cut_one_way(context: &Context) -> Result<()> {
    let spec = Spec::named("tools").on_node("n2");
    let tools = spec.start(context.client(), &context.kubectl(), &context.namespace).await?;
    let pair = Pair::connected(tools).await?;
    context.step("packets pass both ways");

    let cut = context.inject(cut_pod(context, "tools", Direction::In)).await?;
    pair.expect(Passes { to_pod: false, from_pod: true }).await?;
    context.undo(&cut).await?;
    pair.expect(Passes { to_pod: true, from_pod: true }).await?;

    let cut = context.inject(cut_pod(context, "tools", Direction::Out)).await?;
    pair.expect(Passes { to_pod: true, from_pod: false }).await?;
    context.undo(&cut).await?;
    pair.expect(Passes { to_pod: true, from_pod: true }).await
}

pub async fn node_cut_one_way(context: &Context) -> Result<()> {
    let spec = Spec::named("tools").on_node("n2");
    let tools = spec.start(context.client(), &context.kubectl(), &context.namespace).await?;
    let address = tools.address;
    tools.run(&["httpd", "-p", &PORT.to_string(), "-h", "/tmp"]).await?;
    wait::until("the machine reaches the pod", LIMIT, async || connects(address, PORT).await).await?;
    for (direction, arrives) in [(Direction::In, true), (Direction::Out, false), (Direction::Both, false)] {
        let listener = TcpListener::bind((HOST_ADDRESS, 0)).await.context("cannot listen on the bridge")?;
        let port = listener.local_addr()?.port();
        // `kubectl exec` would not get through, so the node itself calls.
        let cut = context.inject(Fault::CutNode { node: "n2".into(), direction }).await?;
        let seen = calls(
            async || Ok(std::fs::read_to_string("/proc/net/tcp")?),
            port,
            async || in_network_of("n2", move || async move { connects(HOST_ADDRESS, port).await }).await?,
        )
        .await?;
        ensure!(!seen.connected, "{direction:?}: connected");
        ensure!(seen.half_open == arrives, "{direction:?}: packets of the node arrive: {}", seen.half_open);
        ensure!(!connects(address, PORT).await?, "{direction:?}: the machine reaches the node's pod");
        context.undo(&cut).await?;
        let open = || in_network_of("n2", move || async move { connects(HOST_ADDRESS, port).await });
        wait::until("the node connects again", LIMIT, async || open().await?).await?;
        ensure!(connects(address, PORT).await?, "{direction:?}: undone, but the pod is out of reach");
    }
    Ok(())
}

pub async fn quorum_lost(context: &Context) -> Result<()> {
    let three = Three::create(context).await?;
    let mut cuts = Vec::new();
    for node in ["n2", "n3"] {
        cuts.push(context.inject(Fault::CutNode { node: node.into(), direction: Direction::Both }).await?);
    }
    for node in ["n1", "n2", "n3"] {
        let member = three.on(node)?.clone();
        // Asked on its own node: from here, two of them are out of reach.
        let (alone, together) = in_network_of(node, move || async move {
            (member.serializable_read(KEY).await, member.linearizable_read(KEY).await)
        })
        .await?;
        let alone = alone.with_context(|| format!("the member on {node} must still answer alone"))?;
        ensure!(alone.as_deref() == Some(VALUE), "the member on {node} forgot: {alone:?}");
        ensure!(together.is_err(), "the member on {node} served without a quorum: {together:?}");
    }
    ensure!(three.on("n1")?.put(KEY, "written without a quorum").await.is_err(), "a write without a quorum");
    context.step("every member responds, none serves: quorum is lost");
    for cut in cuts.iter().rev() {
        context.undo(cut).await?;
    }
    for member in &three.members {
        let what = format!("{} serves again", member.name);
        wait::until(&what, LIMIT, async || member.linearizable_read(KEY).await.map(|_| true)).await?;
        // The refused write may have reached a log before the cut was noticed; then it may count afterwards.
        let value = member.linearizable_read(KEY).await?;
        let known = [VALUE, "written without a quorum"];
        ensure!(value.as_deref().is_some_and(|value| known.contains(&value)), "lost: {value:?}");
    }
    three.members[0].put(KEY, VALUE).await?;
    all_serve(&three.members).await?;
    context.step("quorum is restored, no data is lost");
    Ok(())
}

pub async fn names_denied(context: &Context) -> Result<()> {
    let tools = Spec::named("tools").start(context.client(), &context.kubectl(), &context.namespace).await?;
    let (denied, other) = ("kubernetes.default.svc.cluster.local", "kube-dns.kube-system.svc.cluster.local");
    ensure!(tools.look_up(denied).await?.is_found(), "{denied} must exist");
    let deny = context.inject(Fault::DenyNames { names: vec![denied.into()] }).await?;
    wait::until("the name is denied", LIMIT, async || Ok(!tools.look_up(denied).await?.is_found())).await?;
    ensure!(tools.look_up(other).await?.is_found(), "{other} was not denied");
    context.step("the name does not exist, others do");
    context.undo(&deny).await?;
    wait::until("the name is back", LIMIT, async || Ok(tools.look_up(denied).await?.is_found())).await
}

fn cut_pod(context: &Context, pod: &str, direction: Direction) -> Fault {
    Fault::CutPod { pod: pod.into(), namespace: context.namespace.clone(), direction }
}

/// A pod that listens, and the machine.
struct Pair {
    tools: Tools,
}

/// Which packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passes {
    to_pod: bool,
    from_pod: bool,
}

impl Pair {
    async fn connected(tools: Tools) -> Result<Self> {
        // It puts itself into the background.
        tools.run(&["httpd", "-p", &PORT.to_string(), "-h", "/tmp"]).await?;
        let pair = Self { tools };
        pair.expect(Passes { to_pod: true, from_pod: true }).await?;
        Ok(pair)
    }

    /// A handshake needs both ways; half of one tells which way is open.
    async fn expect(&self, passes: Passes) -> Result<()> {
        // On a new port each time: the kernel waits for the other half of a handshake for a minute.
        let listener = TcpListener::bind((HOST_ADDRESS, 0)).await.context("cannot listen on the bridge")?;
        let port = listener.local_addr()?.port();
        let from_pod = calls(
            async || Ok(std::fs::read_to_string("/proc/net/tcp")?),
            port,
            async || {
                let (host, port) = (HOST_ADDRESS.to_string(), port.to_string());
                let said = self.tools.ask(&["nc", "-w", "3", &host, &port, "-e", "true"]).await?;
                Ok(said.ok)
            },
        )
        .await?;
        let to_pod = calls(
            async || self.tools.run(&["cat", "/proc/net/tcp", "/proc/net/tcp6"]).await,
            PORT,
            async || connects(self.tools.address, PORT).await,
        )
        .await?;
        let both = passes.to_pod && passes.from_pod;
        ensure!(
            from_pod.connected == both && to_pod.connected == both,
            "{passes:?}: {from_pod:?}, {to_pod:?}"
        );
        let arrived = Passes {
            from_pod: from_pod.connected || from_pod.half_open,
            to_pod: to_pod.connected || to_pod.half_open,
        };
        ensure!(arrived == passes, "expected {passes:?}, found {arrived:?}");
        Ok(())
    }
}

/// What became of an attempt to connect.
#[derive(Clone, Copy, Debug)]
struct Call {
    connected: bool,
    /// The first packet arrived, the answer did not.
    half_open: bool,
}

/// Connects, and meanwhile looks at the sockets of the side that is called.
async fn calls(
    sockets: impl AsyncFn() -> Result<String>,
    port: u16,
    connect: impl AsyncFnOnce() -> Result<bool>,
) -> Result<Call> {
    let mut connecting = std::pin::pin!(connect());
    let mut half_open = false;
    loop {
        tokio::select! {
            connected = &mut connecting => return Ok(Call { connected: connected?, half_open }),
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                half_open |= is_half_open(&sockets().await?, port);
            }
        }
    }
}

async fn connects(host: Ipv4Addr, port: u16) -> Result<bool> {
    Ok(matches!(tokio::time::timeout(ATTEMPT, TcpStream::connect((host, port))).await, Ok(Ok(_))))
}

/// Whether /proc/net/tcp lists a connection to this port in state SYN_RECV (3).
fn is_half_open(sockets: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    sockets.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&port) && fields.nth(1) == Some("03")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_handshake_is_told_from_none_and_from_a_whole_one() {
        let table = |state: &str| {
            format!(
                "  sl  local_address rem_address   st tx_queue\n   0: 0100001F:1B58 0201F40A:C001 {state} 00000000:00000000\n"
            )
        };
        assert!(is_half_open(&table("03"), 7000));
        assert!(!is_half_open(&table("01"), 7000));
        assert!(!is_half_open(&table("0A"), 7000));
        assert!(!is_half_open(&table("03"), 7001));
    }
}
