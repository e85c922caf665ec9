//! Refunds of a token bucket.
//!
//! A charge left the bucket to be full at `F`. It may be removed as far as the deficit never fell below its
//! units since: otherwise they have come back by themselves, and other requests may have them. As long as nothing else is
//! removed, `tat >= F` holds, so `F - now` bounds the deficit from below. Another removal moves `F` by its units. So the
//! state counts the units given back, a receipt has that count at its time, and `F - given back since - now` is the bound.
//! The removal of the newest charge (`tat == F`) is not counted: no later charge would move. A count that is full says
//! nothing, so then the bound is 0.
//!
//! This bound is low when charges are given back in another order than they were made. So there is a second bound: a
//! refund loses at most the time since the charge that no other refund has lost ([`lost_time`](crate::engine::limit::lost_time)). The
//! higher one counts. A [`Bucket`](super::Bucket) knows both.
//!
//! A bucket is idle, and its count begins anew, when `F <= tat + given back` is past for every receipt. So that this holds
//! for a full count too, a receipt has no `F` that is later than that many units after its charge.
//!
//! Instants under different intervals do not compare. Once the bucket has had another interval, the units after the charge
//! count in place of `F`, less the units given back since, and those of the time since at the shortest interval. The map of
//! a [`State`] remembers when a change was, and the shortest interval. A [`Bucket`](super::Bucket), which decides as a store
//! does, counts the changes, and gives nothing back then.
//!
//! A refund is never too much, in any order. If all charges of a bucket are given back, the bucket is full again, whatever
//! the order, unless the lost time of some was forgotten.

use super::{REFUNDED_MAX, Receipt, State};
use crate::base::time::Timestamp;
use crate::engine::limit::quota::{IntervalTag, rounded_units};

impl State {
    /// Gives back `cost` units, after whose charge the bucket was full at `full_at`. Nothing else was given back since.
    #[cfg(test)]
    pub(super) fn refund(&mut self, cost: u64, full_at: Timestamp, now: Timestamp) {
        let Self { interval, refunded, .. } = *self;
        let receipt = Receipt { cost, at: now, full_at, interval, refunded, changes: 0 };
        self.give_back(&receipt, interval.interval_ns(), |_, most_ns| most_ns, now);
    }

    /// Gives back a charge that was made under an interval of `interval_ns`. If the bucket alone does not know that all
    /// units are left, `lose` returns the nanoseconds that the refund of a charge of an instant loses, at most its second
    /// argument.
    ///
    /// A full bucket gets nothing back, nor does one of another interval than the charge.
    /// Returns the units that are given back, rounded.
    pub fn give_back(
        &mut self,
        receipt: &Receipt,
        interval_ns: u64,
        lose: impl FnOnce(Timestamp, u64) -> u64,
        now: Timestamp,
    ) -> u64 {
        if receipt.interval != self.interval || self.tat <= now {
            return 0;
        }
        let full_at = match self.refunded.checked_sub(receipt.refunded) {
            Some(since) if self.refunded < REFUNDED_MAX => {
                receipt.full_at.saturating_sub_ns(interval_ns.saturating_mul(since.into()))
            }
            _ => Timestamp::ZERO,
        };
        let charged_ns = interval_ns.saturating_mul(receipt.cost);
        let given_ns = match charged_ns.saturating_sub(full_at.ns_since(now)) {
            0 => charged_ns,
            most_ns => charged_ns.saturating_sub(lose(receipt.at, most_ns)),
        };
        if full_at != self.tat {
            self.count_refunded(given_ns.div_ceil(interval_ns.max(1)));
        }
        let before = self.tat;
        self.tat = before.saturating_sub_ns(given_ns).max(now);
        rounded_units(before.ns_since(self.tat), interval_ns)
    }

    /// Gives a charge back, since which the bucket has had another interval, but none below `shortest_ns`. Returns the units
    /// that are given back.
    pub fn give_back_changed(&mut self, receipt: &Receipt, shortest_ns: u64, now: Timestamp) -> u64 {
        let since = self.refunded.checked_sub(receipt.refunded).filter(|_| self.refunded < REFUNDED_MAX);
        // A tag rounds the interval down.
        let lacked = receipt.full_at.ns_since(receipt.at) / receipt.interval.interval_ns().max(1);
        let lacked = lacked - lacked / IntervalTag::UNITS_EXACT;
        let back = now.ns_since(receipt.at).div_ceil(shortest_ns.min(receipt.interval.interval_ns()).max(1));
        let left = since.map_or(0, |since| lacked.saturating_sub(back).saturating_sub(since.into()));
        let (units, before, interval_ns) = (receipt.cost.min(left), self.tat, self.interval.interval_ns());
        if before <= now {
            return 0;
        }
        self.count_refunded(units);
        self.tat = before.saturating_sub_ns(units.saturating_mul(interval_ns)).max(now);
        rounded_units(before.ns_since(self.tat), interval_ns)
    }

    pub(super) fn count_refunded(&mut self, units: u64) {
        self.refunded = self.refunded.saturating_add(u32::try_from(units).unwrap_or(REFUNDED_MAX));
    }
}
