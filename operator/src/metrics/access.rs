//! Who can read metrics: the API server has to know the bearer token of a request, and to allow its user to get `/metrics`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::server::PATH;

/// A token that was withdrawn is accepted for at most this long.
const ACCEPTED_FOR: Duration = Duration::from_secs(60);
/// A right that was granted takes effect after at most this long.
const REJECTED_FOR: Duration = Duration::from_secs(10);
/// More different tokens than this are reviewed each time.
const REMEMBERED: usize = 64;
/// Anybody who reaches the port can cause a review, so they come one after the other.
const REVIEWS_AT_ONCE: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// The API server does not know the token.
    Unauthenticated,
    Forbidden {
        user: String,
    },
}

pub struct Access {
    client: Client,
    remembered: Mutex<Remembered>,
    reviews: Semaphore,
}

/// The digest of a token: the token itself is not kept.
type Token = [u8; 32];

#[derive(Default)]
struct Remembered(HashMap<Token, (Instant, Verdict)>);

impl Access {
    pub fn new(client: Client) -> Self {
        let reviews = Semaphore::new(REVIEWS_AT_ONCE);
        Self { client, remembered: Mutex::default(), reviews }
    }

    pub async fn review(&self, token: &str) -> kube::Result<Verdict> {
        let digest = Sha256::digest(token).into();
        if let Some(verdict) = self.recall(&digest) {
            return Ok(verdict);
        }
        let _turn = self.reviews.acquire().await;
        if let Some(verdict) = self.recall(&digest) {
            return Ok(verdict);
        }
        let verdict = match self.user_of(token).await? {
            None => Verdict::Unauthenticated,
            Some(user) => self.rights_of(user).await?,
        };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.put(digest, verdict.clone(), Instant::now());
        Ok(verdict)
    }

    fn recall(&self, token: &Token) -> Option<Verdict> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).get(token, Instant::now())
    }

    async fn user_of(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn rights_of(&self, user: UserInfo) -> kube::Result<Verdict> {
        let UserInfo { username, uid, groups, extra } = user;
        let asked = NonResourceAttributes { path: Some(PATH.into()), verb: Some("get".into()) };
        let spec = SubjectAccessReviewSpec {
            user: username.clone(),
            uid,
            groups,
            extra,
            non_resource_attributes: Some(asked),
            resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        match review.status.is_some_and(|status| status.allowed) {
            true => Ok(Verdict::Allowed),
            false => Ok(Verdict::Forbidden { user: username.unwrap_or_default() }),
        }
    }
}

impl Remembered {
    fn get(&self, token: &Token, now: Instant) -> Option<Verdict> {
        let (at, verdict) = self.0.get(token)?;
        (now.duration_since(*at) < lifetime(verdict)).then(|| verdict.clone())
    }

    fn put(&mut self, token: Token, verdict: Verdict, now: Instant) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (at, verdict)| now.duration_since(*at) < lifetime(verdict));
        }
        if self.0.len() < REMEMBERED {
            self.0.insert(token, (now, verdict));
        }
    }
}

fn lifetime(verdict: &Verdict) -> Duration {
    match verdict {
        Verdict::Allowed => ACCEPTED_FOR,
        Verdict::Unauthenticated | Verdict::Forbidden { .. } => REJECTED_FOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_remembered_briefly_and_a_rejection_for_less_long() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        remembered.put([1; 32], Verdict::Allowed, now);
        remembered.put([2; 32], Verdict::Unauthenticated, now);
        let at = |token: u8, seconds| remembered.get(&[token; 32], now + Duration::from_secs(seconds));
        assert_eq!((at(1, 59), at(1, 60)), (Some(Verdict::Allowed), None));
        assert_eq!((at(2, 9), at(2, 10)), (Some(Verdict::Unauthenticated), None));
        assert_eq!(at(3, 0), None);
    }

    #[test]
    fn any_number_of_tokens_takes_bounded_memory() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let token = |n: usize| -> Token { Sha256::digest(n.to_string()).into() };
        (0..1000).for_each(|n| remembered.put(token(n), Verdict::Unauthenticated, now));
        assert_eq!(remembered.0.len(), REMEMBERED);
        let later = now + REJECTED_FOR;
        remembered.put(token(2000), Verdict::Allowed, later);
        assert_eq!(remembered.0.len(), 1, "what has expired makes room");
        assert_eq!(remembered.get(&token(2000), later), Some(Verdict::Allowed));
    }
}
