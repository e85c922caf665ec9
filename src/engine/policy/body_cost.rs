//! The cost that the body of a request names, and the limits for which a body is read.

use super::compiled::Policy;
use super::cost::Cost;
use super::facts::Facts;
use super::limit::{Limit, Mode, Stage};
use crate::engine::units::{Pointer, RequestBody, RequestNumber, RequestPointers};

/// The number at a pointer of the body, from 1 to `max`. A request takes `default` if it has no such number, and `max` if
/// the number cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCost {
    /// The place of the number.
    pub pointer: Pointer,
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

/// What limits need of the body of a request.
#[derive(Debug)]
pub struct BodyNeed<'p> {
    /// The pointers of all limits.
    pub pointers: &'p RequestPointers,
    /// The most bytes that a limit reads.
    pub read_bytes: u64,
    /// The longest body that is not refused.
    pub refused_beyond: Option<u64>,
}

impl BodyCost {
    /// The units of a request with this body.
    pub(super) fn units(&self, body: Option<&RequestBody<'_>>) -> u64 {
        let Some(body) = body else { return self.default };
        if body.exceeds(self.read_bytes) {
            return self.max;
        }
        let number = match body.number(&self.pointer) {
            RequestNumber::Units(units) => units,
            RequestNumber::Absent => self.default,
            RequestNumber::Unreadable => self.max,
        };
        let estimate = self.bytes_per_unit.map_or(0, |bytes| body.bytes().div_ceil(bytes));
        number.saturating_add(estimate).clamp(1, self.max)
    }
}

impl Policy {
    /// What the limits that apply to a request need of its body; `None` if they need nothing.
    #[cold]
    pub fn body_need(&self, facts: &Facts<'_>) -> Option<BodyNeed<'_>> {
        let pointers = self.body_pointers.as_deref()?;
        let (mut read_bytes, mut refused_beyond) = (None, None::<u64>);
        self.for_each_applied(Stage::Identified, facts, |applied| {
            let limit = applied.limit;
            let Cost::FromBody(cost) = &limit.cost else { return };
            read_bytes = read_bytes.max(Some(cost.read_bytes));
            if cost.refuses_longer && limit.mode == Mode::Enforce && !limit.is_partly_enforced() {
                refused_beyond = Some(refused_beyond.map_or(cost.read_bytes, |bound| bound.min(cost.read_bytes)));
            }
        });
        Some(BodyNeed { pointers, read_bytes: read_bytes?, refused_beyond })
    }
}

/// The pointers of all limits into bodies of requests.
pub(super) fn pointers(limits: &[Limit]) -> Option<Box<RequestPointers>> {
    let pointers = limits.iter().filter_map(|limit| match &limit.cost {
        Cost::FromBody(cost) => Some(&cost.pointer),
        _ => None,
    });
    RequestPointers::new(pointers).map(Box::new)
}
