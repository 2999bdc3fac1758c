//! The Certificate in which cert-manager is asked for the certificate of the client port. Nothing watches it: its API might not
//! be there, and only clusters that ask for it need it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, ours};
use etcd_operator_core::observed::{Seen, Taken};
use etcd_operator_core::request::Object;
use etcd_operator_core::tls::{Issuance, NotRead, Requested, certificate_resource};
use kube::core::DynamicObject;
use kube::{Api, Client};

use crate::client::is_forbidden;
use crate::telemetry::chain;

/// While cert-manager has nothing to do, or is not there.
const SETTLED: Duration = Duration::from_secs(60);
/// While cert-manager works on it, or it is about to be deleted.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// Of one cluster.
#[derive(Default)]
pub struct CertificateReader {
    found: Requested<Arc<DynamicObject>>,
    taken: BTreeSet<Taken>,
    /// None if it has to be read again at once.
    read_at: Option<Instant>,
}

impl CertificateReader {
    /// Adds it to the objects of its cluster, read now if that is due. A failure is part of the answer: it holds up nothing
    /// else.
    pub async fn add_to(&mut self, objects: &mut Objects, client: &Client, names: &Names, is_wanted: bool) {
        if self.is_due(is_wanted, Instant::now()) {
            self.taken.clear();
            self.found = match self.read(client, names).await {
                Seen::Known(found) => {
                    Seen::Known(ours(Object::Certificate, found, &objects.cluster, &mut self.taken))
                }
                Seen::Unknown(why) => Seen::Unknown(why),
            };
            self.read_at = Some(Instant::now());
        }
        if is_wanted {
            objects.taken.extend(self.taken.iter().cloned());
        }
        objects.certificate = self.found.clone();
    }

    /// A cluster that does not ask for one is looked up once, because it might have asked before this operator started, and a
    /// Certificate that it has until that is deleted.
    fn is_due(&self, is_wanted: bool, now: Instant) -> bool {
        let every = match (&self.found, Issuance::of(&self.found)) {
            (Seen::Known(Some(_)), _) if !is_wanted => UNDER_WAY,
            _ if !is_wanted => Duration::MAX,
            (_, Some(Issuance::NoApi | Issuance::Unreadable(_) | Issuance::Ready)) => SETTLED,
            (_, Some(Issuance::Requested | Issuance::NotReady(_)) | None) => UNDER_WAY,
        };
        self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= every)
    }

    async fn read(&self, client: &Client, names: &Names) -> Requested<Arc<DynamicObject>> {
        let resource = certificate_resource();
        let certificates = Api::<DynamicObject>::namespaced_with(client.clone(), &names.namespace, &resource);
        let error = match certificates.get(&names.issued()).await {
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

    /// The next observation reads it again.
    pub fn outdate(&mut self) {
        self.read_at = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn certificate(status: Value) -> Seen<Option<Arc<DynamicObject>>, NotRead> {
        let certificate =
            json!({"metadata": {"name": "kv-server-issued", "generation": 1}, "status": status});
        Seen::Known(Some(Arc::new(serde_json::from_value(certificate).expect("a Certificate"))))
    }

    /// How often it is read, for a cluster that asks for it and for one that does not.
    fn every(found: Requested<Arc<DynamicObject>>) -> [Option<Duration>; 2] {
        let at = Instant::now();
        let reader = CertificateReader { found, read_at: Some(at), ..CertificateReader::default() };
        [true, false].map(|is_wanted| {
            let mut times = [UNDER_WAY, SETTLED].into_iter();
            times.find(|time| reader.is_due(is_wanted, at + *time))
        })
    }

    #[test]
    fn it_is_read_once_a_minute_and_more_often_while_cert_manager_works_on_it() {
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "observedGeneration": 1}]});
        assert_eq!(every(certificate(ready("True"))), [Some(SETTLED), Some(UNDER_WAY)]);
        assert_eq!(every(certificate(ready("False"))), [Some(UNDER_WAY); 2]);
        assert_eq!(every(Seen::Known(None)), [Some(UNDER_WAY), None]);
        assert_eq!(every(Seen::Unknown(NotRead::NoApi)), [Some(SETTLED), None]);
        assert_eq!(every(Seen::Unknown(NotRead::Failed("forbidden".into()))), [Some(SETTLED), None]);
        let now = Instant::now();
        assert!([true, false].into_iter().all(|it| CertificateReader::default().is_due(it, now)));
    }
}
