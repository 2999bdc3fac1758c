//! What a request asks for.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::image::{Digest, Extent, Name};

/// The places of the registry's API that exist here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `/v2/`: whether this is a registry at all.
    Api,
    Content(Kind, Wanted),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Manifest,
    Blob,
}

/// Something in a repository, of that registry which the image's name says or, without one, of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub host: Option<String>,
    pub repository: String,
    pub reference: Reference,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Tag(String),
    Digest(Digest),
}

impl Asked {
    pub fn parse(path: &str, query: Option<&str>) -> Result<Self> {
        if matches!(path, "/v2" | "/v2/") {
            return Ok(Self::Api);
        }
        let parts = path.strip_prefix("/v2/").and_then(|rest| {
            let (rest, reference) = rest.rsplit_once('/')?;
            let (repository, kind) = rest.rsplit_once('/')?;
            Some((repository, kind, reference))
        });
        let (repository, kind, reference) =
            parts.context("only /v2/REPOSITORY/manifests and /blobs exist")?;
        let wanted = Wanted {
            host: query.and_then(upstream_host),
            repository: repository.to_owned(),
            reference: reference.parse()?,
        };
        match (kind, &wanted.reference) {
            ("manifests", _) => Ok(Self::Content(Kind::Manifest, wanted)),
            ("blobs", Reference::Digest(_)) => Ok(Self::Content(Kind::Blob, wanted)),
            ("blobs", Reference::Tag(_)) => bail!("`{reference}` is not a digest"),
            _ => bail!("only manifests and blobs exist, not {kind}"),
        }
    }
}

/// From containerd's `ns=HOST`. Of a host, only the colon before its port is ever escaped.
fn upstream_host(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("ns="))?;
    Some(value.replace("%3A", ":").replace("%3a", ":"))
}

impl Wanted {
    pub fn is_of(&self, name: &Name) -> bool {
        self.repository == name.repository() && self.host.as_ref().is_none_or(|host| host == name.host())
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}/")?;
        }
        match &self.reference {
            Reference::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Reference::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

impl FromStr for Reference {
    type Err = anyhow::Error;

    /// A digest has a colon, which a tag cannot have.
    fn from_str(text: &str) -> Result<Self> {
        if text.contains(':') { text.parse().map(Self::Digest) } else { Ok(Self::Tag(text.to_owned())) }
    }
}

/// One range of bytes; several in one request are not understood, and the whole is sent instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

impl Range {
    /// `bytes=0-99`, `bytes=100-` or `bytes=-50`
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
        match (first.is_empty(), last) {
            (true, last) => last.map(Self::Last),
            (false, last) => {
                let first = first.parse().ok()?;
                last.is_none_or(|last| first <= last).then_some(Self::From { first, last })
            }
        }
    }

    /// The part of something that long; none if the range lies outside.
    pub fn of(self, size: u64) -> Option<Extent> {
        let (offset, end) = match self {
            Self::From { first, last } => (first, last.map_or(size, |last| last.saturating_add(1).min(size))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (offset < end).then(|| Extent { offset, size: end - offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn a_path_and_the_name_of_the_upstream_say_what_is_wanted() {
        let asked = Asked::parse("/v2/a/b/operator/manifests/dev", Some("x=1&ns=registry.example%3A5000"));
        let Ok(Asked::Content(Kind::Manifest, wanted)) = asked else { panic!("{asked:?}") };
        assert_eq!(wanted.to_string(), "registry.example:5000/a/b/operator:dev");
        assert!(wanted.is_of(&"registry.example:5000/a/b/operator:other".parse().expect("a name")));
        assert!(!wanted.is_of(&"registry.example/a/b/operator:dev".parse().expect("a name")));

        let asked = Asked::parse(&format!("/v2/coreos/etcd/blobs/{DIGEST}"), None);
        let Ok(Asked::Content(Kind::Blob, wanted)) = asked else { panic!("{asked:?}") };
        assert_eq!(wanted.to_string(), format!("coreos/etcd@{DIGEST}"));
        assert!(wanted.is_of(&"quay.io/coreos/etcd:v3.6.14".parse().expect("a name")));
    }

    #[test]
    fn nothing_else_is_understood() {
        for path in
            ["/", "/v1/x", "/v2/x", "/v2/x/tags/list", "/v2/x/blobs/latest", "/v2/x/manifests/sha256:1"]
        {
            assert!(Asked::parse(path, None).is_err(), "{path}");
        }
    }

    #[test]
    fn a_range_is_cut_to_what_there_is() {
        let part =
            |text: &str| Range::parse(text).and_then(|range| range.of(100)).map(|p| (p.offset, p.size));
        assert_eq!(part("bytes=0-0"), Some((0, 1)));
        assert_eq!(part("bytes=10-19"), Some((10, 10)));
        assert_eq!(part("bytes=90-"), Some((90, 10)));
        assert_eq!(part("bytes=90-18446744073709551615"), Some((90, 10)));
        assert_eq!(part("bytes=-30"), Some((70, 30)));
        assert_eq!(part("bytes=-300"), Some((0, 100)));
        assert_eq!(part("bytes=100-"), None);
        assert_eq!(part("bytes=-0"), None);
        for wrong in ["", "0-1", "bytes=", "bytes=-", "bytes=5-4", "bytes=0-1,3-4", "lines=0-1"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }
}
