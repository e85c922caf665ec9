//! Concurrency: at most `max` units in flight at once.
//!
//! A charge lasts until the response ends, when a refund releases it. No unit comes back with time. So the length of a
//! wait is unknown ([`Retry::ON_RELEASE`]), and so is the time until the key is idle ([`Decision::UNKNOWN_NS`]).
//!
//! Bound: at no instant more than `max` units are in flight. With [`adaptive`] `max` follows the service, and units in flight
//! beyond a lower `max` end by themselves.

pub mod adaptive;

use std::sync::Arc;

use self::adaptive::{Bound, Range};
use super::packed::{Packed, Unpacker};
use super::portable::{Charged, Numbers, Portable};
use super::rule::{self, Scale};
use super::state::{self, charged, dated_receipt, settled};
use super::{Decision, Pace, QuotaError, Retry};
use crate::base::time::Timestamp;

/// The rule of a concurrency limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    max: Max,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Max {
    Fixed(u64),
    /// Of the service.
    Adaptive(Arc<Bound>),
}

impl Rule {
    /// At most `max` units at once.
    pub fn new(max: u64) -> Result<Self, QuotaError> {
        if max == 0 { Err(QuotaError::Zero) } else { Ok(Self { max: Max::Fixed(max) }) }
    }

    /// As many units at once as the service answers without a queue; at first the floor of `range`.
    pub fn adaptive(range: Range) -> Self {
        Self { max: Max::Adaptive(Arc::new(Bound::new(range))) }
    }

    /// Units at once.
    #[inline]
    pub fn max(&self) -> u64 {
        match &self.max {
            Max::Fixed(max) => *max,
            Max::Adaptive(bound) => bound.units(),
        }
    }

    /// The bound that follows the service; `None` if it is fixed.
    #[inline]
    pub fn bound(&self) -> Option<&Arc<Bound>> {
        match &self.max {
            Max::Fixed(_) => None,
            Max::Adaptive(bound) => Some(bound),
        }
    }
}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.max()
    }

    fn period_ns(&self) -> Option<u64> {
        None
    }

    fn pace(&self, _: Timestamp) -> Option<Pace> {
        None
    }

    fn is_released(&self) -> bool {
        true
    }

    fn is_within(&self, other: &Self) -> bool {
        let greatest = self.bound().map_or_else(|| self.max(), |bound| bound.range().ceiling);
        greatest <= other.bound().map_or_else(|| other.max(), |bound| bound.range().floor)
    }

    /// A bound that follows the service stays as it is.
    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        Ok(match self.max {
            Max::Fixed(max) => Self { max: Max::Fixed(scale.units(max)) },
            Max::Adaptive(_) => self.clone(),
        })
    }

    /// In a span, any number of requests may end.
    #[cfg(test)]
    fn bound(&self, _: u64) -> u64 {
        u64::MAX
    }
}

/// The state of one key: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    in_flight: u64,
}

impl State {
    /// Releases all units but `own`.
    pub fn retain(&mut self, own: u64) {
        self.in_flight = self.in_flight.min(own);
    }
}

/// The proof of a charge: its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
}

dated_receipt!(Receipt);

impl state::State for State {
    type Rule = Rule;
    type Receipt = Receipt;

    fn fresh(_rule: &Rule) -> Self {
        Self { in_flight: 0 }
    }

    fn is_of(&self, _rule: &Rule) -> bool {
        true
    }

    fn adopt(&mut self, _rule: &Rule, _now: Timestamp) {}

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        let decision = self.peek(rule, cost, now);
        if decision.is_admitted() {
            self.in_flight = self.in_flight.saturating_add(cost);
        }
        decision
    }

    fn peek(&self, rule: &Rule, cost: u64, _now: Timestamp) -> Decision {
        let max = rule.max();
        let free = max.saturating_sub(self.in_flight);
        let (denied, charged) = match cost {
            cost if cost <= free => (None, cost),
            cost if cost > max => (Some(Retry::Never), 0),
            _ => (Some(Retry::ON_RELEASE), 0),
        };
        let reset_after_ns = if self.in_flight == 0 && charged == 0 { 0 } else { Decision::UNKNOWN_NS };
        Decision { denied, remaining: free - charged, reset_after_ns }
    }

    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let together = ahead.saturating_add(cost);
        if cost > rule.max() {
            return Retry::Never;
        }
        if self.peek(rule, together, now).is_admitted() { Retry::AfterNs(0) } else { Retry::ON_RELEASE }
    }

    fn receipt(&self, cost: u64, _now: Timestamp) -> Receipt {
        Receipt { cost }
    }

    /// Releases a charge. Exact in any order.
    fn refund(&mut self, _rule: &Rule, receipt: &Receipt, _now: Timestamp) -> u64 {
        let given = receipt.cost.min(self.in_flight);
        self.in_flight -= given;
        given
    }

    /// Units that no request will release. The caller must settle them back.
    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, _now: Timestamp) -> i64 {
        let before = self.in_flight;
        self.in_flight = settled(before, extra, rule.max(), max_debt);
        charged(before, self.in_flight)
    }

    fn over(&self, rule: &Rule, _now: Timestamp) -> u64 {
        self.in_flight.saturating_sub(rule.max())
    }

    fn idle_at(&self) -> Timestamp {
        Timestamp::from_ns(if self.in_flight == 0 { 0 } else { u64::MAX })
    }
}

/// Requests in flight end with their process, so nothing is stored.
impl Packed for State {
    fn pack(&self, _: &mut Vec<u8>) {}

    fn unpack(_: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self { in_flight: 0 })
    }
}

/// Units in flight.
impl Portable for State {
    fn export(&self, _: &Rule, _: Timestamp, numbers: &mut Numbers) {
        numbers.push(self.in_flight);
    }

    fn import(_: &Rule, numbers: &mut dyn Iterator<Item = u64>, _: Timestamp) -> Option<Self> {
        Some(Self { in_flight: numbers.next()? })
    }

    fn proof(_: &Rule, _: &[u64], by: Charged) -> Option<(usize, [u64; 5])> {
        Some((1, [by.replica, 0, 0, 0, 0]))
    }
}

#[cfg(test)]
mod tests;
