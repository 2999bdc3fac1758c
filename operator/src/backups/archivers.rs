//! Asks archivers how far they are, beside the rounds: one that does not respond holds nothing up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::backup::progress::{PAGE, PORT, Progress};
use etcd_operator_core::runs::{Heard, TOKEN_KEY};
use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::page;
use crate::reach::{PodAddress, Reach};
use crate::telemetry::chain;

const EVERY: Duration = Duration::from_secs(10);
/// It answers from memory.
const DEADLINE: Duration = Duration::from_secs(3);
const LONGEST_ANSWER: usize = 64 * 1024;
/// Those that nothing asks about any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read Secret {secret}")]
    Read { secret: String, source: kube::Error },
    #[error("Secret {0} has no token: delete it and the Job")]
    NoToken(String),
    #[error(transparent)]
    Page(#[from] page::Error),
    #[error("no response within {} s", DEADLINE.as_secs())]
    NoAnswer,
    #[error("it responded with HTTP status {0}")]
    Status(StatusCode),
    #[error("invalid response")]
    Nonsense(#[source] serde_json::Error),
}

/// By the UIDs of their pods.
#[derive(Default)]
pub struct Archivers {
    all: HashMap<String, Asked>,
}

struct Asked {
    at: Instant,
    heard: Arc<Mutex<Option<Heard>>>,
}

impl Archivers {
    /// What it has answered so far; asks again if that is due. `secret`: its namespace and name.
    pub fn heard(
        &mut self,
        client: &Client,
        reach: &Reach,
        pod: PodAddress,
        secret: (String, String),
    ) -> Option<Heard> {
        let now = Instant::now();
        self.all.retain(|_, asked| now.duration_since(asked.at) < FORGOTTEN_AFTER);
        let is_due = self.all.get(&pod.uid).is_none_or(|asked| now.duration_since(asked.at) >= EVERY);
        let asked =
            self.all.entry(pod.uid.clone()).or_insert_with(|| Asked { at: now, heard: Arc::default() });
        if is_due {
            asked.at = now;
            let (client, reach, heard) = (client.clone(), reach.clone(), Arc::clone(&asked.heard));
            tokio::spawn(async move {
                let answer = tokio::time::timeout(DEADLINE, ask(&client, &reach, &pod, &secret)).await;
                let answer = answer.unwrap_or(Err(Error::NoAnswer));
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                let heard = heard.get_or_insert_default();
                match answer {
                    Ok(progress) => {
                        *heard = Heard { progress: Some((Timestamp::now(), progress)), error: None };
                    }
                    Err(error) => heard.error = Some(chain(&error).to_string()),
                }
            });
        }
        asked.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The token is read each time: its Secret can have been replaced.
async fn ask(
    client: &Client,
    reach: &Reach,
    pod: &PodAddress,
    (namespace, name): &(String, String),
) -> Result<Progress, Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = secrets.get(name).await.map_err(|source| Error::Read { secret: name.clone(), source })?;
    let token = secret.data.and_then(|mut data| data.remove(TOKEN_KEY));
    let token = token.and_then(|token| String::from_utf8(token.0).ok());
    let token = token.ok_or_else(|| Error::NoToken(name.clone()))?;
    let request = Request::get(PAGE).header(AUTHORIZATION, format!("Bearer {token}"));
    let (status, body) = page::get(reach, pod, PORT, request, Bytes::new(), LONGEST_ANSWER).await?;
    match status {
        StatusCode::OK => serde_json::from_slice(&body).map_err(Error::Nonsense),
        status => Err(Error::Status(status)),
    }
}
