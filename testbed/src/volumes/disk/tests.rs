use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use super::*;

/// A directory for disks that leaves nothing mounted behind, not even when the test fails.
struct Scratch(PathBuf);

impl Scratch {
    /// None if the tests run as a user who may not mount.
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can mount disks");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Some(Self(dir.canonicalize().expect("it exists")))
    }

    /// The kernel frees a device a moment after its last use.
    async fn has_no_devices(&self) {
        let freed = async {
            while !mounts::loops_below(&self.0).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), freed).await.expect("every device is freed");
    }

    fn disk(&self, volume: &str) -> Disk {
        Disk::new(&self.0, Node::MACHINE, volume)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for point in mounts::points_below(&self.0).unwrap_or_default() {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(point).status();
        }
        for device in mounts::loops_below(&self.0) {
            let _ = std::process::Command::new("losetup").arg("--detach").arg(device).status();
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_disk_holds_what_was_asked_for_and_no_more_and_leaves_nothing_behind() {
    let Some(scratch) = Scratch::new("full") else { return };
    let disk = scratch.disk("pvc-1");
    disk.make(32 << 20).await.expect("made");
    let room = room::of(&disk.mount).expect("mounted");
    assert_eq!(room.size_bytes, 32 << 20);
    assert!(room.most_bytes >= 4 * (32 << 20), "{room:?}");
    assert_eq!(disk.mount.metadata().expect("a mount").permissions().mode() & 0o7777, 0o777);

    let written = fill(&disk);
    assert!((30 << 20..=32 << 20).contains(&written), "{written} bytes fitted");

    disk.remove().await.expect("removed");
    assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), []);
    scratch.has_no_devices().await;
    assert_eq!(names(&scratch.0), Vec::<String>::new());
}

/// Returns how many bytes the disk took in one file.
fn fill(disk: &Disk) -> u64 {
    let mut file = std::fs::File::create(disk.mount.join("file")).expect("a file");
    let block = vec![7; 64 << 10];
    let error = loop {
        if let Err(error) = file.write(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.metadata().expect("it is open").len()
}

#[tokio::test]
async fn a_disk_grows_while_it_is_in_use() {
    let Some(scratch) = Scratch::new("grown") else { return };
    for (volume, size) in [("pvc-1", 8 << 20), ("pvc-2", 600 << 20)] {
        let disk = scratch.disk(volume);
        disk.make(size).await.expect("made");
        let most = room::of(&disk.mount).expect("mounted").most_bytes;
        assert!(most >= 4 * size && most < 4 * size + size / 2, "{most} of {size}");
    }
    let disk = scratch.disk("pvc-1");
    let small = fill(&disk);
    let _open = std::fs::File::open(disk.mount.join("file")).expect("in use");
    disk.mount(32 << 20).await.expect("grown");
    let large = fill(&disk);
    assert!((7 << 20..=8 << 20).contains(&small), "{small} bytes fitted");
    assert!((30 << 20..=32 << 20).contains(&large), "{large} bytes fitted");
    assert!(disk.mount(1 << 30).await.is_err(), "more than the file system has");
    assert_eq!(room::of(&disk.mount).expect("mounted").size_bytes, 32 << 20);
}

#[tokio::test]
async fn every_step_may_be_repeated_and_keeps_the_data() {
    let Some(scratch) = Scratch::new("again") else { return };
    let disk = scratch.disk("pvc-1");
    // As a crash while formatting would leave it.
    std::fs::create_dir_all(&disk.mount).expect("a directory");
    std::fs::write(disk.unfinished(), "half").expect("a file");
    assert_eq!(names(&scratch.0), ["pvc-1", "pvc-1"]);

    disk.make(16 << 20).await.expect("made");
    std::fs::write(disk.mount.join("kept"), "data").expect("written");
    std::fs::set_permissions(&disk.mount, PermissionsExt::from_mode(0o2750)).expect("changed");
    disk.make(16 << 20).await.expect("made again");
    disk.mount(16 << 20).await.expect("mounted again");
    run(&["umount", &disk.mount.display().to_string()]).await.expect("unmounted");
    let lost_mount = Found { node: Node::MACHINE, has_image: true, is_mounted: false, room: None };
    assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), [lost_mount]);
    disk.mount(16 << 20).await.expect("mounted after a restart");
    assert_eq!(std::fs::read_to_string(disk.mount.join("kept")).expect("read"), "data");
    assert_eq!(disk.mount.metadata().expect("a mount").permissions().mode() & 0o7777, 0o2750);

    disk.remove().await.expect("removed");
    disk.remove().await.expect("removed again");
}

#[tokio::test]
async fn a_disk_in_use_keeps_its_device_and_can_still_be_removed() {
    let Some(scratch) = Scratch::new("busy") else { return };
    let disk = scratch.disk("pvc-1");
    disk.make(16 << 20).await.expect("made");
    // As the kubelet does it for a pod.
    let pod = scratch.0.join("pod");
    let (from, to) = (disk.mount.display().to_string(), pod.display().to_string());
    std::fs::create_dir(&pod).expect("a directory");
    run(&["mount", "--bind", &from, &to]).await.expect("bound");
    run(&["umount", &from]).await.expect("unmounted");
    disk.mount(16 << 20).await.expect("mounted again");
    assert_eq!(mounts::loops_below(&scratch.0).len(), 1, "one device, so one file system");
    assert_eq!(
        disk.mount.metadata().expect("a mount").dev(),
        pod.metadata().expect("a mount").dev(),
        "the same file system"
    );

    let open = std::fs::File::create(disk.mount.join("open")).expect("a file");
    disk.remove().await.expect("removed although in use");
    assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), []);
    std::fs::write(pod.join("still"), "there").expect("the pod goes on");
    drop(open);
    super::super::unmount_below(&scratch.0).await.expect("torn down");
    assert_eq!(mounts::points_below(&scratch.0).expect("an answer"), Vec::<PathBuf>::new());
    scratch.has_no_devices().await;
}
