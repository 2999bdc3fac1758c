//! Image names, read the way Docker and containerd read them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};

/// `host/repository:tag` with nothing left out: `busybox` is `docker.io/library/busybox:latest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    host: String,
    repository: String,
    tag: String,
}

impl Name {
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The file that holds the image with this name, so that a new build replaces the old one.
    pub fn archive(&self) -> String {
        format!("{self}.tar").replace(['/', ':'], "_")
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        ensure!(
            !text.contains('@'),
            "`{text}`: give a tag, not a digest: the digest follows from the content"
        );
        let (host, rest) = match text.split_once('/') {
            // As Docker decides: a first part that could not be a directory of the hub is a host.
            Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => (first, rest),
            Some(_) | None => ("docker.io", text),
        };
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        let repository = match repository.contains('/') || host != "docker.io" {
            true => repository.to_owned(),
            false => format!("library/{repository}"),
        };
        ensure!(is_host(host), "`{text}` has no valid host");
        ensure!(repository.split('/').all(is_path_component), "`{text}` has no valid repository");
        ensure!(is_tag(tag), "`{text}` has no valid tag");
        Ok(Self { host: host.to_owned(), repository, tag: tag.to_owned() })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.host, self.repository, self.tag)
    }
}

fn is_host(host: &str) -> bool {
    host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:".contains(&b))
}

fn is_path_component(part: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    is_end(part.as_bytes().first())
        && is_end(part.as_bytes().last())
        && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_completed_as_docker_does() {
        for (given, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("nicolaka/netshoot:v0.13", "docker.io/nicolaka/netshoot:v0.13"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("quay.io/coreos/etcd:v3.6.14", "quay.io/coreos/etcd:v3.6.14"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("localhost/operator", "localhost/operator:latest"),
            ("localhost:5000/operator", "localhost:5000/operator:latest"),
            ("172.31.0.1:5000/a/b/operator:dev", "172.31.0.1:5000/a/b/operator:dev"),
        ] {
            let name: Name = given.parse().expect(given);
            assert_eq!(name.to_string(), full);
            assert_eq!(full.parse::<Name>().expect(full), name);
        }
    }

    #[test]
    fn the_port_of_a_host_is_not_a_tag() {
        let name: Name = "registry.example:5000/team/operator".parse().expect("a name");
        assert_eq!(
            (name.host(), name.repository(), name.tag()),
            ("registry.example:5000", "team/operator", "latest")
        );
        assert_eq!(name.archive(), "registry.example_5000_team_operator_latest.tar");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in
            ["", ":1", "quay.io/", "quay.io/x:", "Busybox", "a//b", "../x", "quay.io/x:a b", "a@sha256:1"]
        {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }
}
