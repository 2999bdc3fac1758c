//! The hash at the end of a snapshot, checked while the snapshot passes by.

use etcd_operator_core::backup::manifest::Snapshot;
use sha2::{Digest, Sha256};

const HASH_BYTES: usize = 32;

/// etcd ends a snapshot with the SHA-256 of everything before it.
#[derive(Default)]
pub struct TrailingHash {
    hash: Sha256,
    /// The last bytes so far, which are the hash if nothing follows.
    tail: Vec<u8>,
    bytes: u64,
}

impl TrailingHash {
    pub fn update(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        let hashed = (self.tail.len() + chunk.len()).saturating_sub(HASH_BYTES);
        let from_tail = hashed.min(self.tail.len());
        self.hash.update(&self.tail[..from_tail]);
        self.hash.update(&chunk[..hashed - from_tail]);
        self.tail.drain(..from_tail);
        self.tail.extend_from_slice(&chunk[hashed - from_tail..]);
    }

    /// None if what passed by is not a complete snapshot.
    pub fn finish(self) -> Option<Snapshot> {
        let hash = self.hash.finalize();
        (hash.as_slice() == self.tail).then(|| Snapshot { bytes: self.bytes, sha256: hex(&hash) })
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(bytes: usize) -> Vec<u8> {
        let mut data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let hash = Sha256::digest(&data);
        data.extend_from_slice(&hash);
        data
    }

    fn check(data: &[u8], chunk: usize) -> Option<Snapshot> {
        let mut hash = TrailingHash::default();
        data.chunks(chunk).for_each(|chunk| hash.update(chunk));
        hash.finish()
    }

    #[test]
    fn the_hash_is_found_however_the_stream_is_cut() {
        let data = snapshot(1000);
        for chunk in [1, 7, 31, 32, 33, 64, 999, 1000, 1001, 5000] {
            let found = check(&data, chunk).unwrap_or_else(|| panic!("in chunks of {chunk}"));
            assert_eq!((found.bytes, found.sha256), (1032, hex(&data[1000..])));
        }
    }

    #[test]
    fn a_snapshot_that_is_cut_changed_or_empty_is_not_complete() {
        let data = snapshot(1000);
        assert_eq!(check(&data[..1031], 64), None);
        assert_eq!(check(&data[1..], 64), None);
        assert_eq!(check(&[], 64), None);
        for at in [0, 500, 1000, 1031] {
            let mut changed = data.clone();
            changed[at] ^= 1;
            assert_eq!(check(&changed, 64), None, "at {at}");
        }
    }
}
