//! A way to the peer port of a member on which one other member can be turned away.

use std::io;
use std::net::{IpAddr, SocketAddr};

use etcd_operator_core::etcd_config::PEER_PORT;
use etcd_operator_core::observed::MemberId;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub struct Relay {
    turned_away: watch::Sender<Option<MemberId>>,
    accepting: JoinHandle<()>,
}

impl Relay {
    pub async fn open(at: IpAddr, to: IpAddr) -> Self {
        let listener = TcpListener::bind((at, PEER_PORT)).await.expect("nobody else listens there");
        let (turned_away, watching) = watch::channel(None);
        let accepting = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                calls.spawn(pass_on(caller, SocketAddr::new(to, PEER_PORT), watching.clone()));
            }
        });
        Self { turned_away, accepting }
    }

    /// Ends all connections, of which only this member cannot have another.
    pub fn turn_away(&self, member: MemberId) {
        self.turned_away.send_replace(Some(member));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The address does not tell who calls, because all members are on one machine. What they ask each other for does,
/// whenever it is about the log.
async fn pass_on(
    mut caller: TcpStream,
    to: SocketAddr,
    mut turned_away: watch::Receiver<Option<MemberId>>,
) -> io::Result<()> {
    let unwanted = turned_away.borrow_and_update().map(|member| format!("X-Server-From: {member}\r\n"));
    let is_unwanted = |said: &[u8]| {
        unwanted.as_ref().is_some_and(|it| said.windows(it.len()).any(|part| part == it.as_bytes()))
    };
    let mut member = TcpStream::connect(to).await?;
    let (mut from_caller, mut to_caller) = caller.split();
    let (mut from_member, mut to_member) = member.split();
    let asking = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from_caller.read(&mut buffer).await?;
            let said = &buffer[..count];
            if said.is_empty() || is_unwanted(said) {
                return Ok(());
            }
            to_member.write_all(said).await?;
        }
    };
    tokio::select! {
        asked = asking => asked,
        answered = copy(&mut from_member, &mut to_caller) => answered.map(drop),
        _ = turned_away.changed() => Ok(()),
    }
}
