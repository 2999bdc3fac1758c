//! The Go modules of `testbed/go`, embedded so that the programs can be built from anywhere.
//!
//! A further minor version of Kubernetes is a folder there and a line here. A newer patch release is
//! a changed version in a go.mod and `go mod tidy` beside it; for etcd, the list in `build.rs` follows.

/// One folder of `testbed/go`, without its tests.
#[derive(Debug)]
pub struct Module {
    pub folder: &'static str,
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! module {
    ($folder:literal: $($file:literal),+) => {
        Module {
            folder: $folder,
            files: &[$(($file, include_str!(concat!("../../go/", $folder, "/", $file)))),+],
        }
    };
}

/// One per minor version; the first is the one that a testbed has unless told otherwise.
pub const KUBERNETES: &[Module] = &[module!("kubernetes-1.34": "go.mod", "go.sum", "main.go")];

pub const ETCD: &[Module] = &[
    module!("etcd-3.5.21": "go.mod", "go.sum"),
    module!("etcd-3.5": "go.mod", "go.sum"),
    module!("etcd-3.6": "go.mod", "go.sum"),
    module!("etcd-3.7": "go.mod", "go.sum"),
];

pub const COREDNS: Module = module!("coredns": "go.mod", "go.sum", "main.go", "denied/denied.go");

pub const PAUSE: Module = module!("pause": "go.mod", "main.go");

pub const CERT_MANAGER: Module = module!("cert-manager": "go.mod", "go.sum", "main.go");

pub const VERSITYGW: Module = module!("versitygw": "go.mod", "go.sum");

impl Module {
    /// The version at which its go.mod requires another module.
    pub fn requires(&self, path: &str) -> Option<&'static str> {
        let (_, go_mod) = self.files.iter().find(|(name, _)| *name == "go.mod")?;
        let mut requirements = go_mod.lines().filter(|line| !line.contains("=>"));
        requirements.find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|word| *word == "require");
            (words.next() == Some(path)).then(|| words.next())?
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::go;
    use super::*;

    fn all() -> impl Iterator<Item = &'static Module> {
        const OTHERS: [&Module; 4] = [&CERT_MANAGER, &COREDNS, &PAUSE, &VERSITYGW];
        KUBERNETES.iter().chain(ETCD).chain(OTHERS)
    }

    fn files_below(dir: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("the directory is there").flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                files_below(&entry.path(), &format!("{name}/"), found);
            } else if !name.ends_with("_test.go") {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_every_folder_is_embedded() {
        let mut on_disk = BTreeSet::new();
        files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("go"), "", &mut on_disk);
        let embedded: BTreeSet<_> = all()
            .flat_map(|module| module.files.iter().map(|(file, _)| format!("{}/{file}", module.folder)))
            .collect();
        assert_eq!(embedded, on_disk);
    }

    #[test]
    fn no_module_wants_a_newer_go_than_we_ask_for() {
        let wanted = |module: &Module| {
            let (_, go_mod) = module.files.iter().find(|(name, _)| *name == "go.mod").expect("it has one");
            let line = go_mod.lines().find_map(|line| line.strip_prefix("go ")).expect("it names a version");
            go::version(line).expect("it is a version")
        };
        assert_eq!(all().map(wanted).max(), Some(go::NEEDED));
    }

    #[test]
    fn a_requirement_is_found_and_a_replacement_is_not_one() {
        const BOTH: Module = Module {
            folder: "x",
            files: &[(
                "go.mod",
                "require a.io/one v1.2.3\nrequire (\n\ta.io/two v2.0.0 // indirect\n)\n\
                 replace (\n\ta.io/two/more => a.io/two/more v9.0.0\n)\n",
            )],
        };
        assert_eq!(BOTH.requires("a.io/one"), Some("v1.2.3"));
        assert_eq!(BOTH.requires("a.io/two"), Some("v2.0.0"));
        assert_eq!(BOTH.requires("a.io/two/more"), None);
    }
}
