//! The digest of content, and hashing it on its way.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn of(content: &[u8]) -> Self {
        Self::from_hash(&Sha256::digest(content))
    }

    /// The digits alone, which is what the file of a blob is called.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    fn from_hash(hash: &[u8]) -> Self {
        let mut text = PREFIX.to_owned();
        text.extend(hash.iter().map(|byte| format!("{byte:02x}")));
        Self(text)
    }
}

impl FromStr for Digest {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        let is_hash = digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        ensure!(is_hash, "`{text}` is not a sha256 digest");
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Passes on what is written and hashes it.
pub struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashing<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    /// The digest and the length of all that was written.
    pub fn finish(self) -> (Digest, u64) {
        (Digest::from_hash(&self.hash.finalize()), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hashed_on_its_way_has_the_digest_of_the_whole() {
        let mut hashing = Hashing::new(io::sink());
        hashing.write_all(b"he").expect("a sink takes all");
        hashing.write_all(b"llo").expect("a sink takes all");
        let known = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(hashing.finish(), (Digest::of(b"hello"), 5));
        assert_eq!(Digest::of(b"hello").to_string(), known);
        assert_eq!(known.parse::<Digest>().expect("a digest"), Digest::of(b"hello"));
    }

    #[test]
    fn only_a_sha256_digest_is_one() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let short = format!("sha256:{}", "a".repeat(63));
        for wrong in ["", "latest", "sha256:", "sha512:ab", upper.as_str(), short.as_str()] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
