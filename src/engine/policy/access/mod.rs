//! Access lists: requests that are denied, requests that are exempt from limits, and requests that need an identity or a
//! plan.
//!
//! The longest prefix decides for an address, and the most specific pattern for a path. Then the rules for the address,
//! the path and the identities are combined: one denial denies the request, otherwise one permission exempts it from
//! limits. A lookup of an address is a binary search, so its cost hardly grows with the number of networks.
//!
//! Not here: the identity and the plan of a request (gate).

mod lists;
mod ranges;

#[cfg(test)]
mod tests;

pub use lists::{Access, AccessSpec, DenialReason, Required, Requirement, canonical};
pub use ranges::AccessRule;
