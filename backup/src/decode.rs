//! From what is stored to what etcd sent, with a check of every hash. On a thread of its own, like [`crate::encode`].

use std::io::{self, Read, Write};

use age::{DecryptError, Decryptor, Identity, IdentityFile};
use bytes::{Buf, Bytes};
use etcd_operator_core::backup::Word;
use etcd_operator_core::backup::manifest::{Compression, Encryption, Manifest};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::snapshot::{TrailingHash, hex};

const CHUNK_BYTES: usize = 64 << 10;
/// Four times the window that [`crate::encode`] uses: a copy that needs more memory is not ours.
const MAX_WINDOW_LOG: u32 = 23;

pub type Identities = Vec<Box<dyn Identity + Send + Sync>>;

/// The private keys in a file, as `age-keygen` writes it.
pub fn identities(file: &std::path::Path) -> Result<Identities, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        let shown = file.display();
        Error::Configuration(format!(
            "cannot read the identity in {shown}: {error}: give a file as `age-keygen` writes it"
        ))
    };
    let read = IdentityFile::from_file(file.display().to_string()).map_err(|error| wrong(&error))?;
    read.into_identities().map_err(|error| wrong(&error))
}

/// Which steps lead back to the snapshot. Decided from the manifest, before anything is read.
pub enum Content {
    Readable {
        compression: Compression,
        identities: Option<Identities>,
    },
    /// Encrypted, and there is no identity: only the stored bytes can be checked.
    Sealed,
}

impl Content {
    /// With identities, a copy that is not encrypted is refused: those who can write to the store could have planted it.
    pub fn of(manifest: &Manifest, identities: Option<Identities>) -> Result<Self, Error> {
        let name = &manifest.name;
        let unknown = |what: &str, word: &str| {
            Error::Unusable(format!(
                "copy {name} has the {what} {word}, which this version cannot read: use the version that took it"
            ))
        };
        match (&manifest.data.encryption, &identities) {
            (Word::Unknown(word), _) => return Err(unknown("encryption", word)),
            (Word::Known(Encryption::None), Some(_)) => {
                return Err(Error::Unusable(format!(
                    "copy {name} is not encrypted, but an identity was given, so an encrypted one is expected: \
                     if you trust the store, start the run without the identity"
                )));
            }
            (Word::Known(Encryption::Age), None) => return Ok(Self::Sealed),
            (Word::Known(Encryption::Age), Some(_)) | (Word::Known(Encryption::None), None) => {}
        }
        match &manifest.data.compression {
            Word::Known(compression) => Ok(Self::Readable { compression: *compression, identities }),
            Word::Unknown(word) => Err(unknown("compression", word)),
        }
    }
}

/// Writes the content to `output`. Everything is received, even if it turns out to be wrong: damage to the stored bytes
/// explains whatever follows from it.
pub fn decode(
    chunks: mpsc::Receiver<Bytes>,
    manifest: &Manifest,
    content: Content,
    output: &mut impl Write,
) -> Result<(), Error> {
    let mut stored = Stored { chunks, current: Bytes::new(), hash: Sha256::new(), bytes: 0 };
    let written = match content {
        Content::Readable { compression, identities } => {
            write_content(&mut stored, manifest, compression, identities, output)
        }
        Content::Sealed => Ok(()),
    };
    if let Err(error @ Error::Output { .. }) = written {
        return Err(error);
    }
    io::copy(&mut stored, &mut io::sink()).expect("a channel does not fail");
    let (name, data) = (&manifest.name, &manifest.data);
    if stored.bytes != data.bytes {
        let (found, expected) = (stored.bytes, data.bytes);
        return Err(Error::Damaged(format!(
            "copy {name} is damaged: the store has {found} bytes of {expected}: use another copy"
        )));
    }
    let found = hex(&stored.hash.finalize());
    if found != data.sha256 {
        return Err(Error::Damaged(format!(
            "copy {name} is damaged: the SHA-256 of what the store has is {found}, not {}: use another copy",
            data.sha256
        )));
    }
    written
}

fn write_content(
    stored: &mut Stored,
    manifest: &Manifest,
    compression: Compression,
    identities: Option<Identities>,
    output: &mut impl Write,
) -> Result<(), Error> {
    let mut reader = opened(stored, manifest, identities)?;
    let mut hash = TrailingHash::default();
    match compression {
        Compression::None => copy(&mut reader, &mut hash, manifest, output)?,
        Compression::Zstd => {
            let failed = |error: io::Error| inconsistent(manifest, &error.to_string());
            let mut decoder = zstd::Decoder::new(reader).map_err(failed)?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(failed)?;
            copy(&mut decoder, &mut hash, manifest, output)?;
        }
    }
    match hash.finish() {
        Some(found) if found == manifest.snapshot => Ok(()),
        Some(_) => Err(inconsistent(manifest, "it is another snapshot than that of the manifest")),
        None => Err(inconsistent(manifest, "it does not end with the hash that etcd sends")),
    }
}

fn opened<'a>(
    stored: &'a mut Stored,
    manifest: &Manifest,
    identities: Option<Identities>,
) -> Result<Box<dyn Read + 'a>, Error> {
    let Some(identities) = identities else {
        return Ok(Box::new(stored));
    };
    let name = &manifest.name;
    let failed = |error: DecryptError| {
        if !matches!(error, DecryptError::NoMatchingKeys) {
            return inconsistent(manifest, &error.to_string());
        }
        let recipients = manifest.data.recipients.join(", ");
        Error::Unusable(format!(
            "copy {name} is encrypted for other keys than that of the identity: give the identity of one of {recipients}"
        ))
    };
    let decryptor = Decryptor::new(stored).map_err(failed)?;
    let reader = decryptor.decrypt(identities.iter().map(|it| &**it as &dyn Identity)).map_err(failed)?;
    Ok(Box::new(reader))
}

fn copy(
    reader: &mut impl Read,
    hash: &mut TrailingHash,
    manifest: &Manifest,
    output: &mut impl Write,
) -> Result<(), Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = reader.read(&mut chunk).map_err(|error| inconsistent(manifest, &error.to_string()))?;
        if length == 0 {
            return Ok(());
        }
        hash.update(&chunk[..length]);
        let failed = |source| Error::Output { doing: "write the snapshot".into(), source };
        output.write_all(&chunk[..length]).map_err(failed)?;
    }
}

/// The stored bytes are those that the manifest names, or not: the caller finds out.
fn inconsistent(manifest: &Manifest, cause: &str) -> Error {
    Error::Damaged(format!("copy {} cannot be read: {cause}: use another copy", manifest.name))
}

/// What arrives from the store, hashed on its way.
struct Stored {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
    hash: Sha256,
    bytes: u64,
}

impl Read for Stored {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => {
                    self.hash.update(&chunk);
                    self.bytes += chunk.len() as u64;
                    self.current = chunk;
                }
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
