//! Sends one request, and says what became of it.

use etcd_operator_core::auth::Password;
use etcd_operator_core::metrics::{Effect, outcome as outcome_word};
use etcd_operator_core::request::{Call, Change, MemberChange, Request, Target, Write, http};
use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;
use etcd_operator_core::tls::{Copy, Profiles, Purpose};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tracing::Instrument;

use super::observation::Observation;
use super::{outcome, pods};
use crate::agent;
use crate::certificates::{self, Content};
use crate::reach::Reach;
use crate::traces;

pub struct Executor<'a> {
    pub client: &'a Client,
    pub reach: &'a Reach,
    pub target: Target<'a>,
    /// What is issued.
    pub certificates: &'a Profiles,
    /// Has the connections to the members, the addresses of the pods and the authorities.
    pub observation: &'a Observation,
}

impl Executor<'_> {
    /// Returns what the API server responded, or why the request was not carried out. `effect` is what it is for.
    pub async fn send(&self, request: &Request, effect: Effect) -> Result<Value, Outcome> {
        let span = traces::effect(effect.0);
        let result = self.exchange(request).instrument(span.clone()).await;
        span.record("outcome", result.as_ref().map_or_else(outcome_word, |_| "done"));
        result
    }

    async fn exchange(&self, request: &Request) -> Result<Value, Outcome> {
        match request {
            Request::Kube(write) => {
                let issued = self.issue(write).transpose()?;
                let target = Target { issued: issued.as_ref(), ..self.target };
                let request = http(write, target).ok_or_else(|| not_done("the spec is invalid"))?;
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

    /// The content of a Secret that is written.
    fn issue(&self, write: &Write) -> Option<Result<Content, Outcome>> {
        if let Change::Copy(copy, _) = write.change {
            return Some(self.copy(copy).ok_or(Outcome::Overtaken));
        }
        let (Change::Issue(purpose) | Change::Rotate(purpose, _)) = write.change else { return None };
        let Some(profile) = self.certificates.get(&purpose) else {
            return Some(Err(not_done("the cluster does not need it")));
        };
        let objects = &self.observation.objects;
        let secret = |purpose: Purpose| objects.secrets.get(&purpose).map(|it| &**it);
        let issued = match (&write.change, secret(purpose)) {
            (Change::Rotate(_, stage), Some(there)) => {
                let given = objects.given.as_ref().and_then(|it| it.authorities.as_deref());
                certificates::rotate(profile, there, *stage, given, Timestamp::now())
            }
            _ => certificates::issue(profile, purpose.issuer().and_then(secret), Timestamp::now()),
        };
        Some(issued.map_err(|error| not_done(&error.to_string())))
    }

    /// None if what was to be copied was not read.
    fn copy(&self, copy: Copy) -> Option<Content> {
        let objects = &self.observation.objects;
        let certificate = match copy {
            Copy::First | Copy::Given => objects.given.as_ref()?.certificate.as_deref()?,
            Copy::Held => objects.secrets.get(&Purpose::Server)?,
        };
        certificates::copied(certificate, objects.secrets.get(&Purpose::ClientAuthority)?)
    }

    async fn call(&self, Call { via, change, .. }: &Call) -> Result<Value, Outcome> {
        let member = self.observation.asked.reached.get(via).ok_or(Outcome::Overtaken)?;
        let changed = match change {
            MemberChange::AddLearner(ordinal, scheme) => {
                member.add_learner(self.target.names.peer_url(*scheme, *ordinal)).await.map(drop)
            }
            MemberChange::UpdatePeerUrls(id, ordinal, schemes) => {
                let url = |scheme| self.target.names.peer_url(scheme, *ordinal);
                member.update(*id, schemes.iter().map(url)).await
            }
            MemberChange::Promote(id) => member.promote(*id).await,
            MemberChange::MoveLeader { to, .. } => member.move_leader(*to).await,
            MemberChange::Remove(id) => member.remove(*id).await,
            MemberChange::EnableDowngrade(to) => member.enable_downgrade(*to).await,
            MemberChange::CancelDowngrade => member.cancel_downgrade().await,
            MemberChange::Compact(revision) => member.compact(*revision).await,
            MemberChange::Defragment(_) => member.defragment().await,
            MemberChange::Disarm(kind) => member.disarm(*kind).await,
            MemberChange::Auth(step) => {
                let secret = self.observation.objects.root_password.as_deref();
                member.change_auth(*step, secret.and_then(|it| Password::read(it).ok())).await
            }
        };
        changed.map(|()| Value::Null).map_err(|error| outcome::of_etcd(&error))
    }
}

fn not_done(why: &str) -> Outcome {
    Outcome::NotDone(Trouble::Failed(why.to_owned()))
}
