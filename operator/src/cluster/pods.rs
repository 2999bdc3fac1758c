//! Where a pod is reached.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::reach::PodAddress;

/// If it has an address.
pub fn address(pod: &Pod) -> Option<PodAddress> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(PodAddress {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        address,
    })
}
