//! A machine that consists of stand-ins: every program that `hack/deps` finds in PATH, and the files it asks for.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use etcd_operator_tidy::{read, root};

/// What `hack/deps` itself is written with; these are the real ones.
const REAL: [&str; 9] = ["bash", "cat", "cp", "dirname", "env", "head", "sed", "sort", "tail"];

const FILES: [&str; 3] = [
    "usr/include/stdio.h",
    "usr/include/google/protobuf/descriptor.proto",
    "etc/ssl/certs/ca-certificates.crt",
];
const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];

/// Prints what is installed and keeps a list of it, as rustup does.
const RUSTUP: &str = r#"
installed=$HERE/rust
[ "$1" != --quiet ] || shift
case "$1 $2" in
  "component list") cat "$installed" ;;
  "toolchain install") printf '%s\n' rustfmt-host clippy-host rust-std-x86_64-unknown-linux-musl >"$installed" ;;
  "target add") echo "rust-std-$5" >>"$installed" ;;
  "component add") echo "$5-host" >>"$installed" ;;
esac"#;

pub struct Machine {
    dir: PathBuf,
}

pub struct Outcome {
    pub passed: bool,
    pub said: String,
    /// What was called to change the machine.
    pub calls: Vec<String>,
}

impl Machine {
    /// Lacks nothing; it has rustup, and no apt.
    pub fn complete() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("deps-{}-{number}", std::process::id()));
        let machine = Self { dir };
        fs::create_dir_all(machine.programs()).expect("a temporary directory can be created");
        let search = std::env::var_os("PATH").expect("there is a PATH");
        for name in REAL {
            let found = std::env::split_paths(&search).map(|dir| dir.join(name)).find(|path| path.is_file());
            let program = found.unwrap_or_else(|| panic!("no {name} in PATH"));
            symlink(program, machine.programs().join(name)).expect("a link can be created");
        }
        for line in read(&root().join("hack/programs")).lines().filter(|line| !line.starts_with('#')) {
            for name in line.split(' ').skip(2).filter(|name| !REAL.contains(name)) {
                machine.put(name, "");
            }
        }
        machine.put("ldd", "exit 1");
        machine.put("id", "echo 0");
        machine.put("gofmt", "");
        machine.go("go1.26.1", "local");
        machine.put("cargo", "");
        machine.put("rustup", RUSTUP);
        machine.write("rust", "rustfmt-host\nclippy-host\nrust-std-x86_64-unknown-linux-musl\n");
        FILES.iter().for_each(|file| machine.write(file, "content"));
        PLUGINS.iter().for_each(|plugin| machine.script(&format!("usr/lib/cni/{plugin}"), ""));
        machine.script("bin/busybox", "");
        machine
    }

    /// Rust as a distribution has it: no rustup, and the files of one target or of none beyond its own.
    pub fn rust_of_a_distribution(&self, version: &str, target: Option<&str>) {
        self.remove("rustup");
        let sysroot = self.dir.join("sysroot");
        self.put(
            "rustc",
            &format!("[ $1 = --version ] && echo 'rustc {version} (a b)' || echo {}", sysroot.display()),
        );
        self.put("cargo-fmt", "");
        self.put("cargo-clippy", "");
        if let Some(target) = target {
            fs::create_dir_all(sysroot.join("lib/rustlib").join(target)).expect("it can be created");
        }
    }

    pub fn go(&self, version: &str, toolchain: &str) {
        let answer = format!("[ $2 = GOVERSION ] && echo {version} || echo {toolchain}");
        self.put("go", &answer);
    }

    /// apt, whose packages bring the given programs.
    pub fn apt(&self, candidates: &str, brings: &[&str]) {
        let copies: String = brings
            .iter()
            .map(|name| format!("cp $HERE/usr/lib/cni/bridge $HERE/programs/{name}; "))
            .collect();
        self.put("apt-get", &format!("[ $1 = update ] || {{ {copies} true; }}"));
        self.put("apt-cache", &format!("case $2 in {candidates} *) echo '  Candidate: (none)' ;; esac"));
    }

    /// A program that writes down how it is called, and then does this.
    pub fn put(&self, name: &str, body: &str) {
        self.script(&format!("programs/{name}"), body);
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.programs().join(name)).expect("it was there");
    }

    pub fn remove_file(&self, path: &str) {
        fs::remove_file(self.dir.join(path)).expect("it was there");
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.dir)).expect("a directory can be created");
        fs::write(path, text).expect("a file can be written");
    }

    fn script(&self, path: &str, body: &str) {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        self.write(path, &format!("#!/usr/bin/env bash\necho \"{name} $*\" >>$HERE/calls\n{body}\n"));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.dir.join(path), executable).expect("its mode can be set");
    }

    fn programs(&self) -> PathBuf {
        self.dir.join("programs")
    }

    pub fn deps(&self) -> Outcome {
        let _ = fs::remove_file(self.dir.join("calls"));
        let ran = Command::new("bash")
            .arg(root().join("hack/deps"))
            .env_clear()
            .env("PATH", self.programs())
            .env("HERE", &self.dir)
            .env("DEPS_ROOT", &self.dir)
            .env("RUSTUP_AUTO_INSTALL", "0")
            .output()
            .expect("bash runs");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "", "nothing on standard output");
        let calls = fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        let changes = |call: &&str| {
            ["apt-get install", "rustup --quiet", "systemctl"].iter().any(|change| call.starts_with(change))
        };
        Outcome {
            passed: ran.status.success(),
            said: String::from_utf8_lossy(&ran.stderr).into_owned(),
            calls: calls.lines().filter(changes).map(str::to_owned).collect(),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
