//! Why a StatefulSet cannot create a pod: only its events tell.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use super::container::shortened;
use crate::names::Names;
use crate::observed::Ordinal;

const FAILED: &str = "FailedCreate";
/// What the StatefulSet's controller writes before the error of the API server.
const BEFORE_ERROR: &str = "failed error: ";

/// The API server's reason for each of these pods, as far as it is known.
///
/// A pod's newest event counts: a failure that was followed by a success is over. The controller may stop at the first
/// pod that fails, so a pod without an event of its own shares the newest failure.
pub(super) fn of(events: &[Event], names: &Names, missing: &[Ordinal]) -> BTreeMap<Ordinal, String> {
    let newest = |about: &dyn Fn(&Event) -> bool| {
        events.iter().filter(|event| about(event)).max_by_key(|event| time(event))
    };
    let why = |ordinal: &Ordinal| {
        let pod = names.pod(*ordinal);
        let own = newest(&|event| mentions(event, &pod)).or_else(|| newest(&|_| true))?;
        (own.reason.as_deref() == Some(FAILED)).then(|| (*ordinal, error(own)))
    };
    missing.iter().filter_map(why).collect()
}

fn mentions(event: &Event, pod: &str) -> bool {
    event.message.as_deref().unwrap_or_default().split_whitespace().any(|word| word == pod)
}

fn time(event: &Event) -> Timestamp {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|it| it.0);
    let last = event.last_timestamp.as_ref().map(|it| it.0);
    series.or(last).or(event.event_time.as_ref().map(|it| it.0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn error(event: &Event) -> String {
    let message = event.message.as_deref().unwrap_or_default();
    shortened(message.split_once(BEFORE_ERROR).map_or(message, |(_, error)| error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(reason: &str, message: &str, second: u8) -> Event {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        let event = json!({
            "metadata": {}, "involvedObject": {}, "reason": reason, "message": message, "lastTimestamp": time,
        });
        serde_json::from_value(event).expect("it is an event")
    }

    fn told(events: &[Event], missing: &[u8]) -> BTreeMap<Ordinal, String> {
        let names = Names::new("ns", "kv", "cluster.local");
        of(events, &names, &missing.iter().map(|&it| Ordinal(it)).collect::<Vec<_>>())
    }

    const QUOTA: &str = "pods \"kv-0\" is forbidden: exceeded quota: compute";

    fn failed(pod: &str, error: &str, second: u8) -> Event {
        event(FAILED, &format!("create Pod {pod} in StatefulSet kv failed error: {error}"), second)
    }

    fn created(pod: &str, second: u8) -> Event {
        event("SuccessfulCreate", &format!("create Pod {pod} in StatefulSet kv successful"), second)
    }

    #[test]
    fn a_pod_that_cannot_be_created_has_the_api_servers_reason() {
        let expected = BTreeMap::from([(Ordinal(0), QUOTA.into())]);
        assert_eq!(told(&[created("kv-0", 1), failed("kv-0", QUOTA, 9)], &[0]), expected);
    }

    #[test]
    fn a_failure_that_is_over_is_not_reported() {
        assert_eq!(told(&[failed("kv-0", QUOTA, 1), created("kv-0", 9)], &[0]), BTreeMap::new());
        assert_eq!(told(&[], &[0]), BTreeMap::new());
    }

    #[test]
    fn pods_behind_the_first_that_fails_share_its_reason() {
        let told = told(&[failed("kv-0", QUOTA, 9)], &[0, 1]);
        assert_eq!(told.get(&Ordinal(1)).map(String::as_str), Some(QUOTA));
    }

    #[test]
    fn pods_are_told_apart_by_their_whole_name() {
        let told = told(&[failed("kv-10", "no", 9), created("kv-1", 1)], &[1]);
        assert_eq!(told, BTreeMap::new());
    }
}
