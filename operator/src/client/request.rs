//! What a request to the API server asks for, read from its method and path.

use std::fmt;
use std::time::Duration;

use hyper::{Method, Request};

/// As in Kubernetes' own rules about permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

/// A request without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub verb: Verb,
    /// In the plural, with its subresource: `pods`, `etcdclusters/status`.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// How long the API server keeps the watch open.
    pub watched_for: Option<Duration>,
}

/// For a watch that does not say for how long: the API server's default is between 30 and 60 minutes.
const LONGEST_WATCH: Duration = Duration::from_secs(3600);

impl Asked {
    pub fn by<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
        let below_version: &[&str] = match words.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        let (namespace, rest) = match below_version {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name) = match rest {
            [] => (path.to_owned(), None),
            [resource] => ((*resource).to_owned(), None),
            [resource, name] => ((*resource).to_owned(), Some(*name)),
            [resource, name, sub, ..] => (format!("{resource}/{sub}"), Some(*name)),
        };
        let query = request.uri().query().unwrap_or_default();
        let watched_for = is_watch(query).then(|| watch_time(query).unwrap_or(LONGEST_WATCH));
        Self {
            verb: verb(request.method(), watched_for.is_some(), name.is_some() || rest.is_empty()),
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            watched_for,
        }
    }
}

fn verb(method: &Method, watch: bool, one: bool) -> Verb {
    match *method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ if watch => Verb::Watch,
        _ if one => Verb::Get,
        _ => Verb::List,
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

fn watch_time(query: &str) -> Option<Duration> {
    let seconds = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="))?;
    seconds.parse().ok().map(Duration::from_secs)
}

impl Verb {
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (Some(of), None) | (None, Some(of)) => write!(f, " {of}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str) -> String {
        Asked::by(&Request::builder().method(method).uri(uri).body(()).expect("a request")).to_string()
    }

    #[test]
    fn a_request_is_known_by_its_method_and_path() {
        for (method, uri, expected) in [
            ("GET", "/api/v1/namespaces/ns/pods/kv-0", "get pods ns/kv-0"),
            ("GET", "/api/v1/namespaces/ns/pods?&labelSelector=x", "list pods ns"),
            ("GET", "/api/v1/pods?limit=500", "list pods"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=60", "watch pods"),
            ("GET", "/api/v1/namespaces/ns", "get namespaces ns"),
            ("GET", "/version", "get /version"),
            ("POST", "/api/v1/namespaces/ns/configmaps", "create configmaps ns"),
            ("PUT", "/apis/apps/v1/namespaces/ns/statefulsets/kv", "update statefulsets ns/kv"),
            (
                "PATCH",
                "/apis/etcd.etcd.io/v1alpha1/namespaces/ns/etcdclusters/kv/status",
                "patch etcdclusters/status ns/kv",
            ),
            ("DELETE", "/api/v1/namespaces/ns/pods/kv-0", "delete pods ns/kv-0"),
        ] {
            assert_eq!(asked(method, uri), expected);
        }
    }

    #[test]
    fn a_watch_lasts_as_long_as_it_asks_for() {
        let of = |uri| Asked::by(&Request::get(uri).body(()).expect("a request")).watched_for;
        assert_eq!(of("/api/v1/pods?watch=true&timeoutSeconds=60"), Some(Duration::from_secs(60)));
        assert_eq!(of("/api/v1/pods?watch=true"), Some(LONGEST_WATCH));
        assert_eq!(of("/api/v1/pods?timeoutSeconds=60"), None);
    }
}
