//! What users ask for once, by annotations on an EtcdCluster. Each request has a token or an ID and is carried out once, also
//! when the same annotation is applied again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::form::Digest;
use crate::names::{ANNOTATION_OF, Names};
use crate::observed::{MemberId, Ordinal};

/// Restarts all members, or one: `TOKEN` or `TOKEN/POD`.
pub const RESTART: &str = "restart";
/// Moves leadership to the member of a pod: `TOKEN/POD`.
pub const MOVE_LEADER: &str = "move-leader";
/// Replaces the member with this ID, in hexadecimal as in etcdctl.
pub const REPLACE_MEMBER: &str = "replace-member";
/// Lets a supervised rollout continue to this form, which the status names.
pub const APPROVE_ROLLOUT: &str = "approve-rollout";

/// Replaces the authorities that sign certificates: `TOKEN`.
pub const ROTATE_CA: &str = "rotate-ca";
/// Lets a field of the spec take effect that had none when the operator first saw the cluster.
pub const APPLY: &str = "apply";
/// The only such field.
const APPLY_TLS: &str = "security.tls";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    pub restart: Option<Restart>,
    pub move_leader: Option<MoveLeader>,
    pub replace: Option<MemberId>,
    pub approved: Option<Digest>,
    pub rotation: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apply_tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    pub token: String,
    /// All without one.
    pub pod: Option<Ordinal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveLeader {
    pub token: String,
    pub to: Ordinal,
}

/// A request that the operator has accepted, as the status remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accepted {
    /// With the UIDs of the pods that existed then.
    Restart {
        token: String,
        pods: Vec<String>,
    },
    MoveLeader {
        token: String,
    },
    /// With the keys of the authorities that were introduced for it.
    Rotation {
        token: String,
        authorities: Vec<String>,
    },
}

/// An annotation that is no request, and how it should be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub annotation: &'static str,
    pub expected: &'static str,
}

impl Asked {
    /// What cannot be read asks for nothing.
    pub fn read(annotations: &BTreeMap<String, String>, names: &Names) -> (Self, Vec<Malformed>) {
        let mut malformed = Vec::new();
        let mut text = |annotation: &'static str, expected: &'static str, fits: bool| {
            if !fits {
                malformed.push(Malformed { annotation, expected });
            }
        };
        let value =
            |name: &str| annotations.get(&format!("{ANNOTATION_OF}{name}")).filter(|it| !it.is_empty());
        let with_pod = |value: &String| {
            let (token, pod) = value.split_once('/')?;
            Some((token.to_owned(), names.ordinal_of_pod(pod)?)).filter(|(token, _)| !token.is_empty())
        };
        let restart = value(RESTART).map(|value| match value.contains('/') {
            true => with_pod(value).map(|(token, pod)| Restart { token, pod: Some(pod) }),
            false => Some(Restart { token: value.clone(), pod: None }),
        });
        text(RESTART, "TOKEN, or TOKEN/POD for one member", restart != Some(None));
        let move_leader =
            value(MOVE_LEADER).map(|value| with_pod(value).map(|(token, to)| MoveLeader { token, to }));
        text(MOVE_LEADER, "TOKEN/POD", move_leader != Some(None));
        let replace = value(REPLACE_MEMBER).map(|value| u64::from_str_radix(value, 16).ok().map(MemberId));
        text(
            REPLACE_MEMBER,
            "the ID of a member in hexadecimal, as in status.members",
            replace != Some(None),
        );
        let apply = value(APPLY).map(|value| value == APPLY_TLS);
        text(APPLY, APPLY_TLS, apply != Some(false));
        let asked = Self {
            restart: restart.flatten(),
            move_leader: move_leader.flatten(),
            replace: replace.flatten(),
            approved: value(APPROVE_ROLLOUT).cloned().map(Digest),
            rotation: value(ROTATE_CA).cloned(),
            apply_tls: apply == Some(true),
        };
        (asked, malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> (Asked, Vec<&'static str>) {
        let names = Names::new("ns", "kv", "cluster.local");
        let annotations =
            annotations.iter().map(|(name, value)| (format!("{ANNOTATION_OF}{name}"), (*value).to_owned()));
        let (asked, malformed) = Asked::read(&annotations.collect(), &names);
        (asked, malformed.iter().map(|it| it.annotation).collect())
    }

    #[test]
    fn requests_are_read_from_their_annotations() {
        let (asked, malformed) = read(&[
            (RESTART, "monday"),
            (MOVE_LEADER, "t/kv-1"),
            (REPLACE_MEMBER, "8e9e05c52164694d"),
            (APPROVE_ROLLOUT, "cd80"),
            (ROTATE_CA, "yearly"),
            (APPLY, "security.tls"),
        ]);
        assert!(asked.apply_tls);
        assert_eq!(malformed, [""; 0]);
        assert_eq!(asked.restart, Some(Restart { token: "monday".into(), pod: None }));
        assert_eq!(asked.move_leader, Some(MoveLeader { token: "t".into(), to: Ordinal(1) }));
        assert_eq!(asked.replace, Some(MemberId(0x8e9e_05c5_2164_694d)));
        assert_eq!(asked.approved, Some(Digest("cd80".into())));
        assert_eq!(asked.rotation, Some("yearly".into()));
        let (asked, _) = read(&[(RESTART, "monday/kv-2")]);
        assert_eq!(asked.restart, Some(Restart { token: "monday".into(), pod: Some(Ordinal(2)) }));
    }

    #[test]
    fn what_is_no_request_asks_for_nothing_and_is_named() {
        for (annotation, value) in [
            (RESTART, "monday/other-1"),
            (RESTART, "/kv-1"),
            (MOVE_LEADER, "kv-1"),
            (MOVE_LEADER, "t/kv-one"),
            (REPLACE_MEMBER, "kv-1"),
            (APPLY, "security"),
        ] {
            assert_eq!(read(&[(annotation, value)]), (Asked::default(), vec![annotation]), "{value}");
        }
        assert_eq!(read(&[(RESTART, "")]), (Asked::default(), vec![]), "an empty one is none");
    }
}
