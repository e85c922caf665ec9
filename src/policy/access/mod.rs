//! Who is shut out whatever the limits say, who is let through whatever they say, and what needs a plan.
//!
//! Of networks that hold an address the longest prefix counts, of patterns that match a path the most specific.
//! What the address, the path and the identities say is then put together: one that denies is enough to shut a
//! request out, else one that allows is enough to free it from limits. A look-up of an address is a binary search,
//! so its cost hardly grows with the number of networks.
//!
//! Not here: finding out who a request is from, and which plan it has (gate).

mod lists;
mod ranges;
mod rule;

#[cfg(test)]
mod tests;

pub use lists::{Access, AccessSpec, DenialReason, Required, Requirement, canonical};
pub use rule::AccessRule;
