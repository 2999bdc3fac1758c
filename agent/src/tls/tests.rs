use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[path = "../../tests/support/certificates.rs"]
mod certificates;

pub use certificates::Authority;

/// The first name in every peer certificate of the cluster.
pub const PEERS: &str = "kv-peer.ns.svc.cluster.local";

/// A directory with the certificates of a member, which ends with this value.
pub struct Member {
    tls_dir: PathBuf,
}

impl Member {
    pub fn new(authority: &Authority, name: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let member = Self { tls_dir: std::env::temp_dir().join(format!("etcd-agent-tls-{process}-{count}")) };
        authority.issue(&member.tls_dir, Purpose::Peer, &[name.into(), format!("kv-0.{name}")]);
        member
    }

    pub fn file(&self, key: &str) -> String {
        tls_file(&self.tls_dir.display().to_string(), Purpose::Peer, key)
    }

    pub fn tls(&self) -> Result<Tls, Error> {
        Tls::read(&self.tls_dir.display().to_string(), Purpose::Peer, PEERS)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.tls_dir);
    }
}

#[test]
fn what_cannot_be_used_is_named_and_its_content_is_not() {
    let authority = Authority::generate();
    let error = |file: &str, content: Option<&str>| {
        let member = Member::new(&authority, PEERS);
        match content {
            Some(content) => fs::write(member.file(file), content).expect("it was there"),
            None => fs::remove_file(member.file(file)).expect("it was there"),
        }
        let error = member.tls().err().expect("it cannot be used");
        crate::log::chain(&error).replace(&member.tls_dir.display().to_string(), "DIR")
    };
    assert_eq!(
        error(CERTIFICATE_KEY, None),
        "cannot read DIR/peer/tls.crt: No such file or directory (os error 2)"
    );
    let malformed = "-----BEGIN PRIVATE KEY-----bm90IGEga2V5";
    for (file, content) in [(PRIVATE_KEY, malformed), (CERTIFICATE_KEY, malformed), (AUTHORITY_KEY, "")] {
        let expected = format!("DIR/peer/{file} is not in PEM format or lacks what its name promises");
        assert_eq!(error(file, Some(content)), expected);
    }
    let other_key = fs::read_to_string(Member::new(&authority, PEERS).file(PRIVATE_KEY)).expect("a key");
    assert_eq!(
        error(PRIVATE_KEY, Some(&other_key)),
        "cannot use DIR/peer/tls.crt: keys may not be consistent: KeyMismatch"
    );
}

#[test]
fn renewed_files_are_used_the_next_time() {
    let authority = Authority::generate();
    let member = Member::new(&authority, PEERS);
    fs::remove_file(member.file(AUTHORITY_KEY)).expect("it was there");
    assert!(member.tls().is_err());
    authority.issue(&member.tls_dir, Purpose::Peer, &[PEERS.into()]);
    assert!(member.tls().is_ok());
}
