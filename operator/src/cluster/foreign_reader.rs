//! Objects of APIs that other programs bring: the Certificate of cert-manager and the PodMonitor of the Prometheus operator.
//! Nothing watches them: their API might not be there, and only clusters that ask for them need it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::api::PodMonitor;
use etcd_operator_core::foreign::{Foreign, NotRead};
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, ours};
use etcd_operator_core::observed::{Seen, Taken};
use etcd_operator_core::request::Object;
use etcd_operator_core::tls::Issuance;
use kube::core::DynamicObject;
use kube::{Api, Client};

use super::secrets::source;
use crate::client::is_forbidden;
use crate::telemetry::chain;

/// While nothing is expected of it, or its API is not there.
const SETTLED: Duration = Duration::from_secs(60);
/// While another program works on it, or it is about to be created or deleted.
const UNDER_WAY: Duration = Duration::from_secs(10);

type Found = Foreign<Arc<DynamicObject>>;

/// Those of one cluster.
pub struct ForeignReaders {
    /// The one with this UID.
    cluster: Option<String>,
    certificate: ForeignReader,
    pod_monitor: ForeignReader,
}

impl Default for ForeignReaders {
    fn default() -> Self {
        Self {
            cluster: None,
            certificate: ForeignReader::new(Object::Certificate, is_issued_or_missing),
            pod_monitor: ForeignReader::new(Object::PodMonitor, is_there_or_missing),
        }
    }
}

impl ForeignReaders {
    /// Adds them to the objects of their cluster, read now if that is due. For a cluster that is being deleted none is read:
    /// nothing may block its deletion.
    pub async fn add_to(&mut self, objects: &mut Objects, client: &Client, names: &Names) {
        let metadata = &objects.cluster.metadata;
        if self.cluster != metadata.uid {
            *self = Self { cluster: metadata.uid.clone(), ..Self::default() };
        }
        if metadata.deletion_timestamp.is_some() {
            return;
        }
        let asks_for_certificate = source(objects, names).issuer().is_some();
        objects.certificate = self.certificate.of(objects, client, names, asks_for_certificate).await;
        let monitoring = objects.cluster.spec.monitoring.as_ref();
        let asks_for_monitor = monitoring.is_some_and(|it| it.pod_monitor == PodMonitor::Enabled);
        objects.pod_monitor = self.pod_monitor.of(objects, client, names, asks_for_monitor).await;
    }

    /// If it is one of them, the next observation reads it again.
    pub fn outdate(&mut self, object: Object) {
        let mut readers = [&mut self.certificate, &mut self.pod_monitor].into_iter();
        readers.find(|it| it.object == object).into_iter().for_each(|it| it.read_at = None);
    }
}

struct ForeignReader {
    object: Object,
    /// Whether nobody is about to change what was found.
    is_settled: fn(&Found) -> bool,
    found: Found,
    taken: BTreeSet<Taken>,
    /// None if it has to be read again at once.
    read_at: Option<Instant>,
}

/// cert-manager has nothing to do, or is not there.
fn is_issued_or_missing(certificate: &Found) -> bool {
    match Issuance::of(certificate) {
        Some(Issuance::NoApi | Issuance::Unreadable(_) | Issuance::Ready) => true,
        Some(Issuance::Requested | Issuance::NotReady(_)) | None => false,
    }
}

fn is_there_or_missing(found: &Found) -> bool {
    !matches!(found, Seen::Known(None))
}

impl ForeignReader {
    fn new(object: Object, is_settled: fn(&Found) -> bool) -> Self {
        Self { object, is_settled, found: Found::default(), taken: BTreeSet::new(), read_at: None }
    }

    /// A failure is part of the answer: it holds up nothing else.
    async fn of(&mut self, objects: &mut Objects, client: &Client, names: &Names, is_wanted: bool) -> Found {
        if self.is_due(is_wanted, Instant::now()) {
            self.taken.clear();
            self.found = match self.read(client, names).await {
                Seen::Known(found) => {
                    Seen::Known(ours(self.object, found, &objects.cluster, &mut self.taken))
                }
                Seen::Unknown(why) => Seen::Unknown(why),
            };
            self.read_at = Some(Instant::now());
        }
        if is_wanted {
            objects.taken.extend(self.taken.iter().cloned());
        }
        self.found.clone()
    }

    /// A cluster that does not ask for one is looked up once, because it might have asked before this operator started, and one
    /// that it has until that is deleted.
    fn is_due(&self, is_wanted: bool, now: Instant) -> bool {
        let every = match (&self.found, is_wanted) {
            (found, true) if (self.is_settled)(found) => SETTLED,
            (Seen::Known(Some(_)), false) | (_, true) => UNDER_WAY,
            (Seen::Known(None) | Seen::Unknown(_), false) => Duration::MAX,
        };
        self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= every)
    }

    async fn read(&self, client: &Client, names: &Names) -> Found {
        let resource = self.object.resource();
        let all = Api::<DynamicObject>::namespaced_with(client.clone(), &names.namespace, &resource);
        let error = match all.get(&self.object.name(names)).await {
            Ok(found) => return Seen::Known(Some(Arc::new(found))),
            Err(error) => error,
        };
        match (&error, &self.found) {
            (kube::Error::Api(status), _) if status.code == 404 => {
                // Where the API is not served, the response names no object.
                let named = status.details.as_ref().is_some_and(|it| !it.name.is_empty());
                if named { Seen::Known(None) } else { Seen::Unknown(NotRead::NoApi) }
            }
            // Any other failure might be over soon.
            (_, known @ Seen::Known(_)) if !is_forbidden(&error) => known.clone(),
            _ => Seen::Unknown(NotRead::Failed(chain(&error).to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(status: Value) -> Found {
        let object = json!({"metadata": {"name": "kv-server-issued", "generation": 1}, "status": status});
        Seen::Known(Some(Arc::new(serde_json::from_value(object).expect("an object"))))
    }

    /// How often it is read, for a cluster that asks for it and for one that does not.
    fn every(reader: ForeignReader, found: Found) -> [Option<Duration>; 2] {
        let at = Instant::now();
        let reader = ForeignReader { found, read_at: Some(at), ..reader };
        [true, false].map(|is_wanted| {
            let mut times = [UNDER_WAY, SETTLED].into_iter();
            times.find(|time| reader.is_due(is_wanted, at + *time))
        })
    }

    #[test]
    fn it_is_read_once_a_minute_and_more_often_while_cert_manager_works_on_it() {
        let every = |found| every(ForeignReaders::default().certificate, found);
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "observedGeneration": 1}]});
        assert_eq!(every(found(ready("True"))), [Some(SETTLED), Some(UNDER_WAY)]);
        assert_eq!(every(found(ready("False"))), [Some(UNDER_WAY); 2]);
        assert_eq!(every(Seen::Known(None)), [Some(UNDER_WAY), None]);
        assert_eq!(every(Seen::Unknown(NotRead::NoApi)), [Some(SETTLED), None]);
        assert_eq!(every(Seen::Unknown(NotRead::Failed("forbidden".into()))), [Some(SETTLED), None]);
        let now = Instant::now();
        assert!([true, false].into_iter().all(|it| ForeignReaders::default().certificate.is_due(it, now)));
    }

    #[test]
    fn a_pod_monitor_is_read_once_a_minute_and_more_often_until_it_is_there() {
        let every = |found| every(ForeignReaders::default().pod_monitor, found);
        assert_eq!(every(found(Value::Null)), [Some(SETTLED), Some(UNDER_WAY)]);
        assert_eq!(every(Seen::Known(None)), [Some(UNDER_WAY), None]);
        assert_eq!(every(Seen::Unknown(NotRead::NoApi)), [Some(SETTLED), None]);
        assert_eq!(every(Seen::Unknown(NotRead::Failed("forbidden".into()))), [Some(SETTLED), None]);
    }

    #[test]
    fn after_a_write_the_object_is_read_again_at_once_and_no_other() {
        let mut readers = ForeignReaders::default();
        let now = Instant::now();
        (readers.certificate.read_at, readers.pod_monitor.read_at) = (Some(now), Some(now));
        readers.outdate(Object::PodMonitor);
        assert_eq!((readers.certificate.read_at, readers.pod_monitor.read_at), (Some(now), None));
        readers.outdate(Object::Budget);
        assert_eq!(readers.certificate.read_at, Some(now));
    }
}
