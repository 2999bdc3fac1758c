//! Plays looks at one cluster after each other, each with the status that the one before has written.

use std::collections::BTreeMap;

use std::fmt::Write;

use etcd_operator_core::api::{EtcdCluster, EtcdClusterStatus, MemberStatus};
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::desired::{self, PodAgent};
use etcd_operator_core::events;
use etcd_operator_core::names::{ANNOTATION_OF, Names};
use etcd_operator_core::observed::{Observed, Ordinal, Pod};
use etcd_operator_core::status::{Basis, FailedWrite, Trouble, of_cluster};
use etcd_operator_core::tls::Switch;
use etcd_operator_core::validate::validate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::snapshot;

type Result<T> = std::result::Result<T, String>;

/// The same file with the statuses of now.
pub fn replay(written: &str) -> Result<String> {
    let mut now = String::new();
    let mut story = Story::default();
    let mut told = false;
    for line in written.lines() {
        if line.starts_with("== ") {
            (story, told) = (Story::default(), false);
        } else if told && !line.is_empty() {
            continue;
        } else if told {
            told = false;
        } else if line == "--" {
            write!(now, "--\n{}", story.look()?).map_err(|problem| problem.to_string())?;
            told = true;
            continue;
        } else {
            story.hear(line)?;
        }
        now.push_str(line);
        now.push('\n');
    }
    Ok(format!("{}\n", now.trim_end()))
}

#[derive(Default)]
struct Story {
    /// In the words of the snapshots.
    world: String,
    spec: Value,
    annotations: BTreeMap<String, String>,
    trouble: Option<Trouble>,
    failed_writes: Vec<FailedWrite>,
    made_with: Option<Value>,
    generation: i64,
    status: Option<EtcdClusterStatus>,
}

impl Story {
    fn hear(&mut self, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "spec" => {
                self.spec = serde_json::from_str(rest).map_err(|problem| format!("{problem}, in: {line}"))?;
                self.generation += 1;
            }
            "ask" => {
                let (name, value) = rest.split_once(' ').ok_or("ask NAME VALUE")?;
                self.annotations.insert(format!("{ANNOTATION_OF}{name}"), value.into());
                self.world.push_str(&format!("{line}\n"));
            }
            "trouble" => self.trouble = Some(Trouble::Failed(rest.to_owned())),
            "etcd-says" => self.trouble = Some(Trouble::EtcdNotYet(rest.to_owned())),
            "left-behind" => self.trouble = Some(Trouble::LeftBehind(rest.to_owned())),
            "eviction-rejected" => self.trouble = Some(Trouble::EvictionNotYet(rest.to_owned())),
            "namespace-ending" => self.trouble = Some(Trouble::NamespaceEnding),
            "trouble-over" => self.trouble = None,
            "write-failed" => {
                let (object, error) = rest.split_once(": ").ok_or("write-failed OBJECT: ERROR")?;
                self.failed_writes.push(FailedWrite { object: object.into(), error: error.into() });
            }
            "writes-succeed" => self.failed_writes.clear(),
            "made-with" => {
                let spec = serde_json::from_str(rest).map_err(|problem| format!("{problem}, in: {line}"))?;
                self.made_with = Some(spec);
            }
            _ => {
                self.world.push_str(line);
                self.world.push('\n');
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<String> {
        let (asked_for, seen) = snapshot::read(&self.world)?;
        let cluster = self.cluster(&asked_for, &self.spec, seen.cluster.deleting)?;
        let names = Names::new("ns", "kv", "cluster.local");
        let intent = validate(&cluster).map(|intent| {
            let switch = Switch::of(&cluster.spec.security.tls, intent.asked.apply_tls, &seen);
            intent.with_switch(switch)
        });
        let goal = match &intent {
            // Most stories are not about what ports serve.
            Ok(intent) => Goal { switch: seen.transport.map(|_| intent.switch.clone()), ..asked_for.clone() },
            Err(_) => Goal {
                certificates: asked_for.certificates.clone(),
                ..Goal::in_effect(&cluster.spec, seen.replicas())
            },
        };
        let (not_applied, edited) = match (&intent, &self.made_with) {
            (Ok(intent), Some(spec)) => {
                let former =
                    validate(&self.cluster(&asked_for, spec, false)?).map_err(|it| format!("{it:?}"))?;
                let desired =
                    |intent| desired::Desired { intent, names: &names, agent_image: "op:1", operator: None };
                let set = desired(&former).stateful_set(3, &former.form);
                let not_applied = desired::not_applied(&set, &desired(intent).claim());
                (not_applied, intent.form.differences(&former.form))
            }
            (Ok(_) | Err(_), _) => Default::default(),
        };
        let plan = decide(&goal, &seen);
        let agents = agents(&seen);
        let basis = Basis {
            goal: &goal,
            spec: intent.as_ref().map_err(|problems| problems.as_slice()),
            names: &names,
            seen: &seen,
            plan: &plan,
            trouble: self.trouble.as_ref(),
            failed_writes: &self.failed_writes,
            not_applied: &not_applied,
            edited: &edited,
            agents: &agents,
        };
        let Some(next) = of_cluster(&cluster, &basis, seen.now) else { return Ok("nothing new\n".into()) };
        let written = EtcdCluster { status: Some(next.clone()), ..cluster };
        assert_eq!(of_cluster(&written, &basis, seen.now), None, "what was written says it all");
        let text = shown(self.status.as_ref(), &next);
        self.status = Some(next);
        Ok(text)
    }

    fn cluster(&self, goal: &Goal, more: &Value, deleting: bool) -> Result<EtcdCluster> {
        let mut spec = json!({
            "size": goal.size, "paused": goal.paused, "version": "3.6.0",
            "security": {"tls": {"enabled": false}},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let spec = serde_json::from_value(spec).map_err(|problem| problem.to_string())?;
        let mut cluster = EtcdCluster::new("kv", spec);
        cluster.metadata.generation = Some(self.generation);
        cluster.metadata.annotations = Some(self.annotations.clone());
        cluster.metadata.deletion_timestamp = deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        cluster.status = self.status.clone();
        Ok(cluster)
    }
}

/// The version of an agent is the number of its protocol here.
fn agents(seen: &Observed) -> BTreeMap<Ordinal, PodAgent> {
    let of_new_pods = seen.set.as_ref().map(|set| set.agent);
    let agent = |pod: &Pod| PodAgent {
        version: pod.agent.0.to_string(),
        outdated: of_new_pods.is_some_and(|of_new_pods| of_new_pods != pod.agent),
    };
    seen.pods.iter().map(|(&ordinal, pod)| (ordinal, agent(pod))).collect()
}

/// What deserves a look: conditions that say that all is well are left out.
fn shown(before: Option<&EtcdClusterStatus>, status: &EtcdClusterStatus) -> String {
    let unobserved = |status: &EtcdClusterStatus| EtcdClusterStatus { observed_at: None, ..status.clone() };
    if before.is_some_and(|before| unobserved(before) == unobserved(status)) {
        return "nothing but that it was looked at\n".into();
    }
    let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
    let mut text = format!("{phase}, ready {}", status.ready_replicas.unwrap_or(-1));
    text.extend(status.replicas.map(|replicas| format!(" of {replicas}")));
    let facts =
        [("version", &status.version), ("cluster", &status.cluster_id), ("leader", &status.leader_id)];
    for (name, value) in facts {
        text.extend(value.iter().map(|value| format!(", {name} {value}")));
    }
    text.extend(
        status.awaited_backup.iter().map(|it| format!(", awaits {}/{} {}", it.namespace, it.name, it.token)),
    );
    text.push('\n');
    for condition in status.conditions.iter().filter(|it| !is_well(it)) {
        let Condition { type_, status, reason, message, .. } = condition;
        text.push_str(&format!("{type_}={status} {reason}: {message}\n"));
    }
    text.extend(status.members.iter().map(member));
    for event in events::of_change(before, status) {
        let kind = if event.warning { "warning" } else { "event" };
        text.push_str(&format!("{kind}: {}: {}\n", event.reason, event.note));
    }
    text
}

fn is_well(condition: &Condition) -> bool {
    let plain = condition.reason != "ConsentRequired" && !condition.message.contains("the agent");
    plain
        && matches!(
            (condition.type_.as_str(), condition.status.as_str()),
            ("Available", "True") | ("Reconciling" | "Stalled" | "QuorumLost", "False")
        )
}

fn member(member: &MemberStatus) -> String {
    let name = member.name.as_deref().unwrap_or("nobody's");
    let mut words = vec![format!("  {name}")];
    words.extend(member.id.clone());
    words.extend(member.role.map(|role| format!("{role:?}")));
    words.push(format!("{:?}", member.health));
    words.extend(member.version.clone());
    words.extend(member.agent_version.as_ref().filter(|it| *it == "1").map(|it| format!("agent {it}")));
    words.extend(member.target_version.as_ref().map(|version| format!("to be {version}")));
    words.extend(member.ready.then(|| "ready".into()));
    words.extend(member.reason.as_ref().map(|reason| format!("because: {reason};")));
    words.extend(member.waiting_for.as_ref().map(|awaited| format!("waits for: {awaited}")));
    words.join(" ") + "\n"
}
