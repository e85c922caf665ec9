//! The effect of an entry of an access list.

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// No limit applies.
    Allow,
    /// 403.
    Deny,
}
