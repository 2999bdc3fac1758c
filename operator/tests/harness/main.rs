//! The whole operator against a real API server, real controllers, real agents and real etcd, with a fault at any request.
//!
//! Everything runs in namespaces of its own (network, mounts, processes), so ports and addresses are free and nothing is
//! left behind. Only the kubelet is a stand-in (`testbed::stand_in`).
//!
//! `HARNESS_LOG=info` shows the operator's log, `HARNESS_EFFECTS=1` the effects of undisturbed runs.

mod access;
mod alerts;
mod auth;
mod backups;
mod cert_manager;
mod certificates;
mod collector;
mod consistency;
mod continuous;
mod dashboards;
mod faults;
mod fields;
mod given;
mod inside;
mod jobs;
mod monitoring;
mod notices;
mod operator;
mod oracles;
mod recorder;
mod recovery;
mod replaced;
mod requests;
mod restores;
mod scenario;
mod space;
mod stage;
mod steps;
mod sweep;
mod switching;
mod takeover;
mod traces;
mod world;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};

use crate::scenario::Scenario;

fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("a_write_on_an_outdated_object_is_rejected", requests::overtaken),
        trial("what_could_do_harm_follows_a_live_read", sweep::scale_undisturbed),
        trial("a_deleted_service_is_created_again_at_once", notices::deleted_service),
        trial("a_member_that_fails_is_reported_at_once", notices::failed_node),
        trial(
            "a_pod_of_a_failed_node_stays_until_it_is_forced_or_the_node_returns",
            notices::pods_of_failed_nodes,
        ),
        trial("arguments_that_etcd_refuses_stop_no_member", sweep::refused_undisturbed),
        trial("create_with_every_effect_hit", || sweep::each_variant(sweep::CREATE)),
        trial("reissue_with_every_effect_hit", || sweep::each_variant(sweep::REISSUE)),
        trial("scale_with_every_effect_hit", || sweep::each_variant(sweep::SCALE)),
        trial("roll_with_every_effect_hit", || sweep::each_variant(sweep::ROLL)),
        trial("grow_with_every_effect_hit", || sweep::each_variant(sweep::GROW)),
        trial("auth_with_every_effect_hit", || sweep::each_variant(sweep::AUTH)),
        trial("authentication_is_enabled_while_clients_write", auth::life),
        trial("authentication_that_somebody_enabled_by_hand_is_reported_and_disabled", auth::by_hand)
            .with_ignored_flag(true),
        trial("single_requests_fail", requests::fail),
        trial("a_backup_is_taken_while_no_operator_runs", backups::taken_while_no_operator_runs),
        trial(
            "the_version_changes_after_a_copy_although_the_operator_is_replaced",
            backups::precedes_another_version,
        ),
        trial("a_cluster_is_restored_with_all_its_keys_while_operators_end", restores::with_all_its_keys),
        trial(
            "every_revision_and_moment_can_be_restored_although_the_archiver_is_killed",
            continuous::restores_every_revision_and_moment,
        ),
        trial(
            "data_is_replaced_with_consent_while_operators_end",
            replaced::with_consent_while_operators_end,
        ),
        trial("data_is_replaced_after_the_quorum_is_lost", replaced::without_a_quorum),
        trial("volumes_of_before_and_after_a_replacement_can_be_adopted", replaced::adopted)
            .with_ignored_flag(true),
        trial("alerts_fire_for_members_that_are_down_and_clear", alerts::fire_and_clear),
        trial("dashboards_show_a_cluster_with_a_backup", dashboards::show_a_cluster),
        trial("space_of_a_full_database_is_reclaimed", space::reclaimed),
        trial("members_with_mostly_unused_files_are_defragmented", space::tidied),
        trial("one_member_continues_with_consent_after_a_majority_is_lost", recovery::with_consent),
        trial("one_member_of_another_release_continues_with_consent", recovery::of_other_releases)
            .with_ignored_flag(true),
        trial("containers_of_a_job_run_in_order_and_leave_messages", jobs::in_order),
        trial("a_job_whose_pod_is_deleted_gets_another_one", jobs::deleted),
        trial("an_init_container_that_fails_ends_the_pod_of_a_job", jobs::failed),
        trial("an_operator_takes_over_from_the_previous_version", takeover::from_the_previous_version),
        trial("a_port_accepts_its_own_authority_alone", certificates::refusals),
        trial(
            "an_authority_that_is_deleted_is_reported_and_nothing_is_issued",
            certificates::deleted_authority,
        ),
        trial("authorities_are_rotated_under_clients_that_write", certificates::rotation),
        trial("a_certificate_of_a_user_is_checked_and_copied", given::checked).with_ignored_flag(true),
        trial("certificates_of_users_come_and_go_under_clients_that_write", given::changed)
            .with_ignored_flag(true),
        trial(cert_manager::TRIAL, cert_manager::issues_and_renews).with_ignored_flag(true),
        trial("a_certificate_that_is_deleted_is_issued_again", certificates::deleted_leaf)
            .with_ignored_flag(true),
        trial("certificates_are_renewed_without_a_restart", certificates::renewal).with_ignored_flag(true),
        trial("a_member_is_replaced_while_the_transport_changes", switching::replaced)
            .with_ignored_flag(true),
        trial("a_watch_freezes", requests::freeze).with_ignored_flag(true),
        trial("every_edit_does_what_its_verdict_says", fields::every_edit_does_what_its_verdict_says)
            .with_ignored_flag(true),
    ];
    for version in [inside::TWO_LEARNERS, inside::ONE_LEARNER, inside::NEWEST] {
        let mut with_version = |name: &str, test: fn(&'static str), always: bool| {
            let name = format!("{name}_{}", version.replace('.', "_"));
            let ignored = !always || version != inside::TWO_LEARNERS;
            trials.push(trial(&name, move || test(version)).with_ignored_flag(ignored));
        };
        with_version("the_transport_changes_while_clients_write", switching::there_and_back, true);
        with_version("a_switch_that_is_reverted_turns_around", switching::reverted, false);
        with_version("a_switch_survives_an_outage_of_all_members", switching::outage, false);
        with_version("a_member_with_other_data_is_replaced_while_clients_write", consistency::replaced, true);
        with_version(
            "a_leader_with_other_data_is_replaced_and_the_alarm_is_disarmed",
            consistency::disarmed,
            true,
        );
    }
    for scenario in sweep::ALL {
        let mut swept = |what: &str, version: &'static str, test: fn(Scenario)| {
            let name = format!("{what} {} {version}", scenario.name);
            let name = name.replace(|it: char| !it.is_alphanumeric(), "_");
            let trial = trial(&name, move || test(Scenario { version, ..scenario }));
            trials.push(trial.with_ignored_flag(true));
        };
        swept("variants", inside::ONE_LEARNER, sweep::each_variant);
        swept("variants", inside::TWO_LEARNERS, sweep::each_variant);
        swept("sweep", inside::TWO_LEARNERS, sweep::each_effect);
    }
    trials.push(trial("a_collector_receives_the_rounds_of_a_cluster", traces::show_rounds));
    trials
}

fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    let own = name.to_owned();
    Trial::ignorable_test(name, move || {
        if !is_ours(&own)? {
            return Ok(Completion::ignored_with("another process runs it"));
        }
        let began = Instant::now();
        test();
        note_time(&own, began.elapsed())?;
        Ok(Completion::Completed)
    })
}

/// `hack/tests` starts this program more than once: whichever comes first runs a test.
fn is_ours(test: &str) -> io::Result<bool> {
    let Some(claims) = std::env::var_os("TEST_CLAIMS") else { return Ok(true) };
    match fs::File::create_new(Path::new(&claims).join(test)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// In the file of `hack/timed`, if there is one.
fn note_time(test: &str, took: Duration) -> io::Result<()> {
    let Some(file) = std::env::var_os("TEST_TIMES") else { return Ok(()) };
    let mut file = fs::OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(file, "{} test operator/harness {test}", took.as_secs())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One world, one after the other.
    arguments.test_threads = Some(1);
    let trials = trials();
    let runs = |trial: &Trial| !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial);
    if !arguments.list && !inside::is() && trials.iter().any(runs) {
        let needs_cert_manager = trials.iter().any(|it| it.name() == cert_manager::TRIAL && runs(it));
        return inside::enter(needs_cert_manager);
    }
    if let Ok(filter) = std::env::var("HARNESS_LOG") {
        etcd_operator::telemetry::start(&filter, None).expect("it is a filter");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
