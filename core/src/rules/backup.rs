//! Rules about backups.

use super::{Rule, Server, syntax};
use crate::api::{EtcdBackupSpec, StorageType, Verification};
use crate::schedule::{has_five_fields, is_expression, is_time_zone};

const MAX_SCHEDULE_LENGTH: usize = 128;
const MAX_FLUSH_INTERVAL_SECONDS: i32 = 3600;
const MAX_RECIPIENTS: usize = 16;
/// `age1` and 58 characters.
const RECIPIENT_LENGTH: usize = 62;
/// Digits of the number in an age.
const AGE_DIGITS: usize = 5;

pub(super) const RULES: &[Rule<EtcdBackupSpec>] = &[
    Rule {
        at: "",
        server: Server::Cel("self.storageType != 'S3' || has(self.s3)"),
        message: "storageType S3 requires a bucket: set s3.bucket",
        broken: |backup| backup.storage_type == StorageType::S3 && backup.s3.is_none(),
    },
    // Objects of earlier versions can lack what these two require, so the API server has to accept them.
    Rule {
        at: "",
        server: Server::Nothing,
        message: "storageType GCS requires a bucket: set gcs.bucket",
        broken: |backup| backup.storage_type == StorageType::Gcs && backup.gcs.is_none(),
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "storageType Local requires a volume: set local.claimName",
        broken: |backup| backup.storage_type == StorageType::Local && backup.local.is_none(),
    },
    Rule {
        at: "",
        server: Server::Cel("self.storageType != 'Azure' || has(self.azure)"),
        message: "storageType Azure requires a container: set azure.account and azure.container",
        broken: |backup| backup.storage_type == StorageType::Azure && backup.azure.is_none(),
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "s3, gcs, azure and local have an effect only with their own storageType: remove those of other types",
        broken: has_other_section,
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "clusterName, clusterNamespace, and the names of Secrets and volumes must be names of Kubernetes objects: \
            lower-case letters, digits, dashes and dots",
        broken: |backup| names(backup).any(|name| !syntax::is_dns_name(name)),
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "a path must stay inside the store: remove `..`",
        broken: |backup| paths(backup).any(|path| path.split('/').any(|part| part == "..")),
    },
    Rule {
        at: "",
        server: Server::Cel(
            "!has(self.verification) || self.verification == 'ReadBack' || self.storageType == 'S3'",
        ),
        message: "verification Checksum works with S3 only, other stores compare none: use ReadBack",
        broken: |backup| {
            backup.verification == Some(Verification::Checksum) && backup.storage_type != StorageType::S3
        },
    },
    Rule {
        at: "",
        server: Server::Cel(r"!has(self.schedule) || self.schedule.matches('^\\s*\\S+(\\s+\\S+){4}\\s*$')"),
        message: "schedule must have five fields, such as \"0 2 * * *\": minute, hour, day of the month, month and day of \
            the week",
        broken: |backup| schedule(backup).is_some_and(|it| !has_five_fields(it)),
    },
    Rule {
        at: "schedule",
        server: Server::Nothing,
        message: "must be a cron expression of at most 128 characters that occurs: use numbers in the range of their field, \
            *, lists, ranges, steps, and names such as SAT, as in \"0 2 * * *\"",
        broken: |backup| {
            let readable = schedule(backup).filter(|it| has_five_fields(it));
            readable.is_some_and(|it| it.len() > MAX_SCHEDULE_LENGTH || !is_expression(it))
        },
    },
    Rule {
        at: "timeZone",
        server: Server::Nothing,
        message: "must be the name of an IANA time zone, such as Europe/Berlin or UTC",
        broken: |backup| backup.time_zone.as_deref().is_some_and(|zone| !is_time_zone(zone)),
    },
    Rule {
        at: "s3",
        server: Server::Cel("has(self.accessKeySecret) == has(self.secretKeySecret)"),
        message: "set both accessKeySecret and secretKeySecret, which can be the same Secret, or neither to use the identity \
            of the pod",
        broken: |backup| {
            backup
                .s3
                .as_ref()
                .is_some_and(|s3| s3.access_key_secret.is_some() != s3.secret_key_secret.is_some())
        },
    },
    Rule {
        at: "s3",
        server: Server::Cel("!has(self.endpoint) || self.endpoint.matches('^https?://')"),
        message: "endpoint must be a URL that begins with https:// or http://",
        broken: |backup| {
            let endpoint = backup.s3.as_ref().and_then(|s3| s3.endpoint.as_deref());
            endpoint.is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://"))
        },
    },
    Rule {
        at: "retentionPolicy",
        server: Server::Cel("!has(self.maxAge) || self.maxAge.matches('^[1-9][0-9]{0,4}[hdw]$')"),
        message: "maxAge must be a number of hours, days or weeks, such as 36h, 30d or 8w",
        broken: |backup| {
            let age = backup.retention_policy.as_ref().and_then(|it| it.max_age.as_deref());
            age.is_some_and(|age| seconds(age).is_none())
        },
    },
    Rule {
        at: "retentionPolicy.maxBackups",
        server: Server::Schema,
        message: "must be 0 or more: 0 means no limit",
        broken: |backup| {
            backup.retention_policy.as_ref().and_then(|it| it.max_backups).is_some_and(|it| it < 0)
        },
    },
    Rule {
        at: "continuous.flushIntervalSeconds",
        server: Server::Schema,
        message: "must be 1 to 3600 seconds",
        broken: |backup| {
            let interval = backup.continuous.and_then(|it| it.flush_interval_seconds);
            interval.is_some_and(|it| !(1..=MAX_FLUSH_INTERVAL_SECONDS).contains(&it))
        },
    },
    Rule {
        at: "encryption.recipients",
        server: Server::Schema,
        message: "must be 1 to 16 public keys of age, which begin with age1 and have 62 characters: age-keygen -y prints \
            the one of an identity",
        broken: |backup| {
            let recipients = backup.encryption.as_ref().map(|it| &it.recipients);
            recipients.is_some_and(|it| {
                it.is_empty() || it.len() > MAX_RECIPIENTS || !it.iter().all(|key| is_recipient(key))
            })
        },
    },
];

/// Of an age such as `30d`.
pub(crate) fn seconds(age: &str) -> Option<u64> {
    let (number, unit) = age.split_at(age.len().checked_sub(1).filter(|&it| age.is_char_boundary(it))?);
    let seconds = match unit {
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return None,
    };
    let number: u64 = number.parse().ok().filter(|_| syntax::is_count(number, AGE_DIGITS))?;
    Some(number * seconds)
}

fn schedule(backup: &EtcdBackupSpec) -> Option<&str> {
    backup.schedule.as_deref()
}

fn is_recipient(key: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    key.len() == RECIPIENT_LENGTH && key.starts_with("age1") && key.bytes().all(fits)
}

fn has_other_section(backup: &EtcdBackupSpec) -> bool {
    let EtcdBackupSpec { storage_type, s3, gcs, azure, local, .. } = backup;
    let sections = [
        (StorageType::S3, s3.is_some()),
        (StorageType::Gcs, gcs.is_some()),
        (StorageType::Azure, azure.is_some()),
        (StorageType::Local, local.is_some()),
    ];
    sections.into_iter().any(|(type_, is_given)| is_given && type_ != *storage_type)
}

fn names(backup: &EtcdBackupSpec) -> impl Iterator<Item = &str> {
    let EtcdBackupSpec { cluster_name, cluster_namespace, s3, gcs, azure, local, .. } = backup;
    let of_s3 = s3.iter().flat_map(|s3| [&s3.access_key_secret, &s3.secret_key_secret, &s3.ca_secret]);
    let others =
        [gcs.as_ref().map(|it| &it.credentials_secret), azure.as_ref().map(|it| &it.credentials_secret)];
    let optional = of_s3.chain(others.into_iter().flatten()).chain([cluster_namespace]);
    let claims = local.iter().map(|it| it.claim_name.as_str());
    optional.flatten().map(String::as_str).chain(claims).chain([cluster_name.as_str()])
}

fn paths(backup: &EtcdBackupSpec) -> impl Iterator<Item = &str> {
    let EtcdBackupSpec { s3, gcs, azure, local, .. } = backup;
    let paths = [
        s3.as_ref().and_then(|it| it.path.as_deref()),
        gcs.as_ref().and_then(|it| it.path.as_deref()),
        azure.as_ref().and_then(|it| it.path.as_deref()),
        local.as_ref().and_then(|it| it.path.as_deref()),
    ];
    paths.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn broken(changes: Value) -> Vec<&'static str> {
        let mut spec = json!({"clusterName": "kv", "storageType": "S3", "s3": {"bucket": "b"}});
        for (field, value) in changes.as_object().expect("an object") {
            spec[field] = value.clone();
        }
        let spec: EtcdBackupSpec = serde_json::from_value(spec).expect("it is a spec");
        RULES.iter().filter(|rule| (rule.broken)(&spec)).map(|rule| rule.message).collect()
    }

    #[test]
    fn each_wrong_field_is_named_with_the_way_out() {
        let key = format!("age1{}", "q".repeat(58));
        for (changes, part) in [
            (json!({"s3": null}), "set s3.bucket"),
            (json!({"storageType": "GCS", "s3": null}), "set gcs.bucket"),
            (json!({"storageType": "Local", "s3": null}), "set local.claimName"),
            (json!({"storageType": "Azure", "s3": null}), "set azure.account"),
            (json!({"gcs": {"bucket": "b"}}), "remove those of other types"),
            (json!({"clusterName": "KV"}), "names of Kubernetes objects"),
            (json!({"s3": {"bucket": "b", "caSecret": "a/b"}}), "names of Kubernetes objects"),
            (json!({"s3": {"bucket": "b", "path": "a/../b"}}), "inside the store"),
            (
                json!({"storageType": "Local", "s3": null, "local": {"claimName": "c"}, "verification": "Checksum"}),
                "use ReadBack",
            ),
            (json!({"schedule": "@daily"}), "five fields"),
            (json!({"schedule": "0 25 * * *"}), "that occurs"),
            (json!({"schedule": "0 2 * * *", "timeZone": "Berlin"}), "IANA"),
            (json!({"s3": {"bucket": "b", "accessKeySecret": "s"}}), "set both"),
            (json!({"s3": {"bucket": "b", "endpoint": "minio:9000"}}), "https://"),
            (json!({"retentionPolicy": {"maxAge": "30"}}), "36h, 30d or 8w"),
            (json!({"retentionPolicy": {"maxBackups": -1}}), "0 or more"),
            (json!({"continuous": {"flushIntervalSeconds": 0}}), "1 to 3600 seconds"),
            (json!({"continuous": {"flushIntervalSeconds": 3601}}), "1 to 3600 seconds"),
            (json!({"encryption": {"recipients": []}}), "public keys of age"),
            (json!({"encryption": {"recipients": [key.to_uppercase()]}}), "public keys of age"),
        ] {
            let found = broken(changes.clone());
            assert!(found.len() == 1 && found[0].contains(part), "{changes}: {found:?}");
        }
        let all = json!({
            "clusterNamespace": "ns", "schedule": "0 2 * * *", "timeZone": "Europe/Berlin", "suspend": true,
            "continuous": {"flushIntervalSeconds": 5},
            "s3": {
                "bucket": "b", "region": "r", "endpoint": "https://minio:9000", "forcePathStyle": false, "caSecret": "ca",
                "accessKeySecret": "s", "secretKeySecret": "s", "path": "a/b/",
            },
            "retentionPolicy": {"maxBackups": 0, "maxAge": "30d"}, "compression": true,
            "encryption": {"recipients": [key]}, "verification": "Checksum",
        });
        assert_eq!(broken(all), [""; 0]);
    }

    #[test]
    fn an_age_is_a_number_with_its_unit() {
        assert_eq!(seconds("36h"), Some(36 * 3600));
        assert_eq!(seconds("30d"), Some(30 * 86_400));
        assert_eq!(seconds("8w"), Some(8 * 7 * 86_400));
        for wrong in ["", "d", "30", "0d", "030d", "30m", "1.5d", "-1d", "100000d", "30 d", "30ä"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
