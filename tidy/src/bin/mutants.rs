//! Plants each mutant in a copy of the tree and runs its test, which has to fail.
//!
//! Two workers with a copy each share the list, sorted by what has to be compiled for a test: one begins with its first
//! mutant, the other one with its last, so that they compile different crates. The copies and what is compiled of them stay in
//! `target/mutants` for the next time. A test runs without a mutant first: one that fails then proves nothing.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use etcd_operator_tidy::mutants::{Mutant, all};
use etcd_operator_tidy::{output, root};

/// Far more than any of the tests takes.
const LIMIT_SECONDS: &str = "300";
/// As `timeout` exits then.
const TIMED_OUT: i32 = 124;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived,
    DoesNotApply(String),
    DoesNotCompile,
    /// A test that hangs finds nothing: it needs a limit of its own.
    TimedOut,
    /// Without any mutant.
    TestFails,
}

/// From which side of the list a worker takes.
#[derive(Clone, Copy)]
enum Side {
    Front,
    Back,
}

struct Copy {
    tree: PathBuf,
    target: PathBuf,
    logs: PathBuf,
}

fn main() -> ExitCode {
    let only = std::env::args().nth(1).filter(|name| !name.is_empty());
    let mut mutants = all();
    mutants.retain(|mutant| only.as_ref().is_none_or(|only| mutant.name.contains(only.as_str())));
    if mutants.is_empty() {
        eprintln!("there is no such file in test/mutants");
        return ExitCode::FAILURE;
    }
    mutants.sort_by_key(|mutant| mutant.test.clone());
    let (count, begun) = (mutants.len(), Instant::now());
    let waiting = Mutex::new(VecDeque::from(mutants));
    let wrong: usize = thread::scope(|scope| {
        let waiting = &waiting;
        let workers = [Side::Front, Side::Back].map(|side| scope.spawn(move || work(waiting, side)));
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker panics only if it cannot go on"))
            .sum()
    });
    println!("{count} mutants, {wrong} not caught, {} s", begun.elapsed().as_secs());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Until none is left; how many were not caught.
fn work(waiting: &Mutex<VecDeque<Mutant>>, side: Side) -> usize {
    let next = || {
        let mut waiting = waiting.lock().expect("nothing panics while it holds the lock");
        match side {
            Side::Front => waiting.pop_front(),
            Side::Back => waiting.pop_back(),
        }
    };
    let Some(mut mutant) = next() else { return 0 };
    let copy = Copy::of_tree(match side {
        Side::Front => "front",
        Side::Back => "back",
    });
    let (mut passes, mut wrong) = (BTreeSet::new(), 0);
    loop {
        let begun = Instant::now();
        let verdict = if passes.contains(&mutant.test) || copy.passes(&mutant) {
            passes.insert(mutant.test.clone());
            copy.plant(&mutant)
        } else {
            Verdict::TestFails
        };
        wrong += usize::from(verdict != Verdict::Caught);
        report(&copy, &mutant, &verdict, begun);
        match next() {
            Some(another) => mutant = another,
            None => return wrong,
        }
    }
}

fn report(copy: &Copy, mutant: &Mutant, verdict: &Verdict, begun: Instant) {
    let mut line = format!("{verdict:?}: {} ({} s)", mutant.name, begun.elapsed().as_secs());
    if *verdict != Verdict::Caught {
        let (test, log) = (mutant.test.join(" "), copy.log(&mutant.name));
        line.push_str(&format!("\n  {}\n  test: {test}\n  log: {log}", mutant.why));
    }
    println!("{line}");
}

impl Copy {
    /// Only what differs is written, so that cargo compiles only that again.
    fn of_tree(name: &str) -> Self {
        let output_of_cargo =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let place = output_of_cargo.join("mutants").join(name);
        let copy = Self { tree: place.join("tree"), target: place.join("target"), logs: place.join("logs") };
        make(&copy.logs);
        let listed = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let wanted: BTreeSet<PathBuf> =
            listed.split('\0').filter(|it| !it.is_empty()).map(PathBuf::from).collect();
        for path in &wanted {
            let (from, to) = (root().join(path), copy.tree.join(path));
            // A deleted file is listed until its deletion is committed.
            if !from.exists() {
                let _ = fs::remove_file(&to);
            } else if fs::read(&from).ok() != fs::read(&to).ok() {
                make(to.parent().unwrap_or(&copy.tree));
                fs::copy(&from, &to)
                    .unwrap_or_else(|error| panic!("cannot copy {}: {error}", path.display()));
            }
        }
        remove_others(&copy.tree, &copy.tree, &wanted);
        if !copy.target.exists() {
            for folder in ["build", "deps", ".fingerprint"] {
                link(&output_of_cargo.join("debug").join(folder), &copy.target.join("debug").join(folder));
            }
            // Our own crates would have the same names there, and cargo writes some files in place.
            let cleaned = copy.cargo(&["cargo", "clean", "--locked", "--workspace"], &[], "clean").status();
            assert!(cleaned.is_ok_and(|status| status.success()), "cannot clean, see {}", copy.log("clean"));
        }
        copy
    }

    /// Whether the test passes without the mutant.
    fn passes(&self, mutant: &Mutant) -> bool {
        self.run(&mutant.name, &mutant.test) == Verdict::Survived
    }

    fn plant(&self, mutant: &Mutant) -> Verdict {
        let mut originals = Vec::new();
        for edit in &mutant.edits {
            let path = self.tree.join(&edit.file);
            let original = fs::read_to_string(&path).unwrap_or_default();
            match edit.apply(&original) {
                Ok(changed) => write(&path, &changed),
                Err(error) => {
                    restore(originals);
                    return Verdict::DoesNotApply(error);
                }
            }
            originals.push((path, original));
        }
        let verdict = self.run(&mutant.name, &mutant.test);
        restore(originals);
        verdict
    }

    /// What becomes of a test in the copy as it is now.
    fn run(&self, name: &str, test: &[String]) -> Verdict {
        let mut compiled = self.cargo(&["cargo", "test", "--locked", "--no-run"], test, name);
        if !compiled.status().is_ok_and(|status| status.success()) {
            return Verdict::DoesNotCompile;
        }
        let limited = ["timeout", "--kill-after=10", LIMIT_SECONDS, "cargo", "test", "--locked"];
        match self.cargo(&limited, test, name).status().ok().and_then(|status| status.code()) {
            Some(0) => Verdict::Survived,
            Some(TIMED_OUT) | None => Verdict::TimedOut,
            Some(_) => Verdict::Caught,
        }
    }

    fn cargo(&self, words: &[&str], test: &[String], name: &str) -> Command {
        let log = fs::File::create(self.log(name)).expect("a log can be written");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(test).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command.stdout(log.try_clone().expect("it is open")).stderr(log);
        command
    }

    fn log(&self, name: &str) -> String {
        self.logs.join(format!("{name}.log")).display().to_string()
    }
}

/// In the order in which they were, should a file have been edited twice.
fn restore(originals: Vec<(PathBuf, String)>) {
    for (path, original) in originals.into_iter().rev() {
        write(&path, &original);
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
}

/// What was in the tree the last time and is not any more.
fn remove_others(tree: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) {
    for path in entries(folder) {
        if path.is_dir() && !path.is_symlink() {
            remove_others(tree, &path, wanted);
        } else if path.strip_prefix(tree).is_ok_and(|it| !wanted.contains(it)) {
            fs::remove_file(&path)
                .unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
        }
    }
}

/// What is compiled already is not compiled again.
fn link(from: &Path, to: &Path) {
    make(to);
    for path in entries(from) {
        let to = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => link(&path, &to),
            // What cargo removes in this moment is not needed.
            false => drop(fs::hard_link(&path, &to)),
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map_or_else(|_| Vec::new(), |entries| entries.flatten().map(|it| it.path()).collect())
}
