//! The images that a cluster of ours needs.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Image, Name};

pub const PAUSE: &str = "registry.k8s.io/pause:3.10";
pub const NETSHOOT: &str = "docker.io/nicolaka/netshoot:latest";
/// Debian's package busybox-static.
pub const BUSYBOX: &str = "/bin/busybox";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Of public authorities. Distributions keep them at one of these; in an image they are at the first, where every
/// program finds them.
const CERTIFICATES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
const PASSWD: &str = "root:x:0:0:root:/root:/sbin/nologin\n\
    nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
    nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nnobody:x:65534:\nnonroot:x:65532:\n";

/// What holds the namespaces of a pod.
pub fn pause(program: &Path) -> Result<Image> {
    Ok(Image::new(names(&[PAUSE])?).file("/pause", program, 0o755).user("65535:65535").entrypoint(["/pause"]))
}

/// The files and settings of etcd's own image: no entrypoint, no user, no shell.
pub fn etcd(version: &str, programs: &Path) -> Result<Image> {
    let version = format!("v{}", version.trim_start_matches('v'));
    let names = names(&[
        &format!("quay.io/coreos/etcd:{version}"),
        &format!("gcr.io/etcd-development/etcd:{version}"),
    ])?;
    let mut image = with_users(Image::new(names))?
        .dir("/tmp", 0o1777)
        .dir("/var/etcd", 0o755)
        .dir("/var/lib/etcd", 0o700)
        .env("PATH", PATH)
        .port("2379/tcp")
        .port("2380/tcp")
        .workdir("/var/lib/etcd/")
        .cmd(["/usr/local/bin/etcd"]);
    for program in ["etcd", "etcdctl", "etcdutl"] {
        image = image.file(&format!("/usr/local/bin/{program}"), programs.join(program), 0o755);
    }
    Ok(image)
}

/// A shell and the small network tools, for the pods of tests. It has what busybox has (no bash, no curl).
pub fn netshoot(busybox: &Path) -> Result<Image> {
    let names = names(&[
        NETSHOOT,
        "docker.io/nicolaka/netshoot:v0.13",
        "docker.io/library/busybox:1.36",
        "docker.io/library/busybox:latest",
    ])?;
    let mut image = with_users(Image::new(names))?
        .dir("/root", 0o700)
        .dir("/tmp", 0o1777)
        .text("/etc/nsswitch.conf", "hosts: files dns\n")
        .file("/bin/busybox", busybox, 0o755)
        .env("PATH", PATH)
        .workdir("/root")
        .cmd(["sh"]);
    for applet in applets(busybox)? {
        image = image.link(&format!("/bin/{applet}"), "busybox");
    }
    for library in resolver_libraries() {
        image = image.file(&library, &library, 0o755);
    }
    Ok(image)
}

/// Our own static programs, in the root directory; the first one is started.
pub fn operator(names: impl IntoIterator<Item = Name>, programs: &[PathBuf]) -> Result<Image> {
    let mut image = with_users(Image::new(names))?.user("65532:65532");
    let mut paths = Vec::new();
    for program in programs {
        let name = program.file_name().and_then(|name| name.to_str());
        let path = format!(
            "/{}",
            name.with_context(|| format!("{} is not the path of a program", program.display()))?
        );
        image = image.file(&path, program, 0o755);
        paths.push(path);
    }
    let first = paths.into_iter().next().context("name at least one program for the image")?;
    Ok(image.entrypoint([first]))
}

fn names(texts: &[&str]) -> Result<Vec<Name>> {
    texts.iter().map(|text| text.parse()).collect()
}

/// The users that images without a distribution have, and this machine's certificates of public authorities.
fn with_users(image: Image) -> Result<Image> {
    let certificates = CERTIFICATES.into_iter().find(|path| Path::new(path).exists());
    let certificates = certificates.with_context(|| {
        let places = CERTIFICATES.join(" or ");
        format!("no certificates of public authorities in {places}: install ca-certificates (Debian)")
    })?;
    let image = image.text("/etc/passwd", PASSWD).text("/etc/group", GROUP);
    Ok(image.file(CERTIFICATES[0], certificates, 0o644))
}

/// Asked of the program itself, so that no link leads to an applet that it was built without.
fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox)
        .arg("--list")
        .output()
        .with_context(|| format!("cannot run {}: install busybox-static (Debian)", busybox.display()))?;
    ensure!(output.status.success(), "`{} --list` failed ({})", busybox.display(), output.status);
    let list = String::from_utf8(output.stdout).context("the list of busybox applets is not UTF-8")?;
    Ok(list.lines().filter(|&applet| applet != "busybox").map(str::to_owned).collect())
}

/// Even a static program of glibc may load these to resolve a name; `wget` was seen to crash without them.
fn resolver_libraries() -> Vec<String> {
    let loader = if ARCH == "aarch64" { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };
    ["libc.so.6", "libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"]
        .iter()
        .map(|library| format!("/lib/{ARCH}-linux-gnu/{library}"))
        .chain([loader.to_owned()])
        .collect()
}
