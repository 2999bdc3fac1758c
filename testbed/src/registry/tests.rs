mod containerd;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::image::tests::{Scratch, etcd, name};
use crate::image::{Digest, Image, Written};

/// A registry that ends with the test.
struct Registry {
    address: SocketAddr,
    task: JoinHandle<Result<()>>,
}

impl Registry {
    async fn over(directories: &[&Path]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let directories = directories.iter().map(|path| path.to_path_buf()).collect();
        Self { address, task: tokio::spawn(serve(listener, directories)) }
    }

    async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "").await
    }

    async fn head(&self, path: &str) -> Reply {
        self.ask("HEAD", path, "").await
    }

    async fn ask(&self, method: &str, path: &str, more: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.expect("the registry listens");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("it answers");
        Reply::parse(&answer)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Reply {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Reply {
    fn parse(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the headers end");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let (status, headers) = head.split_once("\r\n").expect("there are headers");
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.into(), value.into()));
        Self {
            status: status[9..12].parse().expect("a status"),
            headers: headers.lines().filter_map(pair).collect(),
            body: answer[end + 4..].to_vec(),
        }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

fn operator(scratch: &Scratch, content: &str) -> Image {
    let program = scratch.file("operator", content);
    Image::new([name("localhost:5000/team/operator:latest")]).file("/operator", program, 0o755)
}

fn write(image: &Image, directory: &Path) -> Written {
    image.write_into(directory).expect("the image is written")
}

#[tokio::test]
async fn it_says_that_it_is_a_registry() {
    let scratch = Scratch::new();
    let registry = Registry::over(&[scratch.path()]).await;
    let reply = registry.get("/v2/").await;
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"{}"[..]));
}

#[tokio::test]
async fn a_manifest_is_found_by_tag_and_by_digest() {
    let scratch = Scratch::new();
    let written = write(&etcd(&scratch, "v3.6.1"), scratch.path());
    let registry = Registry::over(&[scratch.path()]).await;
    for reference in ["v3.6.1".to_owned(), written.digest.to_string()] {
        for repository in ["coreos/etcd", "etcd-development/etcd"] {
            let path = format!("/v2/{repository}/manifests/{reference}");
            let reply = registry.get(&path).await;
            assert_eq!((reply.status, reply.header("content-type")), (200, MANIFEST_TYPE), "{path}");
            assert_eq!(reply.header("docker-content-digest"), written.digest.to_string());
            assert_eq!(Digest::of(&reply.body), written.digest);
            let head = registry.head(&path).await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            assert_eq!(head.header("content-length"), reply.body.len().to_string());
            assert_eq!(head.header("docker-content-digest"), written.digest.to_string());
        }
    }
}

#[tokio::test]
async fn every_blob_of_a_manifest_has_its_digest_and_its_size() {
    let scratch = Scratch::new();
    write(&etcd(&scratch, "v3.6.1"), scratch.path());
    let registry = Registry::over(&[scratch.path()]).await;
    let manifest = registry.get("/v2/coreos/etcd/manifests/v3.6.1?ns=quay.io").await.json();
    for descriptor in [&manifest["config"], &manifest["layers"][0]] {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let path = format!("/v2/coreos/etcd/blobs/{digest}?ns=quay.io");
        let reply = registry.get(&path).await;
        assert_eq!((reply.status, reply.header("docker-content-digest")), (200, digest));
        assert_eq!(Digest::of(&reply.body).to_string(), digest);
        let head = registry.head(&path).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), descriptor["size"].to_string());
    }
}

#[tokio::test]
async fn a_part_of_a_blob_can_be_asked_for() {
    let scratch = Scratch::new();
    write(&etcd(&scratch, "v3.6.1"), scratch.path());
    let registry = Registry::over(&[scratch.path()]).await;
    let manifest = registry.get("/v2/coreos/etcd/manifests/v3.6.1").await.json();
    let path =
        format!("/v2/coreos/etcd/blobs/{}", manifest["layers"][0]["digest"].as_str().expect("a digest"));
    let whole = registry.get(&path).await.body;
    let part = registry.ask("GET", &path, "Range: bytes=1000-1999\r\n").await;
    assert_eq!((part.status, part.body.as_slice()), (206, &whole[1000..2000]));
    assert_eq!(part.header("content-range"), format!("bytes 1000-1999/{}", whole.len()));
    let rest = registry.ask("GET", &path, "Range: bytes=3000-\r\n").await;
    assert_eq!((rest.status, rest.body.as_slice()), (206, &whole[3000..]));
    let beyond = registry.ask("GET", &path, &format!("Range: bytes={}-\r\n", whole.len())).await;
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (416, format!("bytes */{}", whole.len()).as_str())
    );
}

#[tokio::test]
async fn only_the_upstream_of_the_image_has_it() {
    let scratch = Scratch::new();
    write(&etcd(&scratch, "v3.6.1"), scratch.path());
    write(&operator(&scratch, "program"), scratch.path());
    let registry = Registry::over(&[scratch.path()]).await;
    for (path, status) in [
        ("/v2/coreos/etcd/manifests/v3.6.1?ns=quay.io", 200),
        ("/v2/etcd-development/etcd/manifests/v3.6.1?ns=gcr.io", 200),
        ("/v2/coreos/etcd/manifests/v3.6.1?ns=gcr.io", 404),
        ("/v2/coreos/etcd/manifests/v3.6.1?ns=docker.io", 404),
        ("/v2/team/operator/manifests/latest?ns=localhost%3A5000", 200),
        ("/v2/team/operator/manifests/latest?ns=localhost", 404),
    ] {
        assert_eq!(registry.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn an_archive_that_was_added_or_replaced_is_served_at_once() {
    let scratch = Scratch::new();
    let images = scratch.path().join("images");
    let registry = Registry::over(&[&images]).await;
    let path = "/v2/team/operator/manifests/latest";
    assert_eq!(registry.get(path).await.status, 404);
    let mut digests = Vec::new();
    for content in ["one", "two", "six"] {
        let written = write(&operator(&scratch, content), &images);
        assert_eq!(Digest::of(&registry.get(path).await.body), written.digest, "{content}");
        digests.push(written.digest);
    }
    let by_digest = |digest: &Digest| format!("/v2/team/operator/manifests/{digest}");
    assert_eq!(registry.get(&by_digest(&digests[2])).await.status, 200);
    assert_eq!(registry.get(&by_digest(&digests[0])).await.status, 404, "it was replaced");
    std::fs::remove_dir_all(&images).expect("the archives can be removed");
    assert_eq!(registry.get(path).await.status, 404);
}

#[tokio::test]
async fn the_earlier_directory_counts_and_files_that_are_no_archives_do_not() {
    let scratch = Scratch::new();
    let directories = ["own", "shared"].map(|directory| scratch.path().join(directory));
    let own = write(&operator(&scratch, "mine"), &directories[0]);
    let shared = write(&operator(&scratch, "theirs"), &directories[1]);
    assert_ne!(own.digest, shared.digest);
    std::fs::write(directories[0].join("a.tar"), "not a tar").expect("a file");
    std::fs::create_dir(directories[0].join("b.tar")).expect("a directory");
    let registry = Registry::over(&[&directories[0], &directories[1], Path::new("/nowhere")]).await;
    let reply = registry.get("/v2/team/operator/manifests/latest").await;
    assert_eq!(Digest::of(&reply.body), own.digest);
}

#[tokio::test]
async fn an_unknown_image_is_named_with_what_there_is_and_how_to_make_it() {
    let scratch = Scratch::new();
    write(&etcd(&scratch, "v3.6.1"), scratch.path());
    let registry = Registry::over(&[scratch.path()]).await;
    let reply = registry.get("/v2/coreos/etcd/manifests/v3.9.9?ns=quay.io").await;
    assert_eq!((reply.status, reply.header("content-type")), (404, "application/json"));
    let error = &reply.json()["errors"][0];
    assert_eq!(error["code"], "MANIFEST_UNKNOWN");
    assert_eq!(
        error["message"],
        "no image archive of this testbed contains quay.io/coreos/etcd:v3.9.9 (available in this repository: v3.6.1): \
         see `testbed image --help`"
    );
    let reply = registry.get("/v2/library/nothing/manifests/latest?ns=docker.io").await;
    let message = reply.json()["errors"][0]["message"].to_string();
    assert!(
        message.starts_with("\"no image archive of this testbed contains docker.io/library/nothing:latest:")
    );
}

#[tokio::test]
async fn nothing_can_be_pushed() {
    let scratch = Scratch::new();
    let registry = Registry::over(&[scratch.path()]).await;
    let reply = registry.ask("POST", "/v2/team/operator/blobs/uploads/", "Content-Length: 0\r\n").await;
    assert_eq!((reply.status, reply.json()["errors"][0]["code"].as_str()), (405, Some("UNSUPPORTED")));
}

#[test]
fn containerd_is_told_of_no_other_registry() {
    assert_eq!(
        hosts_toml("172.31.0.1:5000"),
        "server = \"http://172.31.0.1:5000\"\n\n\
         [host.\"http://172.31.0.1:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
}
