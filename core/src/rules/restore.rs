//! Rules about restores. Fields that earlier versions accepted without effect are checked by the operator alone.

use super::recovery::is_cluster_id;
use super::{Rule, Server, syntax};
use crate::api::{EtcdRestoreSpec, RestoreType};

pub(super) const RULES: &[Rule<EtcdRestoreSpec>] = &[
    Rule {
        at: "",
        server: Server::Cel("has(self.backupName) != has(self.source)"),
        message: "set either backupName, or source if only the store is left",
        broken: |restore| restore.backup_name.is_some() == restore.source.is_some(),
    },
    Rule {
        at: "",
        server: Server::Cel(
            "[has(self.copyName), has(self.toRevision), has(self.toTime)].filter(it, it).size() <= 1",
        ),
        message: "set at most one of copyName, toRevision and toTime; with none of them, the newest copy is restored",
        broken: |restore| {
            let EtcdRestoreSpec { copy_name, to_revision, to_time, .. } = restore;
            [copy_name.is_some(), to_revision.is_some(), to_time.is_some()].iter().filter(|it| **it).count()
                > 1
        },
    },
    Rule {
        at: "toRevision",
        server: Server::Schema,
        message: "must be 1 or more: revisions of etcd begin with 1",
        broken: |restore| restore.to_revision.is_some_and(|revision| revision < 1),
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "restoreType New requires the spec of the new cluster: set clusterTemplate, {} has every default",
        broken: |restore| {
            restore.restore_type != Some(RestoreType::Replace) && restore.cluster_template.is_none()
        },
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "restoreType Replace requires consent: set replace.clusterID to status.clusterID of the EtcdCluster whose data is to \
            be replaced",
        broken: |restore| restore.restore_type == Some(RestoreType::Replace) && restore.replace.is_none(),
    },
    Rule {
        at: "",
        server: Server::Cel("!has(self.replace) || has(self.restoreType) && self.restoreType == 'Replace'"),
        message: "replace is consent, which only restoreType Replace needs: set restoreType, or remove replace",
        broken: |restore| restore.restore_type != Some(RestoreType::Replace) && restore.replace.is_some(),
    },
    Rule {
        at: "replace.clusterID",
        server: Server::Schema,
        message: "must be status.clusterID: up to 16 hexadecimal digits in lower case",
        broken: |restore| restore.replace.as_ref().is_some_and(|it| !is_cluster_id(&it.cluster_id)),
    },
    Rule {
        at: "clusterTemplate",
        server: Server::Nothing,
        message: "would have no effect: with restoreType Replace the EtcdCluster keeps its spec; remove the field",
        broken: |restore| {
            restore.restore_type == Some(RestoreType::Replace) && restore.cluster_template.is_some()
        },
    },
    Rule {
        at: "clusterTemplate.size",
        server: Server::Nothing,
        message: "must be at least 1: the restored cluster starts once before it can be stopped",
        broken: |restore| restore.cluster_template.as_ref().is_some_and(|template| template.size == 0),
    },
    Rule {
        at: "",
        server: Server::Nothing,
        message: "backupName, backupNamespace and identitySecret must be names of Kubernetes objects: lower-case letters, digits, \
            dashes and dots",
        broken: |restore| {
            let EtcdRestoreSpec { backup_name, backup_namespace, identity_secret, .. } = restore;
            let names = [backup_name, backup_namespace, identity_secret];
            names.into_iter().flatten().filter(|it| !it.is_empty()).any(|it| !syntax::is_dns_name(it))
        },
    },
    Rule {
        at: "clusterName",
        server: Server::Nothing,
        message: "must be the name of an EtcdCluster: at most 52 lower-case letters, digits and dashes, starting with a letter and \
            not ending with a dash",
        broken: |restore| (super::CLUSTER_NAME.broken)(&restore.cluster_name),
    },
    Rule {
        at: "dataDir",
        server: Server::Nothing,
        message: "cannot be chosen: members keep their data in a directory of their volume that the operator knows; remove the field",
        broken: |restore| restore.data_dir.is_some(),
    },
    Rule {
        at: "walDir",
        server: Server::Nothing,
        message: "cannot be chosen: members keep their log beside their data, on the same volume; remove the field",
        broken: |restore| restore.wal_dir.is_some(),
    },
    Rule {
        at: "skipHashCheck",
        server: Server::Nothing,
        message: "is refused: every copy of this operator has a hash, and one that differs is damaged; remove the field, and if \
            the copy is damaged, name another one in copyName",
        broken: |restore| restore.skip_hash_check,
    },
];
