//! What can be built: from which sources, with which flags, giving which programs.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::etcd_version;
use super::module::{self, Module};

const ETCD_SERVER: &str = "go.etcd.io/etcd/server/v3";
const ETCD_PACKAGES: &[&str] = &[ETCD_SERVER, "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdutl/v3"];

/// The names under which the one Kubernetes binary is called.
const KUBERNETES_PROGRAMS: &[&str] =
    &["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"];

/// Something that one `go build` makes.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: &'static str,
    pub version: Option<String>,
    /// The files of a Go module by their path in it.
    pub sources: Vec<(&'static str, Cow<'static, str>)>,
    /// Whether the sources hold the checksum of everything that the build takes in.
    pub summed: bool,
    pub packages: &'static [&'static str],
    pub flags: Vec<String>,
    /// What `go build` calls it, and what it is called.
    pub rename: Option<(&'static str, &'static str)>,
    /// Further names of the program called as the part is.
    pub links: &'static [&'static str],
    /// A required module and a folder of it, whose files are copied beside the programs.
    pub data: Option<(&'static str, &'static str)>,
}

impl Part {
    fn new(name: &'static str, version: Option<&str>, module: &Module) -> Self {
        Self {
            name,
            version: version.map(str::to_owned),
            sources: module.files.iter().map(|&(file, text)| (file, text.into())).collect(),
            summed: true,
            packages: &["."],
            flags: flags("-s -w"),
            rename: None,
            links: &[],
            data: None,
        }
    }

    pub fn default_kubernetes() -> Result<Self> {
        let [default, ..] = module::KUBERNETES else { bail!("no version of Kubernetes is known") };
        Self::kubernetes_of(default)
    }

    /// Kubernetes of a minor version such as `1.34`.
    pub fn kubernetes(minor: &str) -> Result<Self> {
        let minor_of = |module: &Module| module.folder.trim_start_matches("kubernetes-");
        let Some(module) = module::KUBERNETES.iter().find(|module| minor_of(module) == minor) else {
            let known: Vec<_> = module::KUBERNETES.iter().map(minor_of).collect();
            bail!("cannot build Kubernetes `{minor}`, only {}", known.join(", "));
        };
        Self::kubernetes_of(module)
    }

    fn kubernetes_of(module: &Module) -> Result<Self> {
        let version = module.requires("k8s.io/kubernetes").context("go.mod does not require Kubernetes")?;
        let mut flags = flags(&format!("-s -w{}", kubernetes_stamp(version)?));
        flags.push("-tags=notest,grpcnotrace".to_owned());
        Ok(Self { flags, links: KUBERNETES_PROGRAMS, ..Self::new("kubernetes", Some(version), module) })
    }

    pub fn coredns() -> Self {
        Self::new("coredns", module::COREDNS.requires("github.com/coredns/coredns"), &module::COREDNS)
    }

    pub fn pause() -> Self {
        Self::new("pause", None, &module::PAUSE)
    }

    /// The controllers that issue certificates by authorities in the cluster, and what they define.
    pub fn cert_manager() -> Self {
        let module = "github.com/cert-manager/cert-manager";
        Self {
            data: Some((module, "deploy/crds")),
            ..Self::new("cert-manager", module::CERT_MANAGER.requires(module), &module::CERT_MANAGER)
        }
    }

    /// An S3 server that keeps objects as files.
    pub fn versitygw() -> Self {
        let version = module::VERSITYGW.requires("github.com/versity/versitygw");
        Self {
            packages: &["github.com/versity/versitygw/cmd/versitygw"],
            ..Self::new("versitygw", version, &module::VERSITYGW)
        }
    }

    /// A program of the module's root, which the module is named after.
    pub fn elsewhere(name: &'static str, files: &'static [(&'static str, &'static str)]) -> Self {
        Self::new(name, None, &Module { folder: name, files })
    }

    /// The etcd in which the Kubernetes API keeps its objects. It is the one that the examples and the demo run, so
    /// that a first run builds one etcd and not two; Kubernetes 1.34 supports it.
    pub fn api_store() -> Result<Self> {
        let [oldest, ..] = module::ETCD else { bail!("there is no etcd to build") };
        Ok(Self::committed_etcd(oldest))
    }

    /// Any etcd from 3.5.0 on. Versions without a module of ours are resolved while they are built.
    pub fn etcd(version: &str) -> Result<Self> {
        let version = etcd_version::normal(version)?;
        let committed = module::ETCD.iter().find(|module| module.requires(ETCD_SERVER) == Some(&version));
        Ok(committed.map_or_else(|| Self::generated_etcd(&version), Self::committed_etcd))
    }

    fn committed_etcd(module: &Module) -> Self {
        Self {
            packages: ETCD_PACKAGES,
            rename: Some(("server", "etcd")),
            ..Self::new("etcd", module.requires(ETCD_SERVER), module)
        }
    }

    fn generated_etcd(version: &str) -> Self {
        let tools: String = ETCD_PACKAGES.iter().map(|package| format!("tool {package}\n")).collect();
        let requirements: String =
            ETCD_PACKAGES.iter().map(|package| format!("require {package} {version}\n")).collect();
        let go_mod = format!("module testbed/etcd\n\ngo 1.26.0\n\n{tools}\n{requirements}");
        Self {
            version: Some(version.to_owned()),
            sources: vec![("go.mod", go_mod.into())],
            summed: false,
            ..Self::committed_etcd(&Module { folder: "", files: &[] })
        }
    }

    /// `etcd v3.5.21`
    pub fn title(&self) -> String {
        self.joined(" ")
    }

    /// The beginning of its directory's name, which all builds of this version share.
    pub fn stem(&self) -> String {
        self.joined("-")
    }

    fn joined(&self, separator: &str) -> String {
        let words: Vec<_> = [Some(self.name), self.version.as_deref()].into_iter().flatten().collect();
        words.join(separator)
    }

    /// Differs as soon as the programs could, so that a changed part is a new one.
    pub fn key(&self, go: &str) -> String {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            // The length keeps two neighbouring texts apart.
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        };
        add(go);
        for (file, text) in &self.sources {
            add(file);
            add(text);
        }
        for word in self.flags.iter().map(String::as_str).chain(self.packages.iter().copied()) {
            add(word);
        }
        let pairs = self.rename.iter().chain(&self.data).flat_map(|(from, to)| [from, to]);
        for name in pairs.chain(self.links) {
            add(name);
        }
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn unpack(&self, dir: &Path) -> Result<()> {
        for (file, text) in &self.sources {
            let path = dir.join(file);
            let folder = path.parent().unwrap_or(dir);
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            std::fs::write(&path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Gives the programs in a directory the names that others know.
    pub fn name_programs(&self, dir: &Path) -> Result<()> {
        if let Some((from, to)) = self.rename {
            std::fs::rename(dir.join(from), dir.join(to))
                .with_context(|| format!("cannot find the file name of {to}"))?;
        }
        for link in self.links {
            std::os::unix::fs::symlink(self.name, dir.join(link))
                .with_context(|| format!("cannot link {link}"))?;
        }
        Ok(())
    }
}

/// Without debug information, which the linker drops anyway: a fifth of the compilation.
fn flags(link: &str) -> Vec<String> {
    ["-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", &format!("-ldflags={link}")]
        .map(str::to_owned)
        .to_vec()
}

/// Unstamped programs call themselves v0.0.0, and clients that adapt to the version go wrong.
fn kubernetes_stamp(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{version} is not a Kubernetes version");
    };
    let values =
        [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")];
    let packages = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];
    Ok(packages
        .iter()
        .flat_map(|package| values.iter().map(move |(name, value)| format!(" -X {package}.{name}={value}")))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::compile;
    use super::*;

    const GO: &str = "go1.26.8 linux amd64";

    #[test]
    fn the_key_follows_everything_that_makes_the_program() {
        let part = Part::pause();
        let changes: [fn(&mut Part); 7] = [
            |part| part.sources[0].1 = "module testbed/pause\n\ngo 1.27.0\n".into(),
            |part| part.sources[0].0 = "other.mod",
            |part| part.flags.push("-race".to_owned()),
            |part| part.packages = &["./cmd"],
            |part| part.rename = Some(("pause", "wait")),
            |part| part.links = &["wait"],
            |part| part.data = Some(("pause.io", "wait")),
        ];
        let changed = changes.map(|change| {
            let mut part = Part::pause();
            change(&mut part);
            part.key(GO)
        });
        let keys: std::collections::BTreeSet<_> =
            [part.key(GO), part.key("go1.27.0 linux amd64")].into_iter().chain(changed).collect();
        assert_eq!(keys.len(), 9, "{keys:?}");
        assert_eq!(part.key(GO), Part::pause().key(GO));
        assert!(part.key(GO).len() == 12 && part.key(GO).bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    /// Compiled ahead with other flags, or under another name, would be compiled twice.
    #[test]
    fn hack_compile_go_compiles_what_the_first_testbed_needs() {
        const SCRIPT: &str = include_str!("../../../hack/compile-go");
        let [kubernetes, ..] = module::KUBERNETES else { panic!("there is no Kubernetes") };
        let [etcd, ..] = module::ETCD else { panic!("there is no etcd") };
        for (part, module) in [
            (Part::default_kubernetes().expect("there is one"), kubernetes),
            (Part::api_store().expect("there is one"), etcd),
            (Part::coredns(), &module::COREDNS),
        ] {
            let folder = format!("compile {} {}", part.name, module.folder);
            assert!(SCRIPT.contains(&folder), "{folder}");
            for flag in part.flags.iter().filter(|flag| !flag.starts_with("-ldflags=")) {
                assert!(SCRIPT.contains(flag), "{flag}");
            }
        }
        for (name, value) in compile::ENVIRONMENT {
            assert!(SCRIPT.contains(&format!("{name}={value}")), "{name}");
        }
    }

    #[test]
    fn the_key_tells_where_one_text_ends() {
        let with = |name, text: &'static str| Part { sources: vec![(name, text.into())], ..Part::pause() };
        assert_ne!(with("ab", "c").key(GO), with("a", "bc").key(GO));
    }

    #[test]
    fn parts_say_what_they_are() {
        let title = |part: Result<Part>| part.expect("it can be built").title();
        assert!(title(Part::kubernetes("1.34")).starts_with("kubernetes v1.34."));
        assert_eq!(title(Part::api_store()), "etcd v3.5.21");
        assert!(title(Ok(Part::coredns())).starts_with("coredns v1."));
        assert_eq!(Part::pause().stem(), "pause");
        assert_eq!(Part::etcd("3.5.21").expect("it can be built").stem(), "etcd-v3.5.21");
    }

    #[test]
    fn kubernetes_is_stamped_in_both_places() {
        let part = Part::kubernetes("1.34").expect("it can be built");
        let stamps = part.flags.iter().find(|flag| flag.starts_with("-ldflags=")).expect("it has link flags");
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for value in ["gitVersion=v1.34.", "gitMajor=1 ", "gitMinor=34 "] {
                assert!(stamps.contains(&format!("-X {package}.{value}")), "{package} {value}: {stamps}");
            }
        }
    }

    #[test]
    fn an_unknown_minor_is_refused() {
        let error = Part::kubernetes("1.3").expect_err("there is no such folder");
        assert!(error.to_string().contains("cannot build Kubernetes `1.3`, only 1.34"), "{error}");
    }

    #[test]
    fn an_etcd_of_our_own_modules_is_summed_and_any_other_is_generated() {
        let committed = Part::etcd("v3.5.21").expect("it can be built");
        assert!(committed.summed && committed.sources.len() == 2);
        let generated = Part::etcd("v3.5.9").expect("it can be built");
        assert!(!generated.summed);
        let (file, text) = &generated.sources[0];
        assert_eq!(*file, "go.mod");
        for package in ETCD_PACKAGES {
            assert!(text.contains(&format!("\nrequire {package} v3.5.9\n")), "{text}");
        }
        assert_eq!((generated.packages, generated.rename), (committed.packages, committed.rename));
    }
}
