//! Members that cannot come, go at the wrong moment or lose their data, and edits that ask for too much.

mod adoption;
mod cut_leader;
mod damaged_log;
mod data_lost;
mod edits;
mod every_minor;
mod evictions;
mod full;
mod impossible;
mod lost_node;
mod many_nodes;
mod missed_voter;
mod no_names;
mod no_room;
mod other_data;
mod quorum_lost;
mod stillborn;
mod stuck_learner;
mod sudden_ends;
mod two_members;
mod uninvited;
mod without_quorum;

use futures::FutureExt;

use crate::test::{Test, Topology};

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field
            .shared("membership_faults::a_scaling_without_room_can_be_taken_back", |c| {
                no_room::taken_back(c).boxed_local()
            })
            .smoke(),
        field.shared("membership_faults::a_pod_without_room_stalls_only_itself", |c| {
            no_room::stalls_only_itself(c).boxed_local()
        }),
        field.shared("membership_faults::two_of_three_form_the_cluster", |c| {
            no_room::two_of_three(c).boxed_local()
        }),
        field.shared("membership_faults::an_image_that_does_not_exist_is_named", |c| {
            impossible::by_image(c).boxed_local()
        }),
        field.shared("membership_faults::a_storage_class_that_does_not_exist_is_named", |c| {
            impossible::by_storage_class(c).boxed_local()
        }),
        field.shared("membership_faults::a_scaling_without_volumes_can_be_taken_back", |c| {
            impossible::by_volume(c).boxed_local()
        }),
        field.exclusive("membership_faults::every_fault_with_etcd_3_6", |c| {
            every_minor::faults(c, "v3.6.16").boxed_local()
        }),
        field.exclusive("membership_faults::every_fault_with_etcd_3_7", |c| {
            every_minor::faults(c, "v3.7.3").boxed_local()
        }),
        field.shared("membership_faults::a_cluster_that_never_formed_gets_another_size", |c| {
            no_room::never_formed(c).boxed_local()
        }),
        field.shared("membership_faults::a_birth_that_leaves_nothing_behind_is_told", |c| {
            stillborn::told_and_made_anew(c).boxed_local()
        }),
        field
            .shared("membership_faults::deleted_without_a_quorum", |c| quorum_lost::deleted(c).boxed_local()),
        field.shared("membership_faults::one_member_continues_with_consent", |c| {
            quorum_lost::recovered(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_lost_volume_is_no_reason_to_form_a_cluster_again", |c| {
            data_lost::beside_a_sibling(c).boxed_local()
        }),
        field
            .shared("membership_faults::a_wiped_single_member_is_not_born_again", |c| {
                data_lost::single(c).boxed_local()
            })
            .smoke(),
        field.shared("membership_faults::a_wiped_member_of_three_is_replaced", |c| {
            data_lost::one_of_three(c).boxed_local()
        }),
        field.shared("membership_faults::members_with_other_data_are_replaced", |c| {
            other_data::replaced(c).boxed_local()
        }),
        field.shared("membership_faults::volumes_of_a_former_cluster_are_adopted", |c| {
            adoption::adopted(c).boxed_local()
        }),
        field.shared("membership_faults::pods_are_deleted_while_scaling", |c| {
            sudden_ends::pods_deleted(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_node_crashes_while_scaling", |c| {
            sudden_ends::node_crashes(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_member_on_a_crashed_node_is_replaced", |c| {
            lost_node::stays_down(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_leader_on_a_node_that_is_cut_off_is_replaced", |c| {
            lost_node::cut_off(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_member_whose_node_returns_in_time_stays", |c| {
            lost_node::returns_in_time(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_member_that_terminates_on_a_crashed_node_is_replaced", |c| {
            lost_node::stays_terminating(c).boxed_local()
        }),
        field.exclusive("membership_faults::a_member_whose_node_was_shut_down_returns_with_it", |c| {
            lost_node::shut_down(c).boxed_local()
        }),
        field.exclusive("membership_faults::nodes_that_are_cut_off_for_long_lose_no_pod", |c| {
            many_nodes::cut_off(c).boxed_local()
        }),
        field.exclusive("membership_faults::all_nodes_crash_at_once", |c| {
            many_nodes::crashed(c).boxed_local()
        }),
        field.shared("membership_faults::members_without_a_quorum_are_left_alone", |c| {
            without_quorum::left_alone(c).boxed_local()
        }),
        field.shared("membership_faults::a_member_that_was_removed_by_hand_joins_again", |c| {
            uninvited::removed(c).boxed_local()
        }),
        field.shared("membership_faults::a_member_that_nobody_asked_for_is_removed", |c| {
            uninvited::added(c).boxed_local()
        }),
        field.shared("membership_faults::a_member_that_is_removed_while_it_joins_joins_again", |c| {
            uninvited::removed_while_it_joins(c).boxed_local()
        }),
        field.shared("membership_faults::a_leader_that_is_cut_off_stays_a_member", |c| {
            cut_leader::stays_a_member(c).boxed_local()
        }),
        field.shared("membership_faults::evictions_in_parallel_leave_a_quorum", |c| {
            evictions::in_parallel(c).boxed_local()
        }),
        field.shared("membership_faults::a_damaged_log_is_named_and_its_member_replaced_on_request", |c| {
            damaged_log::named_and_replaced(c).boxed_local()
        }),
        field.shared("membership_faults::a_full_disk_is_named_and_its_member_continues", |c| {
            full::disk(c).boxed_local()
        }),
        field.shared("membership_faults::a_full_database_gets_room_again", |c| {
            full::database(c).boxed_local()
        }),
        field.shared("membership_faults::a_learner_that_stands_still_blocks_nothing", |c| {
            stuck_learner::blocks_nothing(c).boxed_local()
        }),
        field.shared("membership_faults::either_of_two_members_dies", |c| {
            two_members::either_dies(c).boxed_local()
        }),
        field.exclusive("membership_faults::names_that_do_not_resolve_lose_nothing", |c| {
            no_names::come_back(c).boxed_local()
        }),
        field.shared("membership_faults::a_leader_dies_while_it_is_scaled_in", |c| {
            sudden_ends::leader_killed(c).boxed_local()
        }),
        field.shared("membership_faults::members_come_and_go_although_the_leader_misses_one", |c| {
            missed_voter::come_and_go(c).boxed_local()
        }),
        field
            .shared("membership_faults::edits_that_break_a_rule_are_refused", |c| {
                edits::refused_at_once(c).boxed_local()
            })
            .smoke(),
    ]
}
