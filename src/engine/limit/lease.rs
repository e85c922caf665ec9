//! The size of a lease: how many units a replica borrows at once.

/// The number of units that a replica borrows at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseUnits {
    /// As many as recent demand needs.
    #[default]
    Auto,
    /// This number, at least 1.
    Fixed(u64),
}
