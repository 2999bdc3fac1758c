use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::document::{DockerEntry, ImageConfig, Manifest};
use super::*;

/// A directory of one test, gone when the test ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("testbed-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// The fixture that stands for etcd's three programs.
pub(crate) fn etcd(scratch: &Scratch, version: &str) -> Image {
    for program in ["etcd", "etcdctl", "etcdutl"] {
        scratch.file(program, format!("{program} {version}").repeat(1000));
    }
    standard::etcd(version, scratch.path()).expect("an image")
}

fn contents(archive: &Path) -> (File, Contents) {
    let file = File::open(archive).expect("the archive is there");
    let contents = Contents::read(&file).expect("the archive can be read");
    (file, contents)
}

fn blob(file: &File, contents: &Contents, digest: &Digest) -> Vec<u8> {
    let extent = contents.blob(digest).expect("the blob is there");
    let mut content = vec![0; usize::try_from(extent.size).expect("a small blob")];
    file.read_exact_at(&mut content, extent.offset).expect("the blob can be read");
    assert_eq!(Digest::of(&content), *digest);
    content
}

fn documents(archive: &Path) -> (Manifest, ImageConfig, Vec<u8>) {
    let (file, contents) = contents(archive);
    let digest = contents.names().values().next().expect("a name");
    let manifest: Manifest = serde_json::from_slice(&blob(&file, &contents, digest)).expect("a manifest");
    let config = serde_json::from_slice(&blob(&file, &contents, &manifest.config.digest)).expect("a config");
    let layer = blob(&file, &contents, &manifest.layers[0].digest);
    (manifest, config, layer)
}

/// Each entry's path, with its mode or what the link leads to.
fn listing(layer: &[u8]) -> Vec<String> {
    let mut tar = tar::Archive::new(layer);
    let line = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let entry = entry.expect("an entry");
        let header = entry.header();
        assert_eq!((header.mtime().ok(), header.uid().ok(), header.gid().ok()), (Some(0), Some(0), Some(0)));
        let path = entry.path().expect("a path").display().to_string();
        let mode = header.mode().expect("a mode");
        match entry.link_name().expect("a link or none") {
            Some(target) => format!("{path} -> {}", target.display()),
            None => format!("{path} {mode:o}"),
        }
    };
    tar.entries().expect("a tar").map(line).collect()
}

fn entry_of(archive: &Path, path: &str) -> Vec<u8> {
    let mut tar = tar::Archive::new(File::open(archive).expect("the archive is there"));
    let is_it = |entry: &tar::Entry<'_, File>| entry.path().is_ok_and(|found| found == Path::new(path));
    let mut entry = tar.entries().expect("a tar").flatten().find(is_it).expect("the entry is there");
    let mut content = Vec::new();
    entry.read_to_end(&mut content).expect("the entry can be read");
    content
}

#[test]
fn the_same_description_gives_the_same_bytes_in_any_order() {
    let scratch = Scratch::new();
    let source = scratch.file("program", "program");
    let names = [name("localhost/operator:dev")];
    let image =
        Image::new(names.clone()).file("/bin/a", &source, 0o755).text("/etc/b", "b").dir("/tmp", 0o1777);
    let turned = Image::new(names).dir("/tmp", 0o1777).text("/etc/b", "b").file("/bin/a", &source, 0o755);
    let first = image.write(&scratch.path().join("first.tar")).expect("it is written");
    let later = scratch.file("later", "program");
    std::fs::rename(later, source).expect("the source can be replaced by its equal");
    let second = turned.write(&scratch.path().join("second.tar")).expect("it is written");
    assert_eq!(first.digest, second.digest);
    assert_eq!(std::fs::read(first.path).expect("a file"), std::fs::read(second.path).expect("a file"));
}

#[test]
fn an_archive_is_written_again_only_if_something_in_it_changed() {
    let scratch = Scratch::new();
    let archive = scratch.path().join("images").join("etcd.tar");
    let written = |image: Image| image.write(&archive).expect("it is written").unchanged;
    assert!(!written(etcd(&scratch, "v3.6.1")), "it was not there");
    assert!(written(etcd(&scratch, "v3.6.1")), "nothing changed");
    scratch.file("etcdctl", "another");
    assert!(!written(standard::etcd("v3.6.1", scratch.path()).expect("an image")), "a program changed");
    assert!(!written(etcd(&scratch, "v3.6.2")), "the names changed");
    assert!(!written(etcd(&scratch, "v3.6.2").env("A", "b")), "a setting changed");
    let cut = File::options().write(true).open(&archive).expect("a file");
    cut.set_len(4096).expect("it can be cut");
    assert!(!written(etcd(&scratch, "v3.6.2").env("A", "b")), "it was cut off");
    let left = std::fs::read_dir(scratch.path().join("images")).expect("a directory").count();
    assert_eq!(left, 1, "no temporary file stays behind");
}

#[test]
fn a_missing_program_is_named_and_leaves_the_old_archive() {
    let scratch = Scratch::new();
    let before = etcd(&scratch, "v3.6.1").write_into(scratch.path()).expect("it is written");
    std::fs::remove_file(scratch.path().join("etcdutl")).expect("it was there");
    let image = standard::etcd("v3.6.1", scratch.path()).expect("an image");
    let error = image.write_into(scratch.path()).expect_err("a program is missing");
    assert!(format!("{error:#}").contains("etcdutl"), "{error:#}");
    assert!(contents(&before.path).1.names().values().all(|digest| *digest == before.digest));
}

#[test]
fn both_indexes_of_an_archive_lead_to_the_same_image() {
    let scratch = Scratch::new();
    let written = etcd(&scratch, "v3.6.1").write_into(scratch.path()).expect("it is written");
    let (manifest, config, layer) = documents(&written.path);
    let docker: Vec<DockerEntry> =
        serde_json::from_slice(&entry_of(&written.path, "manifest.json")).expect("a Docker archive");
    let [entry] = docker.as_slice() else { panic!("{docker:?}") };
    let (_, contents) = contents(&written.path);
    let names: Vec<_> = contents.names().keys().map(Name::to_string).collect();
    let mut tags = entry.repo_tags.clone();
    tags.sort();
    assert_eq!(tags, names);
    assert_eq!(entry.config, format!("blobs/sha256/{}", manifest.config.digest.hex()));
    assert_eq!(entry.layers, [format!("blobs/sha256/{}", manifest.layers[0].digest.hex())]);
    assert_eq!(entry_of(&written.path, &entry.layers[0]), layer);
    assert_eq!(config.rootfs.diff_ids, [Digest::of(&layer)], "the layer is not compressed");
    assert_eq!(entry_of(&written.path, "oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#);
    assert!(contents.names().values().all(|digest| *digest == written.digest));
}

#[test]
fn the_etcd_image_is_laid_out_like_the_official_one() {
    let scratch = Scratch::new();
    let written = etcd(&scratch, "3.6.1").write_into(scratch.path()).expect("it is written");
    assert_eq!(written.path, scratch.path().join("quay.io_coreos_etcd_v3.6.1.tar"));
    let (_, config, layer) = documents(&written.path);
    let mut files = listing(&layer);
    files.retain(|line| !line.starts_with("etc/ssl"));
    assert_eq!(
        files,
        [
            "etc/ 755",
            "etc/group 644",
            "etc/passwd 644",
            "tmp/ 1777",
            "usr/ 755",
            "usr/local/ 755",
            "usr/local/bin/ 755",
            "usr/local/bin/etcd 755",
            "usr/local/bin/etcdctl 755",
            "usr/local/bin/etcdutl 755",
            "var/ 755",
            "var/etcd/ 755",
            "var/lib/ 755",
            "var/lib/etcd/ 700",
        ]
    );
    let run = serde_json::to_value(&config.config).expect("JSON");
    let expected = serde_json::json!({
        "ExposedPorts": { "2379/tcp": {}, "2380/tcp": {} },
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Cmd": ["/usr/local/bin/etcd"],
        "WorkingDir": "/var/lib/etcd/",
    });
    assert_eq!(run, expected);
}

#[test]
fn the_operator_image_starts_its_first_program_as_nonroot() {
    let scratch = Scratch::new();
    let programs = ["etcd-operator", "etcd-agent"].map(|program| scratch.file(program, program));
    let names = [name("localhost/etcd-operator:dev"), name("localhost/etcd-operator:latest")];
    let image = standard::operator(names, &programs).expect("an image");
    let written = image.write_into(scratch.path()).expect("it is written");
    let (_, config, layer) = documents(&written.path);
    assert_eq!(
        (config.config.user.as_str(), config.config.entrypoint.as_slice()),
        ("65532:65532", &["/etcd-operator".to_owned()][..])
    );
    let (settings, files): (Vec<_>, Vec<_>) =
        listing(&layer).into_iter().partition(|it| it.starts_with("etc/"));
    assert_eq!(files, ["etcd-agent 755", "etcd-operator 755"]);
    assert!(settings.contains(&"etc/ssl/certs/ca-certificates.crt 644".to_owned()), "{settings:?}");
    assert!(standard::operator([name("localhost/etcd-operator:dev")], &[]).is_err());
}

#[test]
fn every_applet_of_busybox_is_in_the_netshoot_image() {
    let busybox = Path::new(standard::BUSYBOX);
    if !busybox.exists() {
        eprintln!("skipped: {} is missing (install busybox-static)", busybox.display());
        return;
    }
    let scratch = Scratch::new();
    let image = standard::netshoot(busybox).expect("an image");
    let (_, config, layer) = documents(&image.write_into(scratch.path()).expect("it is written").path);
    let files = listing(&layer);
    let applets = "sh nslookup nc wget ping ip ps top netstat traceroute cat ls sleep httpd";
    for applet in applets.split(' ') {
        assert!(files.contains(&format!("bin/{applet} -> busybox")), "{applet}");
    }
    assert!(files.contains(&"bin/busybox 755".to_owned()));
    assert_eq!(config.config.cmd, ["sh"]);
}

#[test]
fn what_is_no_image_layout_is_told_apart() {
    let scratch = Scratch::new();
    let text = scratch.file("text", "this is no tar, however long it may be. ".repeat(100));
    let other = scratch.path().join("other.tar");
    let mut tar = tar::Builder::new(File::create(&other).expect("a file"));
    tar.append_path_with_name(&text, "text").expect("an entry");
    tar.finish().expect("a tar");
    for (path, reason) in [(text, "an incomplete tar"), (other, "index.json is missing")] {
        let error = Contents::read(&File::open(path).expect("a file")).expect_err("not an image");
        assert!(format!("{error:#}").contains(reason), "{error:#}");
    }
}
