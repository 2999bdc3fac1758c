//! Sends one request, and says what became of it.

use etcd_operator_core::request::{Call, MemberChange, Request, Target, http};
use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;
use kube::Client;
use serde_json::Value;

use super::observation::Observation;
use super::{outcome, pods};
use crate::agent;
use crate::reach::Reach;

pub struct Executor<'a> {
    pub client: &'a Client,
    pub reach: &'a Reach,
    pub target: Target<'a>,
    /// Has the connections to the members and the addresses of the pods.
    pub observation: &'a Observation,
}

impl Executor<'_> {
    /// Returns what the API server responded, or why the request was not carried out.
    pub async fn send(&self, request: &Request) -> Result<Value, Outcome> {
        match request {
            Request::Kube(write) => {
                let invalid = || Outcome::NotDone(Trouble::Failed("the spec is invalid".into()));
                let request = http(write, self.target).ok_or_else(invalid)?;
                self.client.request(request).await.map_err(|error| outcome::of_api_server(&error))
            }
            Request::Etcd(call) => self.call(call).await,
            Request::Tell(pod, news) => {
                let address = self.observation.objects.pods.get(pod).and_then(|pod| pods::address(pod));
                let address = address.ok_or(Outcome::Overtaken)?;
                let told = agent::tell(self.reach, &address, news).await;
                told.map(|_| Value::Null).map_err(|error| outcome::of_agent(&error))
            }
        }
    }

    async fn call(&self, Call { via, change, .. }: &Call) -> Result<Value, Outcome> {
        let member = self.observation.asked.reached.get(via).ok_or(Outcome::Overtaken)?;
        let changed = match change {
            MemberChange::AddLearner(ordinal) => {
                member.add_learner(self.target.names.peer_url(*ordinal)).await.map(drop)
            }
            MemberChange::Promote(id) => member.promote(*id).await,
            MemberChange::MoveLeader { to, .. } => member.move_leader(*to).await,
            MemberChange::Remove(id) => member.remove(*id).await,
            MemberChange::EnableDowngrade(to) => member.enable_downgrade(*to).await,
            MemberChange::CancelDowngrade => member.cancel_downgrade().await,
        };
        changed.map(|()| Value::Null).map_err(|error| outcome::of_etcd(&error))
    }
}
