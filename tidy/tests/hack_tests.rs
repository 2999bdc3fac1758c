//! `hack/tests` runs every test program that cargo names, and `hack/slowest` says what took how long.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use etcd_operator_tidy::{files, read, root, shown};

/// A folder with a cargo that has built the programs in it.
struct Built {
    folder: PathBuf,
    messages: String,
}

impl Built {
    fn new(name: &str) -> Self {
        Self::of_crate(name, "some-crate")
    }

    fn of_crate(name: &str, of: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("hack-tests-{}-{name}", std::process::id())).join(of);
        std::fs::create_dir_all(folder.join("deps")).expect("a folder");
        Self { folder, messages: String::new() }
    }

    /// A test program, or with the kind `lib` the tests in a library.
    fn program(mut self, kind: &str, name: &str, script: &str) -> Self {
        let path = self.folder.join("deps").join(format!("{name}-{kind}"));
        write_program(&path, script);
        let (folder, path) = (self.folder.display(), path.display());
        // As cargo 1.95 writes it.
        self.messages += &format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file://{folder}#0.1.0","manifest_path":"{folder}/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","src_path":"{folder}/tests/{name}.rs","edition":"2024","doc":false,"doctest":false,"test":true}},"profile":{{"opt_level":"0","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true}},"features":[],"filenames":["{path}"],"executable":"{path}","fresh":true}}"#
        );
        self.messages += "\n";
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        // What is built without tests, and what is no program, is not run.
        let others = r#"{"reason":"compiler-artifact","manifest_path":"/x/Cargo.toml","target":{"kind":["bin"],"name":"other","src_path":"/x"},"profile":{"test":false},"executable":"/x/other"}
{"reason":"compiler-artifact","manifest_path":"/x/Cargo.toml","target":{"kind":["lib"],"name":"other","src_path":"/x"},"profile":{"test":true},"executable":null}"#;
        std::fs::write(self.folder.join("messages"), format!("{}{others}\n", self.messages))
            .expect("written");
        write_program(&self.folder.join("cargo"), &format!("cat {}/messages", self.folder.display()));
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").expect("there is a PATH"));
        let mut command = Command::new(root().join("hack/tests"));
        command.args(arguments).env("PATH", path).env("TEST_TIMES", self.times()).output().expect("bash runs")
    }

    fn times(&self) -> PathBuf {
        self.folder.join("times")
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = self.folder.parent().map(std::fs::remove_dir_all);
    }
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_program_is_run_and_only_a_failure_is_shown_whole() {
    let built = Built::new("all")
        .program("test", "guard", "echo noise; echo 'test result: ok. 21 passed; 0 failed'")
        .program("test", "seeds", "echo loud; exit 1")
        .program("lib", "core", "echo 'test result: ok. 3 passed; 0 failed'");
    let output = built.run(&[]);
    let text = said(&output);
    assert!(!output.status.success());
    assert!(text.contains("/guard, 21 passed") && text.contains("/lib-core, 3 passed"), "{text}");
    assert!(text.contains("loud\n") && !text.contains("noise"), "{text}");
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(failed.contains("failed: ") && failed.contains("seeds") && !failed.contains("guard"), "{failed}");
    assert_eq!(read(&built.times()).lines().count(), 3);
}

#[test]
fn arguments_reach_the_programs() {
    let built =
        Built::new("arguments").program("test", "etcd", "echo \"test result: ok. $# passed\"; test $1 = one");
    let output = built.run(&["one", "two"]);
    assert!(output.status.success() && said(&output).contains("/etcd, 2 passed"), "{}", said(&output));
}

#[test]
fn the_harness_runs_as_two_processes_that_share_claims_and_a_failure_of_either_counts() {
    let script = "mkdir \"$TEST_CLAIMS/one\" && echo 'test result: ok. 1 passed'";
    let output = Built::of_crate("parts", "operator").program("test", "harness", script).run(&[]);
    let (text, failed) = (said(&output), String::from_utf8_lossy(&output.stderr).into_owned());
    let of = |verdict: &str| text.lines().filter(|it| it.trim_start().starts_with(verdict)).count();
    assert_eq!((of("ok"), of("FAILED: operator/harness")), (1, 1), "{text}");
    assert!(!output.status.success() && failed.contains("operator/harness"), "{failed}");
}

#[test]
fn a_cargo_that_builds_nothing_is_a_failure() {
    assert!(!Built::new("nothing").run(&[]).status.success());
}

#[test]
fn times_are_sorted_and_stages_come_first() {
    let built = Built::new("slowest");
    std::fs::write(built.times(), "7 test quick\n61 stage verify\n754 stage e2e --smoke\n62 test slow one\n")
        .expect("written");
    let output = Command::new(root().join("hack/slowest")).arg(built.times()).output().expect("bash runs");
    let expected = "==> what took how long\n   12:34 e2e --smoke\n    1:01 verify\n\
        ==> the slowest tests\n    1:02 slow one\n    0:07 quick\n";
    assert_eq!(said(&output), expected);
}

/// `hack/tests` does not run examples in comments, which would need a compilation each.
#[test]
fn comments_have_no_examples_that_nothing_runs() {
    for path in files(".rs") {
        let text = read(&path);
        let mut fences = text.lines().map(str::trim).filter_map(|line| {
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?.trim().strip_prefix("```")
        });
        while let Some(language) = fences.next() {
            assert_eq!(language, "text", "{}: an example that nothing runs", shown(&path));
            fences.next();
        }
    }
}
