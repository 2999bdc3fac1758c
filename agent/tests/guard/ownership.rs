//! Whose files are on a volume, and who can read them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use etcd_operator_core::agent::path;

use crate::pods::Cluster;
use crate::{NEWEST, OLDEST, formed_in};

/// As in pods.
const USER: u32 = 65532;

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// etcd ran as root in clusters of others, and where storage does not support `fsGroup`, nothing changes the owner.
#[test]
fn a_volume_that_belongs_to_root_is_refused_with_whose_it_is_and_the_way_out() {
    let mut cluster = Cluster::new(NEWEST);
    let data = cluster.volume(0).join(path::DATA);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        cluster.run_as(USER);
    }
    fs::create_dir_all(data.join("member/wal")).expect("a directory");
    // Its owner can read it in any case, so without being root nobody is kept away by 0700.
    set_mode(&data, if is_root { 0o700 } else { 0 });
    cluster.start(0);
    assert!(!cluster.ended(0).success());
    let message = cluster.termination_message(0);
    let user = rustix::process::geteuid().as_raw();
    let (owner, etcd) = if is_root { (0, USER) } else { (user, user) };
    let fact = format!("{} belongs to user {owner} with mode {:04o}", data.display(), mode(&data));
    let way_out = format!("fsGroup: {etcd}, fsGroupChangePolicy: Always");
    for words in [fact, format!("etcd runs as user {etcd}"), way_out] {
        assert!(message.contains(&words), "no {words:?} in {message:?}");
    }
    set_mode(&data, 0o700);
    assert_eq!(fs::read_dir(data.join("member/wal")).expect("a directory").count(), 0, "nothing was written");
}

#[test]
fn nobody_else_can_read_the_data_directory() {
    for version in [OLDEST, NEWEST] {
        let cluster = Cluster::new(version);
        let (volume, data) = (cluster.volume(0), cluster.volume(0).join(path::DATA));
        // As the kubelet leaves a volume to the group of a pod.
        fs::create_dir_all(&volume).expect("a directory");
        set_mode(&volume, 0o2770);
        let mut cluster = formed_in(cluster, 1);
        assert_eq!(mode(&data), 0o700, "{version}");
        assert_eq!(mode(&data.join("member")), 0o700, "{version}");
        cluster.etcdctl(0, &["put", "key", "value"]);
        cluster.kill(0);
        set_mode(&data, 0o2770);
        cluster.start(0);
        cluster.serves(&[0]);
        assert_eq!(mode(&data), 0o700, "{version}: after a restart");
        assert!(cluster.etcdctl(0, &["get", "key"]).contains("value"), "{version}");
    }
}
