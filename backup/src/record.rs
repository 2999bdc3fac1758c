//! What a segment has behind its head: one record for each revision, each behind its length, in the encoding of Protocol Buffers.

use std::io::{self, Read};

use age::x25519::Recipient;
use bytes::{Buf, Bytes};
use etcd_operator_core::backup::manifest::Compression;
use prost::Message;
use sha2::{Digest, Sha256};

use crate::decode::Identities;
use crate::encode::Packed;
use crate::snapshot::hex;
use crate::watch::{Event, Pair};

/// The tag of [`Record::changes`].
const CHANGES: u32 = 3;
/// What a segment of ours has at most, with room for later versions.
const MAX_CONTENT_BYTES: u64 = 64 << 20;

#[derive(Clone, PartialEq, Message)]
pub struct Record {
    /// 0 if it has leases only.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// When the archiver received it, in milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub received: i64,
    #[prost(message, repeated, tag = "3")]
    pub changes: Vec<Change>,
    #[prost(message, repeated, tag = "4")]
    pub leases: Vec<Lease>,
}

/// Of one key. No revision changes a key twice.
#[derive(Clone, PartialEq, Message)]
pub struct Change {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(bool, tag = "3")]
    pub is_delete: bool,
    #[prost(int64, tag = "4")]
    pub lease: i64,
    #[prost(int64, tag = "5")]
    pub version: i64,
    #[prost(int64, tag = "6")]
    pub create_revision: i64,
}

/// A lease that keys of the segment are attached to.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Lease {
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// As it was granted, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
}

impl Change {
    /// None if it is neither a put nor a delete.
    pub fn of(event: Event) -> Option<(i64, Self)> {
        let Pair { key, create_revision, mod_revision, version, value, lease } = event.pair?;
        let is_delete = match event.kind {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some((mod_revision, Self { key, value, is_delete, lease, version, create_revision }))
    }
}

/// A revision while its events arrive.
pub struct Revision {
    pub revision: i64,
    received: i64,
    changes: Vec<u8>,
    leases: Vec<i64>,
    tip: Sha256,
}

impl Revision {
    pub fn new(revision: i64, received: i64) -> Self {
        let mut tip = Sha256::new();
        tip.update(revision.to_be_bytes());
        Self { revision, received, changes: Vec::new(), leases: Vec::new(), tip }
    }

    pub fn add(&mut self, change: &Change) {
        prost::encoding::message::encode(CHANGES, change, &mut self.changes);
        // Without the value: what identifies a revision is not encrypted.
        self.tip.update((change.key.len() as u64).to_be_bytes());
        self.tip.update(&change.key);
        for number in [i64::from(change.is_delete), change.lease, change.version, change.create_revision] {
            self.tip.update(number.to_be_bytes());
        }
        if change.lease != 0 && self.leases.last() != Some(&change.lease) {
            self.leases.push(change.lease);
        }
    }

    pub fn bytes(&self) -> usize {
        self.changes.len()
    }

    pub fn received(&self) -> i64 {
        self.received
    }

    pub fn leases(&self) -> &[i64] {
        &self.leases
    }

    pub fn tip(&self) -> String {
        hex(&self.tip.clone().finalize())
    }

    /// Appends it as a record.
    pub fn write(&self, content: &mut Vec<u8>) {
        let head = Record { revision: self.revision, received: self.received, ..Record::default() };
        let length = head.encoded_len() + self.changes.len();
        prost::encoding::encode_varint(length as u64, content);
        head.encode(content).expect("a vector has room");
        content.extend_from_slice(&self.changes);
    }
}

/// Appends a record with leases.
pub fn write_leases(leases: Vec<Lease>, content: &mut Vec<u8>) {
    let record = Record { leases, ..Record::default() };
    record.encode_length_delimited(content).expect("a vector has room");
}

/// Compressed and encrypted, as it is stored.
pub fn pack(content: &[u8], compression: Compression, recipients: &[Recipient]) -> io::Result<Vec<u8>> {
    let mut packed = Packed::new(compression, recipients, Vec::with_capacity(content.len()))?;
    io::Write::write_all(&mut packed, content)?;
    packed.finish()
}

/// The opposite of [`pack`].
pub fn unpack(body: &[u8], compression: Compression, identities: Option<&Identities>) -> io::Result<Bytes> {
    let opened: Box<dyn Read> = match identities {
        Some(identities) => {
            let decryptor = age::Decryptor::new(body).map_err(io::Error::other)?;
            let all = identities.iter().map(|it| &**it as &dyn age::Identity);
            Box::new(decryptor.decrypt(all).map_err(io::Error::other)?)
        }
        None => Box::new(body),
    };
    let plain: Box<dyn Read> = match compression {
        Compression::None => opened,
        Compression::Zstd => Box::new(zstd::Decoder::new(opened)?),
    };
    let mut content = Vec::new();
    plain.take(MAX_CONTENT_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_CONTENT_BYTES {
        return Err(io::Error::other("it has more content than any segment"));
    }
    Ok(content.into())
}

/// All records of a content.
pub fn records(mut content: Bytes) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    while content.has_remaining() {
        records.push(Record::decode_length_delimited(&mut content).map_err(io::Error::other)?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, lease: i64) -> Change {
        let (key, value) = (key.as_bytes().into(), Bytes::from_static(b"value"));
        Change { key, value, lease, version: 2, create_revision: 7, is_delete: false }
    }

    fn delete(key: &'static str) -> Change {
        Change { key: key.as_bytes().into(), is_delete: true, ..Change::default() }
    }

    fn revision(changes: &[Change]) -> Revision {
        let mut revision = Revision::new(9, 1_000);
        changes.iter().for_each(|change| revision.add(change));
        revision
    }

    /// What is stored can be read by every later version: these bytes never change.
    #[test]
    fn a_record_has_the_encoding_of_the_first_version() {
        let mut content = Vec::new();
        revision(&[put("a", 3), delete("b")]).write(&mut content);
        write_leases(vec![Lease { id: 3, ttl: 60 }], &mut content);
        let expected = "1e080910e8071a100a0161120576616c75652003280230071a050a016218010622040803103c";
        assert_eq!(hex(&content), expected);
    }

    #[test]
    fn records_come_back_packed_in_every_way() {
        let identity = age::x25519::Identity::generate();
        let recipients = [identity.to_public()];
        let identities: Identities = vec![Box::new(identity)];
        let mut content = Vec::new();
        revision(&[put("a", 3), delete("b")]).write(&mut content);
        write_leases(vec![Lease { id: 3, ttl: 60 }], &mut content);
        for compression in [Compression::None, Compression::Zstd] {
            for (recipients, identities) in [(&[][..], None), (&recipients[..], Some(&identities))] {
                let body = pack(&content, compression, recipients).expect("it is packed");
                let unpacked = unpack(&body, compression, identities).expect("it is unpacked");
                let found = records(unpacked).expect("records");
                assert_eq!(found[0].changes, [put("a", 3), delete("b")]);
                assert_eq!((found[0].revision, found[0].received), (9, 1_000));
                assert_eq!(found[1].leases, [Lease { id: 3, ttl: 60 }]);
            }
        }
    }

    #[test]
    fn revisions_with_different_changes_have_different_tips() {
        let all = [
            vec![put("a", 0)],
            vec![put("b", 0)],
            vec![put("a", 1)],
            vec![delete("a")],
            vec![put("a", 0), delete("b")],
        ];
        let tips: std::collections::BTreeSet<_> = all.iter().map(|changes| revision(changes).tip()).collect();
        assert_eq!(tips.len(), all.len());
        let other_value = Change { value: Bytes::from_static(b"secret"), ..put("a", 0) };
        assert_eq!(revision(&[other_value]).tip(), revision(&[put("a", 0)]).tip(), "values are not in it");
    }
}
