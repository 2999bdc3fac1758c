//! Where the objects of a copy are: `PATH/CLUSTER-ID/copies/NAME.json` is its manifest, and
//! `PATH/CLUSTER-ID/data/NAME.db[.zst][.age]` its data. `PATH/CLUSTER-ID/chain/REVISION.segment` is a segment of the continuous
//! archive. A cluster that is restored or created again has another ID, so it never continues or overwrites what another one
//! stored.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::manifest::{Compression, Encryption};
use crate::observed::ClusterId;

const MANIFESTS: &str = "copies";
const DATA: &str = "data";
const CHAIN: &str = "chain";
const MANIFEST_SUFFIX: &str = ".json";
const DATA_SUFFIX: &str = ".db";
const SEGMENT_SUFFIX: &str = ".segment";
/// Every revision has as many, so names sort by revision.
const REVISION_DIGITS: usize = 20;
const TIME: &str = "%Y%m%dT%H%M%SZ";
const RANDOM_DIGITS: usize = 16;

/// The name of a copy: when its run started, and a random number. So no two runs use the same objects, and names sort by
/// time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CopyName(String);

impl CopyName {
    pub fn new(started: Timestamp, random: u64) -> Self {
        let time = started.to_zoned(TimeZone::UTC).strftime(TIME);
        Self(format!("{time}-{random:0width$x}", width = RANDOM_DIGITS))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(String);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not the name of a copy, such as 20261118T020000Z-0123456789abcdef", self.0)
    }
}

impl std::error::Error for InvalidName {}

impl TryFrom<String> for CopyName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        let is_name = text.split_once('-').is_some_and(|(time, random)| {
            let shape = time.bytes().zip("00000000T000000Z".bytes());
            let is_time = time.len() == 16
                && shape.clone().all(|(is, like)| is == like || is.is_ascii_digit() && like == b'0');
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            is_time && random.len() == RANDOM_DIGITS && random.bytes().all(is_digit)
        });
        if is_name { Ok(Self(text)) } else { Err(InvalidName(text)) }
    }
}

impl std::str::FromStr for CopyName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        text.to_owned().try_into()
    }
}

impl From<CopyName> for String {
    fn from(name: CopyName) -> Self {
        name.0
    }
}

impl fmt::Display for CopyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The objects of one cluster in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    path: String,
    cluster: ClusterId,
}

impl Layout {
    /// With the path that the user chose, which can be empty.
    pub fn new(path: &str, cluster: ClusterId) -> Self {
        Self { path: path.trim_matches('/').to_owned(), cluster }
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn manifests(&self) -> String {
        self.below(MANIFESTS)
    }

    pub fn data(&self) -> String {
        self.below(DATA)
    }

    pub fn manifest_of(&self, name: &CopyName) -> String {
        format!("{}/{name}{MANIFEST_SUFFIX}", self.manifests())
    }

    /// Of a file of [`data_file`], or one that a manifest names.
    pub fn data_at(&self, file: &str) -> String {
        format!("{}/{file}", self.data())
    }

    pub fn chain(&self) -> String {
        self.below(CHAIN)
    }

    /// Where the segment is that begins with a revision. Two archivers that continue the same chain want the same name, and a
    /// conditional put lets one of them have it.
    pub fn segment_at(&self, first: i64) -> String {
        format!("{}/{first:0REVISION_DIGITS$}{SEGMENT_SUFFIX}", self.chain())
    }

    fn below(&self, folder: &str) -> String {
        let parts = [self.path.as_str(), &self.cluster.to_string(), folder];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }
}

/// The copy that a manifest's file name is for.
pub fn name_in_manifest_file(file: &str) -> Option<CopyName> {
    file.strip_suffix(MANIFEST_SUFFIX)?.parse().ok()
}

/// The copy that a data file belongs to, whatever later versions add to its name.
pub fn name_in_data_file(file: &str) -> Option<CopyName> {
    let (name, rest) = file.split_once(DATA_SUFFIX)?;
    let is_suffix = rest.is_empty() || rest.starts_with('.');
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    (is_suffix && is_plain).then(|| name.parse().ok())?
}

/// The first revision of the segment with this file name.
pub fn first_in_segment_file(file: &str) -> Option<i64> {
    let digits = file.strip_suffix(SEGMENT_SUFFIX)?;
    let is_plain = digits.len() == REVISION_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().ok())?
}

/// The suffixes say how to read it without this program: `age --decrypt | zstd --decompress`.
pub fn data_file(name: &CopyName, compression: Compression, encryption: Encryption) -> String {
    let compressed = match compression {
        Compression::None => "",
        Compression::Zstd => ".zst",
    };
    let encrypted = match encryption {
        Encryption::None => "",
        Encryption::Age => ".age",
    };
    format!("{name}{DATA_SUFFIX}{compressed}{encrypted}")
}

/// The ID of a cluster as etcdctl and the status print it.
pub fn cluster_id(text: &str) -> Option<ClusterId> {
    let id = u64::from_str_radix(text, 16).ok().map(ClusterId)?;
    (id.to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> CopyName {
        CopyName::new("2026-11-18T02:03:04.5Z".parse().expect("a time"), 0xab)
    }

    #[test]
    fn a_copy_is_named_after_its_time_and_a_random_number() {
        assert_eq!(name().as_str(), "20261118T020304Z-00000000000000ab");
        assert_eq!(name().as_str().parse(), Ok(name()));
        for wrong in [
            "",
            "20261118T020304Z",
            "20261118T020304Z-00000000000000AB",
            "20261118T020304Z-ab",
            "2026x118T020304Z-00000000000000ab",
            "../../../x",
            "20261118T020304Z-00000000000000ab/",
        ] {
            assert!(wrong.parse::<CopyName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_have_the_cluster_id_and_files_say_how_to_read_them() {
        let layout = Layout::new("/prod/etcd/", ClusterId(0xcdf8));
        assert_eq!(
            layout.manifest_of(&name()),
            "prod/etcd/cdf8/copies/20261118T020304Z-00000000000000ab.json"
        );
        let file = data_file(&name(), Compression::Zstd, Encryption::Age);
        assert_eq!(layout.data_at(&file), "prod/etcd/cdf8/data/20261118T020304Z-00000000000000ab.db.zst.age");
        assert_eq!(Layout::new("", ClusterId(1)).manifests(), "1/copies");
    }

    #[test]
    fn a_file_tells_which_copy_it_belongs_to() {
        for compression in [Compression::None, Compression::Zstd] {
            for encryption in [Encryption::None, Encryption::Age] {
                let file = data_file(&name(), compression, encryption);
                assert_eq!(name_in_data_file(&file), Some(name()), "{file}");
            }
        }
        assert_eq!(name_in_manifest_file(&format!("{}.json", name())), Some(name()));
        for foreign in ["photo.jpg", "x.db", &format!("{}.dbx", name()), &format!("{}.db.a/b", name())] {
            assert_eq!(name_in_data_file(foreign), None, "{foreign}");
        }
        assert_eq!(name_in_manifest_file("index.json"), None);
    }

    #[test]
    fn segments_sort_by_their_first_revision() {
        let layout = Layout::new("prod", ClusterId(1));
        let firsts = [2, 10, 1204, i64::MAX];
        let paths = firsts.map(|first| layout.segment_at(first));
        assert!(paths.is_sorted(), "{paths:?}");
        assert_eq!(paths[2], "prod/1/chain/00000000000000001204.segment");
        for (path, first) in paths.iter().zip(firsts) {
            let file = path.rsplit('/').next().expect("a file");
            assert_eq!(first_in_segment_file(file), Some(first));
        }
        for foreign in
            ["1204.segment", "+0000000000000001204.segment", "99999999999999999999.segment", "position.json"]
        {
            assert_eq!(first_in_segment_file(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_cluster_id_is_written_as_etcdctl_prints_it() {
        assert_eq!(cluster_id("cdf818194e3a8c32"), Some(ClusterId(0xcdf8_1819_4e3a_8c32)));
        for wrong in ["", "CDF8", "0x1", "01", "+1", "kv"] {
            assert_eq!(cluster_id(wrong), None, "{wrong}");
        }
    }
}
