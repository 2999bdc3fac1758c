//! Whether a copy can be restored, and where.

use super::manifest::Manifest;
use crate::version::Version;

/// etcd reserves two files of its log, and a snapshot file is small.
const LOG_BYTES: u64 = 192 << 20;

/// Data of a later minor version has a format that an older etcd does not know.
pub fn by(manifest: &Manifest, version: Version) -> Result<(), String> {
    let written = Version::parse(&manifest.etcd_version).ok_or_else(|| {
        format!(
            "copy {} was taken of etcd {:?}, which is not a version: use another copy",
            manifest.name, manifest.etcd_version
        )
    })?;
    if written.minor() > version.minor() {
        return Err(format!(
            "copy {} was taken of etcd {written}, which etcd {version} cannot read: set the version of the new cluster to \
             {written} or later",
            manifest.name
        ));
    }
    Ok(())
}

/// The snapshot and the database that is made from it are on the volume together.
pub fn room(manifest: &Manifest) -> u64 {
    manifest.snapshot.bytes.saturating_mul(2).saturating_add(LOG_BYTES)
}

/// Of a replay of segments with this much content: the etcd that replays and the snapshot that it sends, and then that snapshot and
/// the database that is made from it.
pub fn room_to_replay(manifest: &Manifest, content: u64) -> u64 {
    let database = manifest.snapshot.bytes.saturating_add(content);
    database.saturating_mul(2).saturating_add(2 * LOG_BYTES)
}

/// Whether it is certain: etcd reports no revision of a snapshot.
pub fn has_exactly(manifest: &Manifest, revision: i64) -> bool {
    manifest.revision.lowest == revision && manifest.revision.highest == revision
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::observed::ClusterId;

    fn manifest(change: impl FnOnce(&mut Value)) -> Manifest {
        let mut value: Value =
            serde_json::from_str(include_str!("../../tests/backup/v1/manifest.json")).expect("JSON");
        change(&mut value);
        let name = "20261118T020304Z-0123456789abcdef".parse().expect("a name");
        let layout = crate::backup::layout::Layout::new("prod", ClusterId(0xcdf8_1819_4e3a_8c32));
        Manifest::read(value.to_string().as_bytes(), &name, &layout).expect("it can be read")
    }

    #[test]
    fn data_of_a_newer_minor_version_is_refused_with_the_way_out() {
        let taken_of = |version: &str| manifest(|it| it["etcdVersion"] = version.into());
        let target = Version::new(3, 6, 2);
        for version in ["3.5.21", "3.6.0", "3.6.16"] {
            assert_eq!(by(&taken_of(version), target), Ok(()), "{version}");
        }
        let error = by(&taken_of("3.7.0"), target).expect_err("it is newer");
        assert!(
            error.ends_with(
                "which etcd 3.6.2 cannot read: set the version of the new cluster to 3.7.0 or later"
            )
        );
        assert!(by(&taken_of("4.0.0"), target).is_err());
        assert!(by(&taken_of("latest"), target).is_err());
    }

    #[test]
    fn a_revision_is_exact_only_if_nothing_was_written_meanwhile() {
        let with = |lowest: i64, highest: i64| {
            manifest(|it| it["revision"] = serde_json::json!({"lowest": lowest, "highest": highest}))
        };
        assert!(has_exactly(&with(7, 7), 7));
        assert!(!has_exactly(&with(6, 7), 7) && !has_exactly(&with(7, 8), 7));
    }

    #[test]
    fn room_is_for_the_snapshot_and_the_database_and_never_overflows() {
        let large = manifest(|it| it["snapshot"]["bytes"] = (2_u64 << 30).into());
        assert!(room(&large) > 4 << 30);
        assert!(room_to_replay(&large, 1 << 30) > 6 << 30);
        let largest = manifest(|it| it["snapshot"]["bytes"] = u64::MAX.into());
        assert_eq!((room(&largest), room_to_replay(&largest, 1)), (u64::MAX, u64::MAX));
    }
}
