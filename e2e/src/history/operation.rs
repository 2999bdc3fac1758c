//! One line of a history, as the checker reads it.

use std::net::SocketAddr;

use serde::Serialize;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Request {
    Put {
        key: String,
        write: String,
    },
    /// Linearizable.
    Get {
        key: String,
    },
    Delete {
        key: String,
    },
    /// Writes if the key has the expected value, `None` for no key; reads it if not.
    Cas {
        key: String,
        expected: Option<String>,
        write: String,
    },
}

/// What a client knows in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Ending {
    Ok(Answer),
    /// It has had no effect and never will.
    Failed {
        error: String,
    },
    /// It may have an effect, now or later.
    Unknown {
        error: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether the key was changed.
    pub applied: bool,
    pub read: Option<String>,
    /// Of what was read.
    pub mod_revision: i64,
    /// Of the store.
    pub revision: i64,
    pub cluster_id: String,
    pub member_id: String,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub client: u64,
    #[serde(flatten)]
    pub request: Request,
    #[serde(rename = "call")]
    pub call_ns: u64,
    #[serde(rename = "return")]
    pub return_ns: u64,
    #[serde(flatten)]
    pub ending: Ending,
    pub endpoint: SocketAddr,
    /// Made after all work was done, to see what is left of it.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// A time in which nobody was meant to write.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename = "rest")]
pub struct Rest {
    #[serde(rename = "call")]
    pub from_ns: u64,
    #[serde(rename = "return")]
    pub until_ns: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_the_form_that_the_documentation_shows() {
        let request = Request::Cas { key: "k".into(), expected: None, write: "v2".into() };
        let answer = Answer { read: Some("v1".into()), mod_revision: 6, revision: 7, ..Answer::default() };
        let mut operation = Operation {
            client: 3,
            request,
            call_ns: 10,
            return_ns: 20,
            ending: Ending::Ok(answer),
            endpoint: "10.0.0.1:2379".parse().expect("an address"),
            is_final: false,
        };
        let line = json!({
            "client": 3, "kind": "cas", "key": "k", "expected": null, "write": "v2", "call": 10, "return": 20,
            "outcome": "ok", "applied": false, "read": "v1", "mod_revision": 6, "revision": 7,
            "cluster_id": "", "member_id": "", "endpoint": "10.0.0.1:2379", "final": false,
        });
        assert_eq!(serde_json::to_value(&operation).expect("json"), line);
        operation.ending = Ending::Unknown { error: "silence".into() };
        let line = serde_json::to_value(&operation).expect("json");
        assert_eq!((&line["outcome"], &line["error"]), (&json!("unknown"), &json!("silence")));
        let rest = serde_json::to_value(Rest { from_ns: 1, until_ns: 2 }).expect("json");
        assert_eq!(rest, json!({"kind": "rest", "call": 1, "return": 2}));
    }
}
