//! What only a real API server can tell: that it takes what we ship, what it refuses, and what our rights
//! allow.
//!
//! Most tests share a control plane, or one on which an operator works, and have a namespace of their own. Nothing may be
//! left when the last of them has ended, so this program has a main function of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use kube::{Api, Client, Config, Resource};
use libtest_mimic::{Arguments, Trial};
use testbed::api_only::ApiOnly;
use testbed::shell::run;

mod backups;
mod cert_manager;
mod certificates;
mod definitions;
mod foreign;
mod lease;
mod lifecycle;
mod manifests;
mod metrics;
mod network_policies;
mod nodes;
mod objects;
mod operated;
mod panics;
mod pod_monitors;
mod reports;
mod rights;
mod rolls;
mod rules;
mod shared;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";
/// They mostly wait.
const AT_ONCE: usize = 4;

macro_rules! trials {
    ($($module:ident: $($test:ident)*;)*) => {
        vec![$($(Trial::test(stringify!($test), || {
            shared::block_on($module::$test());
            Ok(())
        }),)*)*]
    };
}

fn trials() -> Vec<Trial> {
    trials! {
        backups:
            a_backup_is_one_job_that_no_second_one_follows_and_it_goes_with_its_backup
            an_archiver_follows_the_first_copy_and_ends_when_it_is_suspended
            what_a_backup_lacks_is_named_and_noticed_when_it_is_there;
        cert_manager:
            cert_manager_is_awaited_asked_and_used_and_not_asked_any_more;
        certificates:
            a_cluster_owns_its_certificates_and_a_deleted_one_returns_from_the_same_authority
            a_name_that_a_user_adds_is_in_the_same_secret_soon
            a_secret_of_another_owner_is_left_alone_and_named
            a_cluster_in_plain_text_has_no_certificates;
        definitions:
            what_is_left_out_gets_its_default
            a_cluster_is_scaled_by_the_scale_subresource
            people_find_the_kinds_and_their_help
            backups_and_restores_are_checked_too;
        lease:
            one_of_two_leads_and_hands_over_when_it_stops
            who_is_silent_is_replaced_after_the_full_time_and_knows_when_it_wakes_up
            whatever_others_do_to_the_lease_is_survived;
        lifecycle:
            a_cluster_is_born_with_its_finalizer_and_owns_what_is_made_for_it
            a_cluster_that_never_formed_takes_another_size
            a_deleted_cluster_goes_and_its_volumes_do_what_was_asked_for
            a_service_of_another_owner_is_left_alone_and_named_and_holds_nothing_else_up
            a_selector_that_somebody_narrowed_is_put_right
            no_pod_is_created_without_the_peer_service
            a_pod_that_cannot_be_created_is_named_with_the_api_servers_reason
            an_invalid_spec_stops_nothing_that_is_in_effect
            a_cluster_whose_namespace_is_being_deleted_waits_for_it_to_go;
        manifests:
            every_example_is_accepted_by_the_api_server
            every_example_is_valid_and_says_only_what_our_types_know
            the_manifest_of_the_user_guide_is_what_the_guide_speaks_of
            crds_and_operator_together_are_everything
            removing_the_operator_changes_no_cluster
            the_operators_namespace_accepts_no_cluster;
        metrics:
            metrics_are_for_users_that_the_api_server_allows_to_read_them
            without_the_right_to_review_nobody_reads_metrics_and_the_response_names_it
            a_certificate_in_files_is_read_again_when_it_changes
            the_series_of_a_cluster_come_with_it_and_vanish_with_it;
        network_policies:
            a_network_policy_appears_is_put_right_and_goes_with_its_field
            a_network_policy_of_another_owner_is_left_alone_and_named;
        nodes:
            nodes_are_read_as_soon_as_that_is_allowed;
        objects:
            a_namespace_that_is_restricted_takes_everything_that_makes_up_a_cluster;
        panics:
            a_worker_that_panics_is_reported_and_others_do_not_notice;
        pod_monitors:
            a_pod_monitor_is_awaited_created_put_right_and_deleted_and_holds_nothing_up;
        reports:
            a_restore_creates_its_cluster_its_volume_and_a_job_and_no_secrets_are_listed;
        rights:
            an_operator_of_one_namespace_works_there_and_has_no_rights_elsewhere
            a_missing_right_on_secrets_is_named_in_the_status_and_missed_until_it_is_granted
            who_can_view_or_edit_a_namespace_can_do_so_with_its_clusters
            the_operator_can_be_installed_twice_for_high_availability;
        rolls:
            a_template_is_replaced_as_a_whole_and_only_as_it_was_observed
            a_pod_is_evicted_only_if_it_is_the_observed_one_and_the_budget_allows_it
            a_pod_on_a_lost_node_is_deleted_by_force_only_if_it_is_the_observed_one
            a_preflight_pod_is_created_once_and_is_gone_as_soon_as_it_is_deleted;
        rules:
            the_api_server_and_the_operator_agree_on_every_spec_and_the_field_that_is_wrong;
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let conclusion = libtest_mimic::run(&arguments, trials());
    shared::end();
    conclusion.exit_code()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A control plane with `config/everything` in it. There are no nodes, so no pod of ours runs.
async fn installed() -> ApiOnly {
    let api = ApiOnly::start().await.expect("a control plane starts");
    let config = root().join("config/everything").display().to_string();
    kubectl(&api, &["apply", "--server-side", "-k", &config]).await;
    kubectl(&api, &["wait", "--for=condition=Established", "crd", "--all"]).await;
    api
}

/// What an administrator's kubectl prints.
async fn kubectl(api: &ApiOnly, arguments: &[&str]) -> String {
    let program = api.kubectl().display().to_string();
    let kubeconfig = api.kubeconfig().display().to_string();
    let line = [&[program.as_str(), "--kubeconfig", &kubeconfig], arguments].concat();
    run(&line).await.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error:#}"))
}

/// A client with the rights that the operator's pod has.
async fn as_operator(api: &ApiOnly) -> Client {
    let kubeconfig = Kubeconfig::read_from(api.kubeconfig()).expect("the kubeconfig is there");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it can be used");
    config.auth_info.impersonate = Some(SERVICE_ACCOUNT.into());
    etcd_operator::client::build(config).expect("it makes a client")
}

/// As JSON, because the Rust types would not let a wrong object out.
fn untyped<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    Api::namespaced_with(client.clone(), namespace, &resource)
}
