//! Secrets by their names: each is read as often as it has to be. The operator may neither list nor watch Secrets, so nothing
//! reports that somebody else changed one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

/// A Secret, and how long what was read of it is good enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub every: Duration,
}

#[derive(Default)]
pub struct SecretReader(BTreeMap<String, Read>);

struct Read {
    found: Option<Arc<Secret>>,
    /// None if it has to be read again at once.
    at: Option<Instant>,
}

impl SecretReader {
    /// Reads what is due, all at once, and forgets what is not wanted any more. Returns whether anything was read.
    pub async fn read(
        &mut self,
        wanted: &[Wanted],
        client: &Client,
        namespace: &str,
    ) -> Result<bool, kube::Error> {
        self.0.retain(|name, _| wanted.iter().any(|it| it.name == *name));
        let due = self.due(wanted, Instant::now());
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        let found = try_join_all(due.iter().map(|name| secrets.get_opt(name))).await?;
        for (name, found) in due.iter().zip(found) {
            self.note(name, found);
        }
        Ok(!due.is_empty())
    }

    /// Each name once.
    fn due(&self, wanted: &[Wanted], now: Instant) -> Vec<String> {
        let is_due = |it: &&Wanted| {
            let read_at = self.0.get(&it.name).and_then(|read| read.at);
            read_at.is_none_or(|at| now.saturating_duration_since(at) >= it.every)
        };
        let mut due: Vec<String> = wanted.iter().filter(is_due).map(|it| it.name.clone()).collect();
        due.sort_unstable();
        due.dedup();
        due
    }

    /// What is there now, without what takes more memory than all the rest.
    pub fn note(&mut self, name: &str, found: Option<Secret>) {
        let found = found.map(|mut secret| {
            secret.metadata.managed_fields = None;
            Arc::new(secret)
        });
        self.0.insert(name.to_owned(), Read { found, at: Some(Instant::now()) });
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Secret>> {
        self.0.get(name)?.found.as_ref()
    }

    /// The next observation reads it again.
    pub fn outdate(&mut self, name: &str) {
        self.0.get_mut(name).into_iter().for_each(|read| read.at = None);
    }

    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, seconds: u64) -> Wanted {
        Wanted { name: name.into(), every: Duration::from_secs(seconds) }
    }

    #[test]
    fn each_secret_is_read_when_its_own_time_has_passed() {
        let mut reader = SecretReader::default();
        let all = [wanted("a", 60), wanted("b", 300), wanted("a", 60)];
        assert_eq!(reader.due(&all, Instant::now()), ["a", "b"], "each of them once");
        for name in ["a", "b"] {
            reader.note(name, Some(Secret::default()));
        }
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(reader.due(&all, after(59)).is_empty());
        assert_eq!(reader.due(&all, after(60)), ["a"]);
        assert_eq!(reader.due(&all, after(300)), ["a", "b"]);
        reader.outdate("b");
        assert_eq!(reader.due(&all, after(0)), ["b"]);
        assert!(reader.get("b").is_some(), "until then it is what was read");
        assert_eq!(reader.due(&[wanted("c", 60)], after(0)), ["c"]);
    }
}
