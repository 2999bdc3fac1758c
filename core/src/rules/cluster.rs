//! Rules about a cluster as a whole: size, version, images, resources, ways in.

use super::{Rule, Server, syntax};
use crate::api::{EtcdClusterSpec, Quantity};
use crate::member::MAX_SIZE;
use crate::version::Version;

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "size",
        server: Server::Schema,
        message: "must be 0 to 9: 0 stops the cluster, 3 or 5 members are usual",
        broken: |spec| !(0..=i32::from(MAX_SIZE)).contains(&spec.size),
    },
    Rule {
        at: "version",
        server: Server::Schema,
        message: "must be an etcd version such as v3.5.21 or 3.5.21",
        broken: |spec| version(spec).is_none() || spec.version.len() > 12,
    },
    Rule {
        at: "version",
        server: Server::Cel("!self.matches('^v?3[.]0*[0-4][.]')"),
        message: "etcd 3.4 and older are out of support: use 3.5.21 or later",
        broken: |spec| version(spec).is_some_and(|version| version < Version::new(3, 5, 0)),
    },
    Rule {
        at: "version",
        server: Server::Cel("!self.matches('^v?3[.]0*5[.]0*[0-2]$')"),
        message: "etcd 3.5.0, 3.5.1 and 3.5.2 can corrupt data: use 3.5.3 or later, preferably the latest 3.5",
        broken: |spec| {
            version(spec)
                .is_some_and(|version| (Version::new(3, 5, 0)..Version::new(3, 5, 3)).contains(&version))
        },
    },
    Rule {
        at: "repository",
        server: Server::Schema,
        message: "must be an image repository such as quay.io/coreos/etcd, with at most 255 characters",
        broken: |spec| spec.repository.is_empty() || spec.repository.len() > 255,
    },
    Rule {
        at: "repository",
        server: Server::Cel("self.matches('^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._-]+(/[a-z0-9._-]+)*$')"),
        message: "must be an image repository such as quay.io/coreos/etcd, without tag and digest: the tag is the \
            version",
        broken: |spec| !spec.repository.is_empty() && !syntax::is_repository(&spec.repository),
    },
    Rule {
        at: "resources.requests",
        server: Server::Cel("self.all(name, !string(self[name]).startsWith('-'))"),
        message: "a quantity cannot be negative: use quantities such as 500m or 1Gi",
        broken: |spec| requests_and_limits(spec).0.any(|(_, amount)| is_negative(amount)),
    },
    Rule {
        at: "resources.limits",
        server: Server::Cel("self.all(name, !string(self[name]).startsWith('-'))"),
        message: "a quantity cannot be negative: use quantities such as 500m or 1Gi",
        broken: |spec| requests_and_limits(spec).1.any(|(_, amount)| is_negative(amount)),
    },
    Rule {
        at: "resources.requests",
        server: Server::Schema,
        message: "must be at most 16 quantities such as 500m or 1Gi",
        broken: |spec| {
            requests_and_limits(spec).0.count() > 16
                || requests_and_limits(spec).0.any(|(_, it)| is_nonsense(it))
        },
    },
    Rule {
        at: "resources.limits",
        server: Server::Schema,
        message: "must be at most 16 quantities such as 500m or 1Gi",
        broken: |spec| {
            requests_and_limits(spec).1.count() > 16
                || requests_and_limits(spec).1.any(|(_, it)| is_nonsense(it))
        },
    },
    Rule {
        at: "resources",
        server: Server::Nothing,
        message: "a request cannot exceed the limit of the same name: lower the request or raise the limit",
        broken: request_exceeds_limit,
    },
    Rule {
        at: "externalAccess.nodePort.port",
        server: Server::Schema,
        message: "must be 30000 to 32767: remove the field to let Kubernetes allocate a port",
        broken: |spec| {
            let node_port = spec.external_access.as_ref().and_then(|access| access.node_port.as_ref());
            node_port.and_then(|it| it.port).is_some_and(|port| !(30000..=32767).contains(&port))
        },
    },
    Rule {
        at: "debugSidecar.image",
        server: Server::Schema,
        message: "must be an image such as nicolaka/netshoot:latest, with at most 512 characters",
        broken: |spec| {
            spec.debug_sidecar.as_ref().is_some_and(|it| it.image.is_empty() || it.image.len() > 512)
        },
    },
];

fn version(spec: &EtcdClusterSpec) -> Option<Version> {
    Version::parse(&spec.version).filter(|version| version.major == 3)
}

fn requests_and_limits(
    spec: &EtcdClusterSpec,
) -> (impl Iterator<Item = (&String, &Quantity)>, impl Iterator<Item = (&String, &Quantity)>) {
    let resources = spec.resources.iter();
    (resources.clone().flat_map(|it| &it.requests), resources.flat_map(|it| &it.limits))
}

/// Text that begins with a minus is no amount at all, which is the schema's case.
fn is_negative(amount: &Quantity) -> bool {
    matches!(amount, Quantity::Number(number) if *number < 0)
}

fn is_nonsense(amount: &Quantity) -> bool {
    matches!(amount, Quantity::Text(text) if text.len() > 32 || amount.nano().is_none())
}

fn request_exceeds_limit(spec: &EtcdClusterSpec) -> bool {
    let Some(resources) = &spec.resources else { return false };
    resources.requests.iter().any(|(name, request)| {
        let limit = resources.limits.get(name).and_then(Quantity::nano);
        limit.zip(request.nano()).is_some_and(|(limit, request)| request > limit)
    })
}
