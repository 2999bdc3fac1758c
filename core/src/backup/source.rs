//! Which member a snapshot is taken from.

use std::fmt;

use crate::observed::{ClusterId, MemberId};

/// What a member reported. Its revision was read after the linearizable read, so it has everything that was acknowledged
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub cluster: ClusterId,
    pub member: MemberId,
    pub is_leader: bool,
    pub is_learner: bool,
    pub is_corrupt: bool,
    /// Whether it served a linearizable read; if not, why.
    pub linearizable: Result<(), String>,
    pub revision: i64,
}

/// An endpoint, and what the member behind it reported, or why there is no report.
pub type Endpoint = (String, Result<Candidate, String>);

/// Why no snapshot is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSource {
    /// These endpoints lead to different clusters, or not to the expected one.
    OtherCluster { endpoint: String, found: ClusterId, expected: ClusterId },
    /// Each endpoint, with the reason against it.
    NoHealthyVoter(Vec<(String, String)>),
}

impl fmt::Display for NoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCluster { endpoint, found, expected } => write!(
                f,
                "{endpoint} is a member of cluster {found}, not of cluster {expected}: check the endpoints and the cluster ID"
            ),
            Self::NoHealthyVoter(reasons) => {
                write!(f, "no healthy voter to take a snapshot from")?;
                for (at, (endpoint, reason)) in reasons.iter().enumerate() {
                    write!(f, "{} {endpoint}: {reason}", if at == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for NoSource {}

/// The index of the endpoint to call: the follower with the highest revision, and the leader if no follower is healthy, because
/// the leader is the busiest. A learner can be far behind.
pub fn choose(endpoints: &[Endpoint], expected: Option<ClusterId>) -> Result<usize, NoSource> {
    let answers = || endpoints.iter().filter_map(|(endpoint, it)| Some((endpoint, it.as_ref().ok()?)));
    if let Some(expected) = expected.or_else(|| answers().map(|(_, it)| it.cluster).next())
        && let Some((endpoint, other)) = answers().find(|(_, it)| it.cluster != expected)
    {
        return Err(NoSource::OtherCluster { endpoint: endpoint.clone(), found: other.cluster, expected });
    }
    let healthy = endpoints.iter().enumerate().filter_map(|(index, (_, it))| {
        let candidate = it.as_ref().ok()?;
        unfit(candidate).is_none().then_some((index, candidate))
    });
    // Of equal ones the first.
    let best = healthy.max_by_key(|(index, it)| (!it.is_leader, it.revision, std::cmp::Reverse(*index)));
    best.map(|(index, _)| index).ok_or_else(|| {
        let reason = |(endpoint, it): &Endpoint| {
            let reason = it.as_ref().map_or_else(|error| Some(error.clone()), unfit);
            (endpoint.clone(), reason.unwrap_or_default())
        };
        NoSource::NoHealthyVoter(endpoints.iter().map(reason).collect())
    })
}

fn unfit(candidate: &Candidate) -> Option<String> {
    if candidate.is_learner {
        return Some("it is a learner".into());
    }
    if candidate.is_corrupt {
        return Some("etcd reports that its data is corrupt (alarm CORRUPT)".into());
    }
    candidate.linearizable.as_ref().err().map(|error| format!("it serves no linearizable read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(revision: i64) -> Candidate {
        Candidate {
            cluster: ClusterId(0xc),
            member: MemberId(0xa),
            is_leader: false,
            is_learner: false,
            is_corrupt: false,
            linearizable: Ok(()),
            revision,
        }
    }

    fn endpoints(candidates: impl IntoIterator<Item = Result<Candidate, String>>) -> Vec<Endpoint> {
        candidates
            .into_iter()
            .zip(0..)
            .map(|(it, at): (_, u8)| (format!("http://kv-{at}:2379"), it))
            .collect()
    }

    #[test]
    fn the_follower_with_the_highest_revision_is_chosen_and_the_leader_only_without_one() {
        let leader = Candidate { is_leader: true, ..voter(12) };
        assert_eq!(choose(&endpoints([Ok(leader.clone()), Ok(voter(10)), Ok(voter(11))]), None), Ok(2));
        assert_eq!(choose(&endpoints([Ok(voter(10)), Ok(voter(10))]), None), Ok(0));
        assert_eq!(choose(&endpoints([Err("refused".into()), Ok(leader)]), None), Ok(1));
    }

    #[test]
    fn no_snapshot_is_taken_from_a_learner_a_corrupt_member_or_one_without_quorum() {
        let learner = Candidate { is_learner: true, ..voter(99) };
        let corrupt = Candidate { is_corrupt: true, ..voter(99) };
        let alone = Candidate { linearizable: Err("no leader".into()), ..voter(99) };
        let unfit = [Ok(learner), Ok(corrupt), Ok(alone), Err("connection refused".to_owned())];
        assert_eq!(choose(&endpoints(unfit.clone().into_iter().chain([Ok(voter(1))])), None), Ok(4));
        let error = choose(&endpoints(unfit), None).expect_err("none is healthy");
        assert_eq!(
            error.to_string(),
            "no healthy voter to take a snapshot from: http://kv-0:2379: it is a learner; http://kv-1:2379: etcd reports that \
             its data is corrupt (alarm CORRUPT); http://kv-2:2379: it serves no linearizable read: no leader; \
             http://kv-3:2379: connection refused"
        );
    }

    #[test]
    fn endpoints_of_another_cluster_are_refused() {
        let other = Candidate { cluster: ClusterId(0xd), ..voter(1) };
        for (list, expected) in
            [(vec![Ok(voter(1)), Ok(other.clone())], None), (vec![Ok(other)], Some(ClusterId(0xc)))]
        {
            let error = choose(&endpoints(list), expected).expect_err("it is another cluster").to_string();
            assert!(error.contains("is a member of cluster d, not of cluster c"), "{error}");
        }
    }
}
