//! Connections are encrypted, and only what has a certificate of the cluster is let in.
//!
//! TLS is the default, so every other test of the operator is one of TLS, too. Under clients that write all the time:
//! `lifecycle::one_to_three_to_five_and_back_over_two` scales, `membership_faults::a_wiped_member_of_three_is_replaced` loses
//! volumes, and `membership_faults::a_leader_dies_while_it_is_scaled_in` kills a leader. All of them use the DNS profile `field`.

mod application;
mod cert_manager;
mod connections;
mod dialled;
mod hardening;
mod own;
mod renewal;
mod rotation;
mod switching;

use ::testbed::cluster::{Config, DnsProfile};
use futures::FutureExt;
use serde_json::json;

use crate::test::{Test, Topology};

pub fn tests(field: &Topology) -> Vec<Test> {
    let noreverse = Topology::Up(Config { nodes: 1, dns: DnsProfile::NoReverse });
    vec![
        field
            .shared("tls::only_certificates_of_the_cluster_are_accepted", |c| {
                connections::by_default(c).boxed_local()
            })
            .smoke(),
        field
            .shared("tls::an_application_mounts_the_secret_for_clients", |c| {
                application::reads_and_writes(c).boxed_local()
            })
            .smoke(),
        field
            .shared("tls::a_cluster_in_plain_text_stays_so", |c| connections::switched_off(c).boxed_local())
            .smoke(),
        field.shared("tls::the_checks_of_the_cis_benchmark_hold", |c| hardening::checks(c).boxed_local()),
        field.shared("tls::clients_in_plain_text_members_with_tls", |c| {
            connections::in_part(c, json!({"clientTLSEnabled": false})).boxed_local()
        }),
        field.shared("tls::members_in_plain_text_clients_with_tls", |c| {
            connections::in_part(c, json!({"peerTLSEnabled": false})).boxed_local()
        }),
        field.exclusive("tls::expiring_certificates_are_renewed_without_a_restart", |c| {
            renewal::without_a_restart(c).boxed_local()
        }),
        field.exclusive("tls::short_certificates_are_renewed_again_and_again", |c| {
            renewal::again_and_again(c).boxed_local()
        }),
        field.exclusive("tls::authorities_are_rotated_under_clients", |c| {
            rotation::under_clients(c).boxed_local()
        }),
        field.exclusive("tls::a_cluster_switches_to_tls_and_back_under_clients", |c| {
            switching::there_and_back(c).boxed_local()
        }),
        field.exclusive("tls::what_an_older_operator_left_in_plain_text_waits_for_its_owner", |c| {
            switching::applied(c).boxed_local()
        }),
        field.exclusive("tls::certificates_of_a_user_come_change_and_go_under_clients", |c| {
            own::under_clients(c).boxed_local()
        }),
        field.exclusive("tls::cert_manager_issues_and_renews_under_clients", |c| {
            cert_manager::under_clients(c).boxed_local()
        }),
        noreverse.shared("tls::members_accept_each_other_without_reverse_dns", |c| {
            connections::scaled(c).boxed_local()
        }),
    ]
}
