//! Whether an object is as it should be, although the API server has filled in what nobody asked for.

use serde_json::Value;

/// Everything that is wanted is there. Lists are taken as a whole: what is there beyond them was taken out of the
/// spec, not filled in.
pub fn contained(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            wanted.iter().all(|(key, value)| match there.get(key) {
                Some(there) => contained(value, there),
                None => is_empty(value),
            })
        }
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len()
                && wanted.iter().zip(there).all(|(wanted, there)| contained(wanted, there))
        }
        _ => wanted == there,
    }
}

/// The API server drops what is empty.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_fills_in_makes_no_difference_but_what_was_asked_for_does() {
        let wanted = json!({"spec": {"ports": [{"name": "client", "port": 2379}]}});
        let there = json!({"spec": {"ports": [{"name": "client", "port": 2379, "protocol": "TCP"}], "type": "ClusterIP"}});
        assert!(contained(&wanted, &there));
        assert!(!contained(&json!({"spec": {"type": "NodePort"}}), &there));
        assert!(!contained(&json!({"spec": {"ports": []}}), &there));
        assert!(!contained(&json!({"spec": {"missing": 1}}), &there));
    }
}
