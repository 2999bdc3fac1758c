//! `core/tests/backup/vN` has what format version N writes, and it is read for ever; here is what else is in a store.

use super::*;
use crate::observed::ClusterId;

const RECORDED: &str = include_str!("../../../tests/backup/v1/manifest.json");

fn layout() -> Layout {
    Layout::new("prod", ClusterId(0xcdf8_1819_4e3a_8c32))
}

fn name() -> CopyName {
    "20261118T020304Z-0123456789abcdef".parse().expect("a name")
}

fn read(change: impl FnOnce(&mut Value)) -> Result<Manifest, Unreadable> {
    let mut value: Value = serde_json::from_str(RECORDED).expect("JSON");
    change(&mut value);
    Manifest::read(value.to_string().as_bytes(), &name(), &layout())
}

#[test]
fn a_manifest_of_another_copy_cluster_or_program_is_foreign() {
    assert!(read(|_| ()).is_ok());
    for (field, value) in
        [("format", "another"), ("name", "20261118T020304Z-0123456789abcdee"), ("clusterId", "1")]
    {
        assert!(matches!(read(|it| it[field] = value.into()), Err(Unreadable::Foreign(_))), "{field}");
    }
    for file in [
        "../copies/x.json",
        "20261118T020304Z-0123456789abcdee.db",
        "20261118T020304Z-0123456789abcdef.db/../x",
    ] {
        assert!(matches!(read(|it| it["data"]["file"] = file.into()), Err(Unreadable::Foreign(_))), "{file}");
    }
    assert!(matches!(Manifest::read(b"{}", &name(), &layout()), Err(Unreadable::Foreign(_))));
}

#[test]
fn a_damaged_manifest_is_reported_with_what_is_wrong() {
    for text in ["", "{", "\u{0}"] {
        let read = Manifest::read(text.as_bytes(), &name(), &layout());
        assert!(matches!(read, Err(Unreadable::Malformed(_))), "{text:?}");
    }
    let error = read(|it| it["data"]["bytes"] = "x".into()).expect_err("no number").to_string();
    assert!(error.starts_with("the manifest is damaged: invalid type: string \"x\""), "{error}");
}

#[test]
fn a_manifest_of_a_later_version_is_read_unless_it_forbids_that() {
    let later = read(|it| {
        it["formatVersion"] = 9.into();
        it["fieldOfALaterVersion"] = 1.into();
        it["data"]["compression"] = "Brotli".into();
        it["auth"] = "Sometimes".into();
    });
    let later = later.expect("it is read");
    assert_eq!(later.data.compression, Word::Unknown("Brotli".into()));
    assert_eq!(later.auth, Word::Unknown("Sometimes".into()));
    let error = read(|it| it["readableFrom"] = 9.into()).expect_err("it is too new").to_string();
    assert_eq!(
        error,
        format!(
            "etcd-backup 0.1.0 wrote it in a format of version 9, and this program reads up to version {}: use that version of \
             the operator",
            FormatVersion::CURRENT.0
        )
    );
}

#[test]
fn what_is_encrypted_in_an_unknown_way_counts_as_encrypted() {
    let encrypted =
        |word: &str| read(|it| it["data"]["encryption"] = word.into()).expect("it is read").is_encrypted();
    assert!(encrypted("Age") && encrypted("Other") && !encrypted("None"));
}
