//! Token bucket as the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
//!
//! State is the theoretical arrival time (`tat`): the instant at which the bucket is full again. With
//! `deficit = max(tat - now, 0)`, a request of cost `c` is admitted iff `deficit + c * interval <= burst *
//! interval`, and then adds `c * interval` to it.
//!
//! Bound: in any span of length `w` a key is admitted at most `burst + w / interval` units.
//!
//! A state carries the interval it was written under. First met under another one, its deficit is converted
//! so that the number of spent units stays the same: a changed rate neither refills nor drains a bucket, and
//! from then on units come back at the new rate. A lowered burst leaves a debt that is paid first.

use crate::limit::{Decision, Quota, Retry};
use crate::time::Timestamp;

/// What is kept for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    tat: Timestamp,
    interval_ns: u64,
}

/// What a bucket says to a request, in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    is_admitted: bool,
    /// Nanoseconds until the bucket is full, after the request.
    deficit_ns: u64,
}

impl Answer {
    /// Whether the request may pass.
    pub fn is_admitted(self) -> bool {
        self.is_admitted
    }
}

impl State {
    /// The state of a key never seen.
    pub const fn fresh(quota: &Quota) -> Self {
        Self { tat: Timestamp::ZERO, interval_ns: quota.interval_ns() }
    }

    /// The instant from which this state decides as [`State::fresh`] does, under any quota.
    pub const fn idle_at(&self) -> Timestamp {
        self.tat
    }

    /// Nanoseconds until full under `quota`; more than its capacity while in debt.
    #[inline]
    fn deficit_ns(&self, quota: &Quota, now: Timestamp) -> u64 {
        let deficit = self.tat.ns_since(now);
        if deficit == 0 || self.interval_ns == quota.interval_ns() {
            return deficit;
        }
        convert(deficit, self.interval_ns, quota.interval_ns())
    }

    /// Carries what is spent over to the interval of `quota`: from `now` on units come back at its rate.
    #[inline]
    pub fn adopt(&mut self, quota: &Quota, now: Timestamp) {
        if self.interval_ns != quota.interval_ns() {
            let tat = now.saturating_add_ns(self.deficit_ns(quota, now));
            *self = Self { tat, interval_ns: quota.interval_ns() };
        }
    }

    /// Decides a request of `cost` units and, if admitted, charges it. No more than has to be done under a lock:
    /// what the answer means is worked out by [`Answer::decision`].
    #[inline]
    pub fn charge(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Answer {
        self.adopt(quota, now);
        let answer = self.answer(quota, cost, now);
        if answer.is_admitted {
            self.tat = now.saturating_add_ns(answer.deficit_ns);
        }
        answer
    }

    /// As [`State::charge`], worked out.
    pub fn admit(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.charge(quota, cost, now).decision(quota, cost)
    }

    /// Decides a request of `cost` units as [`State::admit`] would, charging nothing.
    pub fn peek(&self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.answer(quota, cost, now).decision(quota, cost)
    }

    #[inline]
    fn answer(&self, quota: &Quota, cost: u64, now: Timestamp) -> Answer {
        let deficit_ns = self.deficit_ns(quota, now);
        let needed_ns = cost.saturating_mul(quota.interval_ns());
        let is_admitted = needed_ns <= quota.capacity_ns().saturating_sub(deficit_ns);
        // If admitted the sum is at most the capacity.
        Answer { is_admitted, deficit_ns: if is_admitted { deficit_ns + needed_ns } else { deficit_ns } }
    }

    /// Nanoseconds from `now` until `units` have been admitted one after another, each as early as it can be.
    ///
    /// Exact for the last of a queue whose costs add up to `units`, each of them at most `burst`.
    pub fn wait_ns(&self, quota: &Quota, units: u64, now: Timestamp) -> u64 {
        let needed = u128::from(units) * u128::from(quota.interval_ns()) + u128::from(self.deficit_ns(quota, now));
        u64::try_from(needed.saturating_sub(u128::from(quota.capacity_ns()))).unwrap_or(u64::MAX)
    }

    /// Gives back `cost` units, after whose charge the bucket was to be full at `full_at`.
    ///
    /// What has come back by itself since then is not given twice: without the charge it would have been
    /// lost to a full bucket, and others may have spent it meanwhile. Exact for one charge at a time: one that
    /// came after another that was given back is not known to have filled sooner, and may get up to its cost
    /// too much.
    pub fn refund(&mut self, cost: u64, full_at: Timestamp, now: Timestamp) {
        let owed_ns = self.interval_ns.saturating_mul(cost).min(full_at.ns_since(now));
        self.tat = self.tat.saturating_sub_ns(owed_ns);
    }
}

/// `deficit` under `from` as it is under `to`, rounded up.
#[cold]
fn convert(deficit_ns: u64, from_interval_ns: u64, to_interval_ns: u64) -> u64 {
    let scaled = (u128::from(deficit_ns) * u128::from(to_interval_ns)).div_ceil(u128::from(from_interval_ns.max(1)));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl Answer {
    /// What it means for a request of `cost` units under `quota`.
    #[inline]
    pub fn decision(self, quota: &Quota, cost: u64) -> Decision {
        let Self { is_admitted, deficit_ns } = self;
        let denied = (!is_admitted).then(|| retry(quota, cost, deficit_ns));
        let remaining = quota.units_in(quota.capacity_ns().saturating_sub(deficit_ns));
        Decision { denied, remaining, reset_after_ns: deficit_ns }
    }
}

fn retry(quota: &Quota, cost: u64, deficit_ns: u64) -> Retry {
    if cost > quota.burst() {
        return Retry::Never;
    }
    Retry::AfterNs(deficit_ns.saturating_add(cost * quota.interval_ns()) - quota.capacity_ns())
}

#[cfg(test)]
mod tests;
