//! The operator dies, stands still, has a rival, or loses the API server or etcd, always in the middle of its work.

mod away;
mod blind;
mod crash_sweep;
mod deleted_objects;
mod leadership;
mod outside;
mod panic;

use futures::FutureExt;

use crate::test::{Test, Topology};

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.exclusive("operator_faults::killed_after_every_step_of_a_scaling", |c| {
            crash_sweep::every_step(c).boxed_local()
        }),
        field.exclusive("operator_faults::killed_in_its_pod_while_scaling", |c| {
            leadership::killed_in_its_pod(c).boxed_local()
        }),
        field
            .exclusive("operator_faults::one_of_two_is_killed_while_scaling", |c| {
                leadership::one_of_two_is_killed(c).boxed_local()
            })
            .smoke(),
        field
            .exclusive("operator_faults::the_api_server_is_away_while_scaling_out", |c| {
                away::api_server(c, 1, 3).boxed_local()
            })
            .smoke(),
        field.exclusive("operator_faults::the_api_server_is_away_while_scaling_in", |c| {
            away::api_server(c, 3, 1).boxed_local()
        }),
        field
            .shared("operator_faults::one_etcd_is_cut_off_and_another_cluster_scales", |c| {
                away::etcd(c).boxed_local()
            })
            .smoke(),
        field.shared("operator_faults::an_operator_that_reaches_no_member_touches_nothing", |c| {
            blind::touches_nothing(c).boxed_local()
        }),
        field.shared("operator_faults::objects_that_somebody_deletes_return_and_no_member_restarts", |c| {
            deleted_objects::created_again(c).boxed_local()
        }),
        field
            .shared("operator_faults::a_stateful_set_that_is_deleted_with_its_pods_returns_with_them", |c| {
                deleted_objects::with_its_pods(c).boxed_local()
            }),
        field.exclusive("operator_faults::a_leader_that_ends_hands_over", |c| {
            leadership::handed_over(c).boxed_local()
        }),
        field.exclusive("operator_faults::a_leader_that_stood_still_does_no_harm", |c| {
            leadership::stood_still(c).boxed_local()
        }),
        field.exclusive("operator_faults::a_panic_in_one_cluster_leaves_others_alone", |c| {
            panic::in_one_cluster(c).boxed_local()
        }),
        field.exclusive("operator_faults::run_on_the_machine_itself", |c| {
            outside::on_the_machine(c).boxed_local()
        }),
    ]
}
