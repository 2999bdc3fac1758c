//! The simulated etcd answers as real etcd does: the same scripts are played on both, and each must do what the table in
//! `conformance/scripts.rs` says.

#[path = "conformance/auth.rs"]
mod auth;
#[path = "conformance/gateway.rs"]
mod gateway;
#[path = "conformance/real.rs"]
mod real;
#[path = "conformance/script.rs"]
mod script;
#[path = "conformance/scripts.rs"]
mod scripts;
#[path = "conformance/simulated.rs"]
mod simulated;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::etcd::api::Error;

use real::{PATIENCE, Real};
use script::{Answer, Answers, Cluster, Request, Script, Step, shown};
use simulated::Simulated;

const REAL: [(&str, Release); 4] = [
    ("v3.5.21", Release::V3_5),
    ("v3.5.35", Release::V3_5_30),
    ("v3.6.16", Release::V3_6),
    ("v3.7.3", Release::V3_7),
];

/// They wait most of the time, so they wait together; more of them would keep two cores from keeping time.
const AT_ONCE: usize = 10;
/// How often one looks whether something has come about.
const GLANCE: Duration = Duration::from_millis(100);
/// The check of etcd wants five seconds.
const CONNECTED: Duration = Duration::from_millis(5500);

#[test]
fn the_simulated_etcd_answers_as_the_table_says() {
    for script in scripts::all() {
        for &release in script.releases {
            let mut cluster = Simulated::new(release, script.founders);
            if let Err(difference) = play(&script, release, &mut cluster, true) {
                panic!("{release:?}, {}: {difference}", script.name);
            }
        }
    }
}

#[test]
fn real_etcd_answers_as_the_table_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let programs = REAL.map(|(version, release)| {
        let built = runtime.block_on(testbed::build::ensure_etcd(version)).expect("etcd is built");
        (version, release, built.dir)
    });
    let scripts = scripts::all();
    let plays = scripts.iter().flat_map(|script| programs.iter().map(move |program| (script, program)));
    let plays = Mutex::new(plays.filter(|(script, (_, release, _))| script.releases.contains(release)));
    let next = || locked(&plays).next();
    let differences = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((script, (version, release, program))) = next() {
                    if let Err(difference) = play_really(script, *release, program) {
                        locked(&differences).push(format!("{version}, {}: {difference}", script.name));
                    }
                }
            });
        }
    });
    let differences = locked(&differences);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Some answers depend on a second, or five, not being over yet, and a busy machine can be late. So a script that differs
/// is played again.
fn play_really(script: &Script, release: Release, programs: &Path) -> Result<(), String> {
    let mut played = Ok(());
    for _ in 0..3 {
        let mut cluster = Real::new(programs, release, script.founders);
        played = play(script, release, &mut cluster, false)
            .map_err(|difference| format!("{difference}\n{}", cluster.end_of_logs()));
        if played.is_ok() {
            break;
        }
        println!("{}: once more, because {played:?}", script.name);
    }
    played
}

fn play(script: &Script, release: Release, cluster: &mut dyn Cluster, simulated: bool) -> Result<(), String> {
    (0..script.started).for_each(|ordinal| cluster.start(ordinal));
    settle(cluster)?;
    lead(cluster, 0)?;
    cluster.list();
    for (index, step) in script.steps.iter().enumerate() {
        if simulated && matches!(step, Step::Ask(_, _, Answers { not_simulated: Some(_), .. })) {
            continue;
        }
        perform(cluster, step, release).map_err(|difference| format!("step {}: {difference}", index + 1))?;
    }
    Ok(())
}

fn perform(cluster: &mut dyn Cluster, step: &Step, release: Release) -> Result<(), String> {
    match step {
        Step::Ask(via, request, answers) => ask(cluster, *via, *request, answers.of(release))?,
        Step::List(expected) => lists(cluster, expected)?,
        Step::Ends(ordinal) => {
            until(cluster, &format!("{ordinal} to end"), |cluster| cluster.ended(*ordinal))?;
        }
        Step::Start(ordinal) => {
            cluster.start(*ordinal);
            settle(cluster)?;
        }
        Step::Kill(ordinal) => {
            cluster.kill(*ordinal);
            // Until the others have noticed.
            cluster.wait(Duration::from_secs(1));
            settle(cluster)?;
        }
        Step::LoseQuorum(ordinals) => {
            ordinals.iter().for_each(|&ordinal| cluster.kill(ordinal));
            until(cluster, "nobody to lead", |cluster| {
                let running = cluster.running();
                running.into_iter().all(|ordinal| cluster.leader(ordinal).is_none())
            })?;
        }
        Step::Wipe(ordinal) => cluster.wipe(*ordinal),
        Step::Write(count) => cluster.write(*count),
        Step::Connected => cluster.wait(CONNECTED),
        Step::NewSecond => cluster.await_new_second(),
        Step::Lead(ordinal) => lead(cluster, *ordinal)?,
    }
    Ok(())
}

fn ask(cluster: &mut dyn Cluster, via: u8, request: Request, expected: Answer) -> Result<(), String> {
    // Who is expected not to answer is not waited for as long.
    let silent = matches!(expected, Err(Error::Timeout | Error::Unavailable));
    let patience = if silent { Duration::from_secs(2) } else { PATIENCE };
    let mut answer = cluster.ask(via, request, patience);
    for _ in 0..100 {
        if answer != Err(Error::LearnerNotReady) || expected.is_err() {
            break;
        }
        cluster.wait(GLANCE);
        answer = cluster.ask(via, request, patience);
    }
    if answer != expected {
        return Err(format!("{request:?} via {via} was answered {answer:?}, not {expected:?}"));
    }
    let reads = matches!(request, Request::LinearizableRead | Request::SerializableRead);
    if reads || answer.is_err() { Ok(()) } else { settle(cluster) }
}

fn lists(cluster: &mut dyn Cluster, expected: &str) -> Result<(), String> {
    let mut seen = None;
    let come = until(cluster, "the list", |cluster| {
        seen = cluster.list().map(shown);
        seen.as_deref() == Some(expected)
    });
    come.map_err(|_| format!("the list is {seen:?}, not {expected:?}"))
}

/// Until everybody who runs follows the same leader, and that one runs.
fn settle(cluster: &mut dyn Cluster) -> Result<(), String> {
    until(cluster, "one leader", |cluster| {
        let running = cluster.running();
        let mut leaders: Vec<_> = running.into_iter().map(|ordinal| cluster.leader(ordinal)).collect();
        leaders.dedup();
        matches!(leaders[..], [Some(_)])
    })
}

fn lead(cluster: &mut dyn Cluster, heir: u8) -> Result<(), String> {
    cluster.list();
    match cluster.leader(heir) {
        Some(leader) if leader != heir => ask(cluster, leader, Request::MoveLeader(heir), Ok(())),
        _ => Ok(()),
    }
}

fn until(
    cluster: &mut dyn Cluster,
    what: &str,
    mut come: impl FnMut(&mut dyn Cluster) -> bool,
) -> Result<(), String> {
    for _ in 0..200 {
        if come(cluster) {
            return Ok(());
        }
        cluster.wait(GLANCE);
    }
    Err(format!("waited too long for {what}"))
}
