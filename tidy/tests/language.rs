//! User-facing text uses none of the phrases that were retired because readers stumbled over them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use etcd_operator_tidy::prose::{Source, Text};
use etcd_operator_tidy::{files, read, root, shown};

/// Only phrases that no good sentence needs: common words have good uses, too.
const RETIRED: &[(&str, &str)] = &[
    ("a moment", "delete it, or give the time"),
    ("all the same", "delete it"),
    ("an answer from etcd", "a leader to be elected"),
    ("are away", "are down, are unreachable"),
    ("are going", "are terminating, are being deleted"),
    ("are told", "are reported"),
    ("arm the order", "allow the pods to bootstrap"),
    ("armed", "allowed to bootstrap"),
    ("birth", "bootstrap"),
    ("broke off", "closed the connection"),
    ("cannot be configured so", "invalid configuration"),
    ("cannot make", "cannot create"),
    ("cluster formed", "the cluster bootstrapped"),
    ("cluster forms", "the cluster bootstraps"),
    ("does not take that", "rejected the request"),
    ("done its work", "finished"),
    ("find no quorum", "members respond but cannot elect a leader"),
    ("first that fits", "the first matching row applies"),
    ("form a cluster", "bootstrap a cluster"),
    ("former", "previous, stale"),
    ("forms a cluster", "bootstraps a cluster"),
    ("half done", "partial"),
    ("has not noticed", "was not delivered to"),
    ("heir", "successor"),
    ("is away", "is down, is unreachable, is unavailable"),
    ("is born", "is created"),
    ("is going", "is terminating, is being deleted"),
    ("is let go", "is removed"),
    ("is not there", "does not exist, is missing"),
    ("is then away", "is then unavailable"),
    ("is to be done", "is pending; or: up to date"),
    ("is told", "reports, is reported"),
    ("lead to where they are", "DNS still returns old addresses for: ..."),
    ("lets no member go", "the PodDisruptionBudget blocks all evictions"),
    ("look into", "inspect"),
    ("looked around", "a first response from the other pods"),
    ("looked at", "observed, inspected"),
    ("looks at", "observes, inspects"),
    ("looks into", "inspects"),
    ("may we", "check the operator's RBAC"),
    ("nobody answers", "no member responds"),
    ("none of ours", "matches no pod of this cluster"),
    ("not leading any more", "lost leadership"),
    ("not there yet", "does not exist yet, is not implemented"),
    ("nothing sensible", "an invalid response"),
    ("of yesterday", "previous, stale"),
    ("only watches", "makes no changes"),
    ("overtaken", "changed in the meantime"),
    ("quorum behind", "with quorum"),
    ("said nothing", "sent no response"),
    ("said so", "reported it"),
    ("says so", "reports it"),
    ("so many", "give the number"),
    ("stand in the way", "block"),
    ("stands in the way", "blocks"),
    ("stillborn", "failed bootstrap"),
    ("take away", "remove"),
    ("taken away", "removed"),
    ("taken back", "cancelled, reverted, set to false"),
    ("takes away", "removes"),
    ("the way to it is", "is unreachable"),
    ("the way to them is", "are unreachable"),
    ("tried again", "retrying"),
    ("tries again", "retries"),
    ("trying again", "retrying"),
    ("under way", "in progress"),
    ("volumes to go", "volumes being deleted"),
    ("was born", "was created"),
    ("was told", "was reported"),
    ("whoever", "name it"),
    ("whom", "name it: the endpoint, the member"),
];

/// Reasons and events that have another name now; the changelog names both.
const RENAMED: &[(&str, &str)] = &[
    ("AllMembersServe", "AllMembersServing"),
    ("AwaitingEtcd", "StepRejected"),
    ("BootstrapOrdered", "BootstrapAllowed"),
    ("BootstrapWithdrawn", "BootstrapCancelled"),
    ("ClusterFormed", "ClusterBootstrapped"),
    ("FormationFailed", "BootstrapFailed"),
    ("HashesDiffer", "DataMismatch"),
    ("LeftoversGoing", "PreviousObjectsTerminating"),
    ("NamespaceEnding", "NamespaceTerminating"),
    ("NoAnswer", "MembersUnreachable"),
    ("NoEffectYet", "NoEffect"),
    ("NoMemberToSpare", "NoSpareMember"),
    ("NotFormedYet", "NotBootstrapped"),
    ("NotImplementedYet", "NotImplemented"),
    ("NothingRefused", "NotStalled"),
    ("NothingToDo", "UpToDate"),
    ("PodNotReady", "one reason per cause, such as PodMissing"),
    ("PodsCannotStart", "PodStartFailed"),
    ("PodsEnding", "PodsTerminating"),
    ("QuorumRegained", "QuorumRecovered"),
    ("QuorumServes", "QuorumAvailable"),
    ("QuorumWouldBeLost", "QuorumAtRisk"),
    ("StepUnderWay", "Progressing"),
    ("StopNeedsQuorum", "QuorumRequired"),
    ("VolumesGoing", "VolumesTerminating"),
];

#[test]
fn no_user_facing_text_contains_a_retired_phrase() {
    let (sources, documents) = (sources(), documents());
    assert!(sources.len() > 100 && documents.len() > 5, "not the tree");
    let mut found = BTreeSet::new();
    for (path, source) in &sources {
        let api = path.starts_with(root().join("core/src/api"));
        let docs = source.doc_comments.iter().filter(|_| api);
        for text in source.literals.iter().chain(docs) {
            found.extend(retired(path, text, RETIRED.iter().chain(RENAMED)));
        }
    }
    for path in &documents {
        found.extend(retired(path, &Text::of(&read(path)), RETIRED.iter().chain(RENAMED)));
    }
    let changelog = root().join("CHANGELOG.md");
    found.extend(retired(&changelog, &unreleased(&read(&changelog)), RETIRED));
    let found: Vec<_> =
        found.into_iter().map(|(place, line, text)| format!("{place}:{line}: {text}")).collect();
    assert!(found.is_empty(), "{} retired phrases:\n  {}", found.len(), found.join("\n  "));
}

fn retired<'a>(
    path: &Path,
    text: &Text,
    phrases: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
) -> Vec<(String, usize, String)> {
    let hits = phrases.into_iter().flat_map(|(phrase, instead)| {
        let lines = text.lines_with(phrase);
        lines.into_iter().map(move |line| (shown(path), line, format!("{phrase:?}: say {instead:?}")))
    });
    hits.collect()
}

/// What is compiled into programs, without what is compiled for tests only.
fn sources() -> Vec<(PathBuf, Source)> {
    let in_tests = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "tests");
    let mut sources: Vec<_> = files(".rs")
        .into_iter()
        .filter(|path| !in_tests(path))
        .map(|path| (path.clone(), Source::of(&read(&path))))
        .collect();
    let tests: BTreeSet<PathBuf> =
        sources.iter().flat_map(|(path, source)| test_files(path, source)).collect();
    sources.retain(|(path, _)| !tests.contains(path));
    sources
}

fn test_files(path: &Path, source: &Source) -> Vec<PathBuf> {
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main") => path.with_file_name(""),
        _ => path.with_extension(""),
    };
    source.test_modules.iter().map(|name| folder.join(format!("{name}.rs"))).collect()
}

/// What people read and apply. Decision records tell of the past, in the words of their time.
fn documents() -> Vec<PathBuf> {
    let (root, docs) = (root(), root().join("docs"));
    let examples = files(".yaml").into_iter().filter(|path| path.starts_with(root.join("examples")));
    let pages = files(".md").into_iter().filter(|path| {
        let named = ["README.md", "CONTRIBUTING.md"].iter().any(|name| *path == root.join(name));
        named || path.parent() == Some(&docs) || path.starts_with(root.join("examples"))
    });
    examples.chain(pages).collect()
}

/// What was released stays as it was.
fn unreleased(changelog: &str) -> Text {
    let mut open = false;
    let lines = changelog.lines().map(|line| {
        if line.starts_with("## ") {
            open = line.starts_with("## [Unreleased]");
        }
        if open { line } else { "" }
    });
    Text::of(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn of_the_changelog_only_what_is_unreleased_counts() {
    let text = unreleased("# Changelog\n\n## [Unreleased]\n- is born\n\n## [0.1.0]\n- is born\n");
    assert_eq!(text.lines_with("is born"), [4]);
}
