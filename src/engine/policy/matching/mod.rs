//! The conditions of limits, routes and access lists, and the values of requests that they compare.
//!
//! Not here: limits and routes.

pub(super) mod conditions;
pub(super) mod escapes;
mod leaves;
pub(super) mod matcher;
pub(super) mod networks;
pub(super) mod notation;
pub mod path;
pub(super) mod pattern;
pub(super) mod regex;
pub(super) mod values;
