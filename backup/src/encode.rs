//! From what etcd sends to what is stored: check of the hash, compression, encryption, parts of equal size.
//!
//! Everything here computes and blocks, on a thread of its own. Memory does not depend on the size of the database: both
//! channels are bounded, and the slower side holds the other one back.

use std::io::{self, Write};

use age::x25519::Recipient;
use bytes::Bytes;
use etcd_operator_core::backup::manifest::{Compression, Snapshot};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::snapshot::{TrailingHash, hex};

/// The smallest that S3 accepts, because up to four of them are in memory. It accepts 10,000, which is enough for 48 GiB.
pub const PART_BYTES: usize = 5 << 20;
/// zstd's own default; its window of 2 MiB is what a reader needs, too.
const LEVEL: i32 = 3;

/// What was stored, and what etcd sent.
pub struct Encoded {
    pub snapshot: Snapshot,
    pub bytes: u64,
    pub sha256: String,
}

/// Ends early, with whatever it has, if nobody receives the parts any more.
pub fn encode(
    mut chunks: mpsc::Receiver<Bytes>,
    parts: mpsc::Sender<Bytes>,
    compression: Compression,
    recipients: &[Recipient],
) -> Result<Encoded, Error> {
    let failed = |source| Error::Output { doing: "compress and encrypt the snapshot".into(), source };
    let mut hash = TrailingHash::default();
    let mut writer = Packed::new(compression, recipients, Parts::new(parts)).map_err(failed)?;
    while let Some(chunk) = chunks.blocking_recv() {
        hash.update(&chunk);
        writer.write_all(&chunk).map_err(failed)?;
    }
    let Some(snapshot) = hash.finish() else {
        return Err(Error::Etcd {
            doing: "take a snapshot",
            words: "the data does not match the hash that etcd sends at its end: start the run again".into(),
        });
    };
    let (bytes, sha256) = writer.finish().and_then(Parts::finish).map_err(failed)?;
    Ok(Encoded { snapshot, bytes, sha256 })
}

/// The public keys of age.
pub fn recipients(texts: &[String]) -> Result<Vec<Recipient>, Error> {
    let parsed = texts.iter().map(|text| {
        text.parse().map_err(|error| {
            let example = "give public keys of age, such as `age-keygen` prints them (age1...)";
            Error::Configuration(format!("recipients has {text:?}: {error}: {example}"))
        })
    });
    parsed.collect()
}

/// Compresses and then encrypts what is written.
pub enum Packed<W: Write> {
    Plain(Sealed<W>),
    Zstd(zstd::Encoder<'static, Sealed<W>>),
}

pub enum Sealed<W: Write> {
    Plain(W),
    Age(age::stream::StreamWriter<W>),
}

impl<W: Write> Packed<W> {
    pub fn new(compression: Compression, recipients: &[Recipient], to: W) -> io::Result<Self> {
        let sealed = match recipients {
            [] => Sealed::Plain(to),
            some => {
                let some = some.iter().map(|it| it as &dyn age::Recipient);
                let encryptor = age::Encryptor::with_recipients(some).map_err(io::Error::other)?;
                Sealed::Age(encryptor.wrap_output(to)?)
            }
        };
        Ok(match compression {
            Compression::None => Self::Plain(sealed),
            Compression::Zstd => Self::Zstd(zstd::Encoder::new(sealed, LEVEL)?),
        })
    }

    pub fn finish(self) -> io::Result<W> {
        let sealed = match self {
            Self::Plain(sealed) => sealed,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        match sealed {
            Sealed::Plain(to) => Ok(to),
            Sealed::Age(writer) => writer.finish(),
        }
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.write(data),
            Self::Zstd(writer) => writer.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Write for Sealed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(writer) => writer.write(data),
            Self::Age(writer) => writer.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts what is written into parts and sends them.
struct Parts {
    part: Vec<u8>,
    hash: Sha256,
    bytes: u64,
    to: mpsc::Sender<Bytes>,
}

impl Parts {
    fn new(to: mpsc::Sender<Bytes>) -> Self {
        Self { part: Vec::new(), hash: Sha256::new(), bytes: 0, to }
    }

    fn send(&mut self) -> io::Result<()> {
        let part = Bytes::from(std::mem::take(&mut self.part));
        self.to.blocking_send(part).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> io::Result<(u64, String)> {
        if !self.part.is_empty() {
            self.send()?;
        }
        Ok((self.bytes, hex(&self.hash.finalize())))
    }
}

impl Write for Parts {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.part.capacity() == 0 {
            self.part.reserve_exact(PART_BYTES);
        }
        let taken = &data[..data.len().min(PART_BYTES - self.part.len())];
        self.part.extend_from_slice(taken);
        self.hash.update(taken);
        self.bytes += taken.len() as u64;
        if self.part.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
