//! Tests of the testbed itself, with plain members where they need etcd. The operator has no part in them.

mod basics;
mod cleanup;
mod disk_faults;
mod histories;
mod images;
mod names;
mod network_faults;
mod node_faults;
mod process_faults;
mod volumes;
mod webhook;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt;
use testbed::cluster::{Config, DnsProfile};

use super::{BACK_OFF_LIMIT, KEY, LIMIT, VALUE, kill, pause};
use crate::etcd::Member;
use crate::plain::Plain;
use crate::runner::Context;
use crate::test::{About, Test, Topology};
use crate::wait;

pub fn tests(field: &Topology) -> Vec<Test> {
    let tests = [as_in_the_field(field), in_three_zones(), on_one_node(), on_a_bare_machine()];
    tests.into_iter().flatten().map(|test| test.about(About::Testbed)).collect()
}

fn as_in_the_field(field: &Topology) -> Vec<Test> {
    vec![
        field
            .shared("basics::exec_logs_and_port_forward_work", |c| basics::from_outside(c).boxed_local())
            .always(),
        field
            .shared("basics::a_node_port_answers_on_every_node", |c| basics::node_port(c).boxed_local())
            .smoke(),
        field
            .shared("basics::a_pod_reaches_services", |c| basics::services_from_a_pod(c).boxed_local())
            .always(),
        field
            .shared("basics::a_privileged_pod_is_refused", |c| basics::pod_security(c).boxed_local())
            .smoke(),
        field
            .exclusive("basics::a_webhook_on_the_machine_decides", |c| webhook::decides(c).boxed_local())
            .smoke(),
        field
            .shared("volumes::a_claim_waits_for_its_pod", |c| volumes::first_consumer(c).boxed_local())
            .smoke(),
        field
            .shared("volumes::a_disk_has_the_requested_size", |c| volumes::full_disk(c).boxed_local())
            .smoke(),
        field.shared("volumes::a_volume_in_use_grows", |c| volumes::grown(c).boxed_local()).smoke(),
        field.shared("volumes::a_class_can_forbid_growth", |c| volumes::fixed(c).boxed_local()).smoke(),
        field
            .shared("volumes::a_deleted_claim_takes_its_data_along", |c| volumes::deleted(c).boxed_local())
            .always(),
        field
            .shared("volumes::a_retained_volume_outlives_its_claim", |c| volumes::retained(c).boxed_local())
            .smoke(),
        field
            .shared("images::an_unknown_image_is_asked_of_nobody", |c| images::unknown(c).boxed_local())
            .smoke(),
        field
            .shared("images::an_image_can_be_pulled_always", |c| images::pulled_always(c).boxed_local())
            .always(),
        field.shared("images::etcd_of_any_version_on_demand", |c| images::any_etcd(c).boxed_local()),
        field.shared("dns::field_remembers_a_no", |c| names::field_remembers(c).boxed_local()).smoke(),
        field.shared("dns::field_names_addresses", |c| names::reverse_answers(c).boxed_local()).smoke(),
    ]
}

/// With a DNS that remembers nothing: three plain members that start together look each other up too early, and
/// would lose half a minute in each test to the answer "no" that cluster DNS remembers.
fn in_three_zones() -> Vec<Test> {
    let zones = Topology::Up(Config { nodes: 3, dns: DnsProfile::Fast });
    vec![
        zones.shared("basics::members_are_spread_over_zones", |c| basics::zones(c).boxed_local()).smoke(),
        zones.shared("dns::fast_sees_a_new_name_at_once", |c| names::fast_forgets(c).boxed_local()).smoke(),
        zones
            .shared("faults::a_killed_process_comes_back", |c| process_faults::killed(c).boxed_local())
            .smoke(),
        zones
            .shared("histories::a_killed_leader_loses_nothing", |c| histories::leader_killed(c).boxed_local())
            .smoke(),
        zones.shared("histories::a_lost_quorum_loses_nothing", |c| histories::quorum_lost(c).boxed_local()),
        zones
            .shared("faults::a_paused_process_is_silent", |c| process_faults::paused(c).boxed_local())
            .smoke(),
        zones
            .shared("faults::a_pod_can_be_cut_off", |c| network_faults::pod_cut_off(c).boxed_local())
            .smoke(),
        zones
            .shared("faults::a_pod_can_be_cut_one_way", |c| network_faults::pod_cut_one_way(c).boxed_local())
            .smoke(),
        zones
            .exclusive("faults::two_nodes_cut_off_lose_the_quorum", |c| {
                network_faults::quorum_lost(c).boxed_local()
            })
            .smoke(),
        zones.exclusive("faults::a_node_can_be_cut_one_way", |c| {
            network_faults::node_cut_one_way(c).boxed_local()
        }),
        zones
            .exclusive("faults::denied_names_do_not_exist", |c| network_faults::names_denied(c).boxed_local())
            .smoke(),
        zones
            .exclusive("faults::a_crashed_node_comes_back", |c| node_faults::crashed(c).boxed_local())
            .smoke(),
        zones
            .exclusive("faults::etcd_serves_without_the_api_server", |c| {
                node_faults::api_stopped(c).boxed_local()
            })
            .smoke(),
        zones.shared("faults::a_wiped_volume_is_empty", |c| disk_faults::wiped(c).boxed_local()).smoke(),
        zones.shared("faults::a_damaged_log_is_not_read", |c| disk_faults::damaged(c).boxed_local()),
        zones.shared("faults::a_deleted_volume_is_gone", |c| disk_faults::deleted(c).boxed_local()).smoke(),
        zones
            .shared("faults::etcd_cannot_write_to_a_full_disk", |c| disk_faults::filled(c).boxed_local())
            .smoke(),
    ]
}

fn on_one_node() -> Vec<Test> {
    let noreverse = Topology::Up(Config { nodes: 1, dns: DnsProfile::NoReverse });
    vec![
        noreverse
            .shared("dns::noreverse_names_no_address", |c| names::reverse_is_silent(c).boxed_local())
            .smoke(),
    ]
}

fn on_a_bare_machine() -> Vec<Test> {
    let bare = Topology::Bare;
    vec![
        bare.exclusive("cleanup::down_after_sigkill_leaves_nothing", |c| {
            cleanup::nothing_is_left(c).boxed_local()
        })
        .smoke(),
        bare.exclusive("cleanup::up_heals_what_a_killed_up_left", |c| cleanup::up_heals(c).boxed_local())
            .smoke(),
    ]
}

/// Three members on three nodes that hold [`KEY`].
struct Three {
    plain: Plain,
    members: Vec<Member>,
    /// By pod.
    nodes: BTreeMap<String, String>,
}

impl Three {
    async fn create(context: &Context) -> Result<Self> {
        let plain = context.plain(3).spread();
        let members = plain.create(context.client(), LIMIT).await?;
        members[0].put(KEY, VALUE).await?;
        let nodes = plain.nodes(context.client()).await?;
        context.step("three members serve");
        Ok(Self { plain, members, nodes })
    }

    fn on(&self, node: &str) -> Result<&Member> {
        let here = |member: &&Member| self.nodes.get(&member.name).is_some_and(|at| at == node);
        self.members.iter().find(here).with_context(|| format!("no member on {node}"))
    }

    fn others(&self, than: &Member) -> impl Iterator<Item = &Member> {
        let than = than.name.clone();
        self.members.iter().filter(move |member| member.name != than)
    }

    /// Waits until every member reads what was written before the fault.
    async fn whole_again(&self, context: &Context, limit: Duration) -> Result<()> {
        for member in &self.members {
            serves_again(member, limit).await?;
        }
        context.step("all members serve, no data is lost");
        Ok(())
    }
}

/// Waits until a member serves, and looks whether what was written before is there.
async fn serves_again(member: &Member, limit: Duration) -> Result<()> {
    let what = format!("{} serves again", member.name);
    wait::until(&what, limit, async || member.linearizable_read(KEY).await.map(|_| true)).await?;
    let value = member.linearizable_read(KEY).await?;
    ensure!(value.as_deref() == Some(VALUE), "{} lost what was written: {value:?}", member.name);
    Ok(())
}

/// Looks whether each of these members serves, now.
async fn all_serve<'a>(members: impl IntoIterator<Item = &'a Member>) -> Result<()> {
    for member in members {
        let value =
            member.linearizable_read(KEY).await.with_context(|| format!("{} must serve", member.name))?;
        ensure!(value.as_deref() == Some(VALUE), "{} lost what was written: {value:?}", member.name);
    }
    Ok(())
}
