//! The cost that the body of a request names.

use crate::engine::units::{Pointer, RequestBody, RequestNumber, Weight};

/// A sum of numbers of the body, from 1 to `max`. A request takes `default` if it has none of them, and `max` if one cannot
/// be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCost {
    /// The places of the numbers, with their weights.
    pub numbers: Vec<(Pointer, Weight)>,
    /// The most units.
    pub max: u64,
    /// The units without a number.
    pub default: u64,
    /// The bytes of the body that add a unit; `None` if its size adds nothing.
    pub bytes_per_unit: Option<u64>,
    /// The bytes of a body that are read.
    pub read_bytes: u64,
    /// Whether requests with longer bodies are refused. Otherwise they take `max`.
    pub refuses_longer: bool,
}

impl BodyCost {
    /// The units of a request with this body.
    pub(super) fn units(&self, body: Option<&RequestBody<'_>>) -> u64 {
        let Some(body) = body else { return self.default };
        if body.exceeds(self.read_bytes) {
            return self.max;
        }
        let number = match body.units(&self.numbers) {
            RequestNumber::Units(units) => units,
            RequestNumber::Absent => self.default,
            RequestNumber::Unreadable => self.max,
        };
        let estimate = self.bytes_per_unit.map_or(0, |bytes| body.bytes().div_ceil(bytes));
        number.saturating_add(estimate).clamp(1, self.max)
    }
}
