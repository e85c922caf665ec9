//! The effect of an entry of an access list.

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No limit applies.
    Allow,
    /// 403.
    Deny,
}
