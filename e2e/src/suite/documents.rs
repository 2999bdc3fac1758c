//! The commands of the documents, run as they stand there.
//!
//! A command has to succeed and to print what the document shows below it. One that only reads is repeated until it
//! does, as a reader would; everything else gets one try.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use etcd_operator_tidy::commands::{Block, Command, anchor, blocks};
use futures::FutureExt;

use crate::kubectl::Kubectl;
use crate::runner::Context;
use crate::test::{About, Test, Topology};
use crate::{answer, evidence, wait, workspace};

/// For one command, and longer than any `kubectl wait` in the documents: a deleted Secret is noticed within six minutes.
const LIMIT: Duration = Duration::from_secs(450);
/// How long a command that only reads is repeated.
const REPEATED: Duration = Duration::from_secs(120);
const SHOWN_LINES: usize = 8;
const SHOWN_CHARACTERS: usize = 160;
/// What the documents refer to by paths in the tree. Commands get a copy: some of them edit files.
const COPIED: [&str; 3] = ["examples", "test", "docs/manifests"];

/// What a command inside a pod begins with if it changes nothing.
const READING_IN_PODS: [&str; 5] =
    ["etcdctl get ", "etcdctl member list", "etcdctl endpoint ", "etcdctl alarm list", "nslookup "];

struct Document {
    path: &'static str,
    /// Each section stands for itself and is a test of its own. Otherwise the page is one story.
    by_section: bool,
    smoke: bool,
}

const DOCUMENTS: [Document; 4] = [
    Document { path: "docs/user-guide.md", by_section: false, smoke: true },
    Document { path: "docs/concepts.md", by_section: false, smoke: false },
    Document { path: "docs/operations.md", by_section: true, smoke: false },
    Document { path: "docs/troubleshooting.md", by_section: true, smoke: false },
];

/// `documents::user-guide`, and `documents::operations::back-up-by-hand` for a section.
pub fn tests(topology: &Topology) -> Vec<Test> {
    let tests_of = |document: &Document| {
        let stem = stem(document.path);
        let mut names = if document.by_section {
            let sections = runnable(document.path).into_iter().map(|block| anchor(&block.section));
            sections.map(|section| format!("documents::{stem}::{section}")).collect()
        } else {
            vec![format!("documents::{stem}")]
        };
        names.dedup();
        // A test's name lives as long as the program.
        let test = |name: String| {
            // Pages take nodes out of service, and share the namespace of a manifest.
            let test = topology.exclusive(name.leak(), |c| followed(c).boxed_local()).about(About::Documents);
            if document.smoke { test.smoke() } else { test }
        };
        names.into_iter().map(test).collect::<Vec<_>>()
    };
    DOCUMENTS.iter().flat_map(tests_of).collect()
}

/// The document and the section follow from the test's name.
async fn followed(context: &Context) -> Result<()> {
    let mut names = context.test.split("::").skip(1);
    let (stem_wanted, section) = (names.next().unwrap_or_default(), names.next());
    let document = DOCUMENTS.iter().find(|document| stem(document.path) == stem_wanted);
    let document = document.with_context(|| format!("no document {stem_wanted}"))?;
    context.operator().await?;
    let shell = Shell::prepare(context).await?;
    let of_section = |block: &Block| section.is_none_or(|section| anchor(&block.section) == section);
    let blocks = runnable(document.path).into_iter().filter(of_section).collect();
    let outcome = shell.follow(context, document.path, blocks).await;
    // A page that is left in the middle can have taken nodes out of service for the tests that follow.
    let nodes: Vec<_> = context.bed().nodes().iter().map(|node| node.name()).collect();
    let uncordon: Vec<_> = ["uncordon"].into_iter().chain(nodes.iter().map(String::as_str)).collect();
    outcome.and(context.kubectl().run(&uncordon).await.map(drop))
}

/// Those that a test can run.
fn runnable(document: &str) -> Vec<Block> {
    let path = workspace::root().join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    blocks(&text).into_iter().filter(|block| block.untested.is_none()).collect()
}

fn stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(path)
}

/// Where a reader would type: a copy of the tree's manifests, with the test's namespace as the current one.
struct Shell {
    folder: PathBuf,
    /// Where `kubectl` and `testbed` are.
    path: OsString,
    kubeconfig: PathBuf,
}

struct Printed {
    ok: bool,
    text: String,
}

impl Shell {
    async fn prepare(context: &Context) -> Result<Self> {
        let folder = evidence::directory(context.test);
        for copied in COPIED {
            copy(&workspace::root().join(copied), &folder.join(copied))?;
        }
        let kubectl = context.kubectl();
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, kubectl.run(&["config", "view", "--raw"]).await?)?;
        let ours = Kubectl::new(kubectl.program(), Some(kubeconfig.clone()));
        ours.run(&["config", "set-context", "--current", "--namespace", &context.namespace]).await?;
        let this = std::env::current_exe().context("this program's own path is unknown")?;
        let known = std::env::var_os("PATH").unwrap_or_default();
        let first =
            [kubectl.program(), &this].map(|program| program.parent().unwrap_or(Path::new("/")).to_owned());
        let path = std::env::join_paths(first.into_iter().chain(std::env::split_paths(&known)))?;
        Ok(Self { folder, path, kubeconfig })
    }

    async fn follow(&self, context: &Context, document: &str, blocks: Vec<Block>) -> Result<()> {
        for block in &blocks {
            for command in &block.commands {
                let place = || format!("{document}:{}", block.line);
                self.follow_one(context, command).await.with_context(place)?;
            }
        }
        Ok(())
    }

    async fn follow_one(&self, context: &Context, command: &Command) -> Result<()> {
        for line in command.text.lines() {
            context.step(format!("$ {line}"));
        }
        if !only_reads(&command.text) {
            let printed = self.run(&command.text).await?;
            show(context, &printed);
            return agrees(command, &printed);
        }
        let mut last = None;
        let right = async || {
            let printed = last.insert(self.run(&command.text).await?);
            agrees(command, printed).map(|()| true)
        };
        let outcome = wait::until("the command prints what the document shows", REPEATED, right).await;
        if let Some(printed) = &last {
            show(context, printed);
        }
        outcome
    }

    async fn run(&self, script: &str) -> Result<Printed> {
        let mut shell = tokio::process::Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", script]).current_dir(&self.folder);
        shell.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        let output = shell.stdin(Stdio::null()).kill_on_drop(true).output();
        let output =
            tokio::time::timeout(LIMIT, output).await.map_err(|_| anyhow!("not done after {LIMIT:?}"))?;
        let output = output.context("cannot run bash")?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Printed { ok: output.status.success(), text: text.concat() })
    }
}

fn agrees(command: &Command, printed: &Printed) -> Result<()> {
    ensure!(printed.ok, "`{}` failed:\n{}", command.text, printed.text);
    answer::agrees(&command.output, &printed.text).with_context(|| format!("`{}`", command.text))
}

/// Such a command can be repeated until it shows what is expected.
fn only_reads(command: &str) -> bool {
    let Some(rest) = command.trim().strip_prefix("kubectl ") else { return false };
    let rest = match rest.strip_prefix("-n ") {
        Some(namespaced) => namespaced.split_once(' ').map_or("", |(_, rest)| rest),
        None => rest,
    };
    let (verb, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
    let reads = match verb {
        "get" | "describe" | "logs" | "wait" => true,
        "exec" => {
            let inside = arguments.split_once(" -- ").map_or("", |(_, inside)| inside);
            READING_IN_PODS.iter().any(|begin| inside.starts_with(begin))
        }
        _ => false,
    };
    reads && !command.trim().contains('\n')
}

fn show(context: &Context, printed: &Printed) {
    for line in printed.text.lines().take(SHOWN_LINES) {
        context.step(line.chars().take(SHOWN_CHARACTERS).collect::<String>());
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            std::fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_gets_one_try() {
        for reads in [
            "kubectl get etcd",
            "kubectl -n x get pods",
            "kubectl exec kv-0 -- etcdctl get greeting",
            "kubectl exec kv-0 -- etcdctl member list | sort",
        ] {
            assert!(only_reads(reads), "{reads}");
        }
        for writes in [
            "kubectl apply -f x",
            "kubectl -n get delete pod x",
            "kubectl exec kv-0 -- etcdctl put a b",
            "kubectl exec kv-0 -- etcdctl member remove $(kubectl exec kv-0 -- etcdctl member list)",
            "kubectl get x\nkubectl delete x",
        ] {
            assert!(!only_reads(writes), "{writes}");
        }
    }

    #[test]
    fn every_document_has_commands_and_every_section_a_name_of_its_own() {
        for document in DOCUMENTS {
            let blocks = runnable(document.path);
            assert!(!blocks.is_empty(), "{}", document.path);
            let sectioned = blocks.iter().all(|block| !block.section.is_empty());
            assert!(
                sectioned || !document.by_section,
                "{}: commands before the first section",
                document.path
            );
        }
        let names = tests(&Topology::Bare).iter().map(|test| test.name).collect::<Vec<_>>();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
