//! The limits for which the body of a request is read.

use super::compiled::Policy;
use super::cost::Cost;
use super::facts::Facts;
use super::limit::{Mode, Stage};
use crate::engine::units::RequestPointers;

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

impl Policy {
    /// What the limits that may apply to a request need of its body; `None` if they need nothing.
    #[cold]
    pub fn body_need(&self, facts: &Facts<'_>) -> Option<BodyNeed<'_>> {
        let pointers = self.body_pointers.as_deref()?;
        let (mut read_bytes, mut refused_beyond) = (None, None::<u64>);
        self.for_each_fitting(
            Stage::Identified,
            facts,
            |limit| limit.may_apply_beyond_path(facts),
            |applied| {
                let limit = applied.limit;
                read_bytes = read_bytes.max(limit.read_bytes());
                let Cost::FromBody(cost) = &limit.cost else { return };
                if cost.refuses_longer && limit.mode == Mode::Enforce && !limit.is_partly_enforced() {
                    refused_beyond = Some(refused_beyond.map_or(cost.read_bytes, |bound| bound.min(cost.read_bytes)));
                }
            },
        );
        Some(BodyNeed { pointers, read_bytes: read_bytes?, refused_beyond })
    }
}
