//! The limits for which the body of a request is read.

use super::body_member::BodyMember;
use super::compiled::{Applied, Policy};
use super::cost::Cost;
use super::facts::Facts;
use super::limit::{Limit, Stage};
use super::settle::{Settle, SettleBy};
use crate::engine::units::{RequestPointers, RequestValue};

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
    /// Whether a limit that applies to a request with this body asks its stream for the usage.
    #[cold]
    pub fn asks_for_usage(&self, facts: &Facts<'_>) -> bool {
        let is_stream = |member: &BodyMember| member.value(facts.body) == RequestValue::Boolean(true);
        let mut asks = false;
        self.for_each_applied(Stage::Identified, facts, |applied| {
            let settle = applied.limit.after.as_ref().and_then(|after| after.settle.as_ref());
            asks |= settle.and_then(|settle| settle.usage_of.as_ref()).is_some_and(is_stream);
        });
        asks
    }

    /// The limit that refuses a request because the model that its body names has no price, or is not known, and the reason. A
    /// request without a body uses no model.
    #[cold]
    pub fn unpriced(&self, facts: &Facts<'_>) -> Option<(&Limit, &'static str)> {
        let mut refuses = None;
        let body = facts.body?;
        self.for_each_applied(Stage::Identified, facts, |Applied { limit, .. }| {
            let settle = limit.after.as_ref().and_then(|after| after.settle.as_ref());
            let Some(Settle { by: SettleBy::Body(units), priced: Some(member), .. }) = settle else { return };
            let reason = match member.value(Some(body)) {
                RequestValue::Text(model) if units.has_tariff(&model) => return,
                RequestValue::Text(_) => "the model of the request has no price",
                _ if body.exceeds(member.read_bytes) => {
                    "the body is longer than `read_body`, so its model is not known"
                }
                _ => "the model of the request cannot be read",
            };
            if limit.is_enforced() {
                refuses = Some((limit, reason));
            }
        });
        refuses
    }

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
                if cost.refuses_longer && limit.is_enforced() {
                    refused_beyond = Some(refused_beyond.map_or(cost.read_bytes, |bound| bound.min(cost.read_bytes)));
                }
            },
        );
        Some(BodyNeed { pointers, read_bytes: read_bytes?, refused_beyond })
    }
}
