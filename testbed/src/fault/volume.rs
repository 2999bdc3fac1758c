//! The disks of claims: wiped, damaged, deleted, full.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{FaultError, Result, alter_value, damage};
use crate::cluster::Testbed;
use crate::layout::Layout;
use crate::process::until;

/// A mounted volume of the testbed's own provisioner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Volume {
    name: String,
    mount: PathBuf,
}

pub(super) async fn of_claim(bed: &Testbed, namespace: &str, claim: &str) -> Result<Volume> {
    let client = bed.client().await.map_err(FaultError::machine("reach the API server"))?;
    let found = Api::<PersistentVolumeClaim>::namespaced(client, namespace)
        .get_opt(claim)
        .await
        .map_err(FaultError::api(format_args!("claim {namespace}/{claim}")))?;
    let (namespace, claim) = (namespace.to_owned(), claim.to_owned());
    let Some(found) = found else { return Err(FaultError::NoSuchClaim { namespace, claim }) };
    match found.spec.and_then(|spec| spec.volume_name) {
        Some(name) => mounted(bed.layout(), name),
        None => Err(FaultError::ClaimNotBound { namespace, claim }),
    }
}

/// Below the directory of some node.
fn mounted(layout: &Layout, name: String) -> Result<Volume> {
    let nodes = std::fs::read_dir(layout.volumes()).into_iter().flatten().flatten();
    let mount = nodes.map(|node| node.path().join(&name)).find(|path| is_mount_point(path));
    match mount {
        Some(mount) => Ok(Volume { name, mount }),
        None => {
            Err(FaultError::VolumeNotMounted { volume: name, below: layout.volumes().display().to_string() })
        }
    }
}

/// Filling what is not a disk of its own would fill the machine's.
fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().ok().map(|metadata| metadata.dev());
    let parent = path.parent().and_then(device);
    device(path).is_some_and(|own| Some(own) != parent)
}

impl Volume {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn wipe(&self) -> Result<()> {
        empty(&self.mount).map_err(FaultError::machine(format_args!("wipe volume {}", self.name)))
    }

    pub fn damage_log(&self) -> Result<()> {
        damage::log(&self.mount)
            .map_err(FaultError::machine(format_args!("damage the log in volume {}", self.name)))
    }

    pub fn alter(&self, value: &str, to: &str) -> Result<()> {
        alter_value(&self.mount, value.as_bytes(), to.as_bytes())
            .map_err(FaultError::machine(format_args!("alter a value in volume {}", self.name)))
    }

    /// Deletes both objects as if nothing protected them. The provisioner then takes the disk away.
    pub async fn delete(&self, bed: &Testbed, namespace: &str, claim: &str) -> Result<()> {
        let client = bed.client().await.map_err(FaultError::machine("reach the API server"))?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        delete_unprotected(&claims, claim)
            .await
            .map_err(FaultError::api(format_args!("claim {namespace}/{claim}")))?;
        let volumes: Api<PersistentVolume> = Api::all(client);
        delete_unprotected(&volumes, &self.name)
            .await
            .map_err(FaultError::api(format_args!("volume {}", self.name)))?;
        let what = || format!("{} still exists", self.mount.display());
        let image = self.mount.with_extension("img");
        until(Duration::from_secs(30), Duration::from_millis(50), what, async || {
            Ok(!self.mount.exists() && !image.exists())
        })
        .await
        .map_err(FaultError::machine(format_args!("wait until the data of volume {} is deleted", self.name)))
    }

    pub fn fill(&self, id: &str, leave_bytes: u64) -> Result<()> {
        fill(&self.mount, &self.filler(id), leave_bytes)
            .map_err(FaultError::machine(format_args!("fill volume {}", self.name)))
    }

    pub fn unfill(&self, id: &str) -> Result<()> {
        unless_gone(std::fs::remove_file(self.filler(id)))
            .map_err(FaultError::machine(format_args!("remove the file that fills volume {}", self.name)))
    }

    fn filler(&self, id: &str) -> PathBuf {
        self.mount.join(format!(".testbed-{id}"))
    }
}

/// Deletes all in a directory, and what is written there meanwhile; `lost+found` belongs to the disk.
fn empty(dir: &Path) -> anyhow::Result<()> {
    for _ in 0..100 {
        let mut left = false;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name() == "lost+found" {
                continue;
            }
            left = true;
            let path = entry.path();
            let removed = if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            match removed {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                removed => {
                    unless_gone(removed).with_context(|| format!("cannot remove {}", path.display()))?
                }
            }
        }
        if !left {
            return Ok(());
        }
    }
    anyhow::bail!("{} fills faster than the testbed can empty it", dir.display())
}

fn unless_gone(outcome: std::io::Result<()>) -> std::io::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

async fn delete_unprotected<K>(api: &Api<K>, name: &str) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let unless_gone = |outcome: kube::Result<()>| match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome,
    };
    unless_gone(api.delete(name, &DeleteParams::default()).await.map(drop))?;
    let unprotected = serde_json::json!({"metadata": {"finalizers": null}});
    unless_gone(api.patch(name, &PatchParams::default(), &Patch::Merge(unprotected)).await.map(drop))
}

fn fill(disk: &Path, filler: &Path, leave_bytes: u64) -> anyhow::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(filler)?;
    let mut most = u64::MAX;
    loop {
        let free = statvfs(disk)?;
        // Nothing left means nothing for root either, who may use the blocks that are kept from others.
        let blocks = if leave_bytes == 0 { free.f_bfree } else { free.f_bavail };
        let step = (blocks * free.f_frsize).saturating_sub(leave_bytes).min(most);
        if step < free.f_frsize {
            return Ok(());
        }
        match grow(&file, step) {
            // The file system needs some of the space itself to note where the file lies.
            Err(Errno::NOSPC) => most = step / 2,
            grown => grown?,
        }
    }
}

fn grow(file: &File, bytes: u64) -> rustix::io::Result<()> {
    let length = rustix::fs::fstat(file)?.st_size.unsigned_abs();
    fallocate(file, FallocateFlags::empty(), length, bytes)
}

#[cfg(test)]
mod tests {
    use super::super::effect::Effect;
    use super::super::record::Records;
    use super::super::scratch::Scratch;
    use super::super::{Fault, Injected, prevents_growth};
    use super::*;

    #[test]
    fn a_directory_that_is_no_disk_of_its_own_is_refused() {
        let layout = Scratch::new();
        std::fs::create_dir_all(layout.volumes().join("n2/pvc-1")).expect("a directory");
        let error = mounted(&layout, "pvc-1".into());
        assert!(matches!(error, Err(FaultError::VolumeNotMounted { .. })), "{error:?}");
        assert!(is_mount_point(Path::new("/proc")));
    }

    #[test]
    fn wiping_leaves_nothing_but_what_belongs_to_the_disk() {
        let scratch = Scratch::new();
        for dir in ["member/wal", "member/snap", "lost+found"] {
            std::fs::create_dir_all(scratch.dir().join(dir)).expect("a directory");
        }
        std::fs::write(scratch.dir().join("member/snap/db"), "data").expect("written");
        std::os::unix::fs::symlink("/etc", scratch.dir().join("link")).expect("a link");
        empty(scratch.dir()).expect("emptied");
        let left: Vec<_> = std::fs::read_dir(scratch.dir()).expect("readable").flatten().collect();
        assert_eq!(left.iter().map(std::fs::DirEntry::file_name).collect::<Vec<_>>(), ["lost+found"]);
        assert!(Path::new("/etc/passwd").exists());
    }

    #[test]
    fn only_the_volume_of_the_fault_does_not_grow() {
        let scratch = Scratch::new();
        let prevented = |volume| prevents_growth(&scratch, volume).expect("readable");
        assert!(!prevented("pvc-1"));
        let fault = Fault::FailGrowth { namespace: "default".into(), claim: "data".into() };
        let effect =
            Effect::FailGrowth(Volume { name: "pvc-1".into(), mount: scratch.dir().join("n2/pvc-1") });
        let injected = Injected { id: "fail-growth-1".into(), fault, effect };
        Records::of(&scratch).write(&injected).expect("written");
        assert!(prevented("pvc-1") && !prevented("pvc-2"));
    }

    #[test]
    fn a_filler_that_is_gone_with_its_volume_is_no_error() {
        let scratch = Scratch::new();
        let volume = Volume { name: "pvc-1".into(), mount: scratch.dir().join("n2/pvc-1") };
        volume.unfill("fill-disk-1").expect("nothing to remove");
    }

    #[test]
    fn a_full_disk_takes_nothing_more_until_the_filler_is_gone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can mount a disk");
            return;
        }
        let scratch = Scratch::new();
        let disk = Disk::mount(scratch.dir(), 32 << 20);
        let volume = Volume { name: "pvc-1".into(), mount: disk.0.clone() };
        let free = || statvfs(&disk.0).map(|found| found.f_bavail * found.f_frsize).expect("a disk");
        let write =
            |bytes: usize| std::fs::write(disk.0.join("file"), vec![1; bytes]).map_err(|error| error.kind());

        volume.fill("fill-disk-1", 1 << 20).expect("filled");
        volume.fill("fill-disk-1", 1 << 20).expect("filled again");
        assert!((1 << 20..(1 << 20) + 8192).contains(&free()), "{} bytes are free", free());
        write(500 << 10).expect("there is room");
        volume.fill("fill-disk-2", 0).expect("filled to the brim");
        assert_eq!(write(2 << 20), Err(ErrorKind::StorageFull));
        volume.unfill("fill-disk-2").expect("removed");
        volume.unfill("fill-disk-1").expect("removed");
        volume.unfill("fill-disk-1").expect("removed again");
        write(2 << 20).expect("there is room again");
    }

    /// A small disk in a file, as the testbed's volumes are.
    struct Disk(PathBuf);

    impl Disk {
        fn mount(dir: &Path, bytes: u64) -> Self {
            let (image, mount) = (dir.join("disk.img"), dir.join("disk"));
            std::fs::create_dir(&mount).expect("a directory");
            File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
            let done = |program: &str, arguments: &[&str]| {
                let (image, mount) = (image.as_os_str(), mount.as_os_str());
                let mut command = std::process::Command::new(program);
                command.args(arguments).arg(image);
                if program == "mount" {
                    command.arg(mount);
                }
                assert!(command.status().expect("it runs").success(), "{program}");
            };
            done("mkfs.ext4", &["-q"]);
            done("mount", &["-o", "loop"]);
            Self(mount)
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            // Lazily: a child that another test just forked may hold our files until it runs its program.
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}
