//! The rule of an access list entry.

/// The rule of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// The request is exempt from limits.
    Allow,
    /// The request is denied with 403.
    Deny,
}
