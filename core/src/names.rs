//! Names that others rely on: once published, they stay.

/// Owns the fields that we write by server-side apply.
pub const FIELD_MANAGER: &str = "etcd-operator";

/// Types of conditions.
pub mod condition {
    pub const READY: &str = "Ready";
    /// True while nothing more will happen until somebody changes something.
    pub const STALLED: &str = "Stalled";
}

/// Reasons of conditions.
pub mod reason {
    pub const NOT_IMPLEMENTED_YET: &str = "NotImplementedYet";
}
