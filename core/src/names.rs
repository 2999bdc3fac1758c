//! Names that others rely on: once published, they stay.

/// Owns the fields that we write by server-side apply.
pub const FIELD_MANAGER: &str = "etcd-operator";

/// Types of conditions.
pub mod condition {
    pub const READY: &str = "Ready";
    /// True while nothing more will happen until somebody changes something.
    pub const STALLED: &str = "Stalled";
    /// False while TLS is asked for and not in effect; absent when nobody asks for it.
    pub const TLS_READY: &str = "TLSReady";
    /// True while something in the spec has no effect or may surprise; absent otherwise.
    pub const SPEC_WARNING: &str = "SpecWarning";
}

/// Reasons of conditions.
pub mod reason {
    pub const NOT_IMPLEMENTED_YET: &str = "NotImplementedYet";
    /// The spec breaks a rule that the API server did not keep.
    pub const INVALID_SPEC: &str = "InvalidSpec";
}
