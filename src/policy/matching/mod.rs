//! Which requests a limit, a route or a list entry takes, and the values that requests have.
//!
//! Not here: the limits and routes themselves.

pub(super) mod conditions;
pub(super) mod escapes;
pub(super) mod matcher;
pub(super) mod notation;
pub mod path;
pub(super) mod pattern;
pub(super) mod query;
pub(super) mod values;
