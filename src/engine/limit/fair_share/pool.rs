//! The bucket that sharers spend from, and what each of them owes.
//!
//! The clock of a pool counts the units, for each unit of weight, that have come back to every sharer that owed some: the
//! virtual time of generalized processor sharing (Parekh and Gallager, "A generalized processor sharing approach to flow
//! control in integrated services networks", 1993). It runs as fast as the units of the bucket come back, divided by the
//! weights of the sharers that owe units or wait. So the instant at which a sharer owes nothing is a fixed time of this
//! clock, whatever the others do.
//!
//! The bucket has no debt: units of answers that it does not have are beyond it, and their sharer owes them alone. They are
//! paid by the units that find the bucket full, and last of what the sharer owes.
//!
//! Units on the clock are `f64`: they decide only about fairness. The bound of all sharers is that of the bucket, which
//! computes with integers, as does the instant at which all is paid.

mod overdraft;
mod waits;

use std::collections::{BTreeSet, HashMap};

use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::token_bucket::{self, Bucket};
use crate::engine::limit::{Decision, Quota, Retry};

/// A part of the burst that a sharer leaves to sharers that come anew, if the burst has so many units.
const RESERVE_PARTS: u64 = 10;

/// Rounding errors of the clock, in units.
const ROUNDING: f64 = 1e-6;

/// The clock begins anew after this time, so that it stays precise.
const CLOCK_MAX: f64 = 1e6;

/// A refused sharer counts for so long after the time at which it may retry, in nanoseconds. `Retry-After` has whole seconds.
/// A bucket that is full for so long is not contended.
pub(super) const PATIENCE_NS: u64 = 1_000_000_000;

/// The state of all sharers of one limit.
#[derive(Debug)]
pub(super) struct Pool {
    bucket: Bucket,
    /// The quota of the last decision.
    quota: Quota,
    /// The instant at which the bucket is full, and all units beyond it are paid.
    all_paid_at: Timestamp,
    /// The instant of the clock.
    at: Timestamp,
    clock: f64,
    /// The sharers that count, by their ids: those that owe units, and refused ones.
    sharers: HashMap<u64, Sharer>,
    /// The sharers that owe units, by the bits of [`Sharer::paid_at`]. Their order is that of the numbers, which are not
    /// negative.
    owing: BTreeSet<(u64, u64)>,
    /// Refused sharers, by [`Sharer::waits_until`].
    waiting: BTreeSet<(Timestamp, u64)>,
    /// The sum of the weights of `sharers`.
    weights: u64,
    last_id: u64,
}

/// A sharer that counts.
#[derive(Clone, Copy, Debug)]
struct Sharer {
    weight: u32,
    /// The time of the clock at which it owes nothing.
    paid_at: f64,
    /// Units that the bucket never gave, once it owed them. It owes no more of them than it owes in all.
    overdraft: f64,
    /// The instant until which it counts although it owes nothing.
    waits_until: Timestamp,
}

impl Sharer {
    /// Whether it was refused, and may not have retried.
    fn waits(&self) -> bool {
        self.waits_until > Timestamp::ZERO
    }
}

/// The one that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// 0 if it has never asked.
    pub(super) id: u64,
    pub(super) weight: u32,
}

impl Pool {
    /// A full bucket without sharers.
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            bucket: Bucket::fresh(quota),
            quota: *quota,
            all_paid_at: Timestamp::ZERO,
            at: Timestamp::ZERO,
            clock: 0.0,
            sharers: HashMap::new(),
            owing: BTreeSet::new(),
            waiting: BTreeSet::new(),
            weights: 0,
            last_id: 0,
        }
    }

    /// A new id of a sharer.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Moves the clock to `now`, unless it is there.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let mut left = units(now.ns_since(self.at)) / units(self.quota.interval_ns());
        self.at = self.at.max(now);
        while let Some((until, id)) = self.waiting.first().copied().filter(|(until, _)| *until <= now) {
            self.waiting.remove(&(until, id));
            if let Some(sharer) = self.sharers.get_mut(&id) {
                sharer.waits_until = Timestamp::ZERO;
            }
            self.release(id);
        }
        while let Some((bits, id)) = self.owing.first().copied() {
            let needed = (f64::from_bits(bits) - self.clock) * units(self.weights);
            if needed > left {
                self.clock += left / units(self.weights);
                break;
            }
            left -= needed;
            self.clock = f64::from_bits(bits);
            self.owing.remove(&(bits, id));
            self.release(id);
        }
        if now.ns_since(self.all_paid_at) >= PATIENCE_NS && !self.owing.is_empty() {
            self.forgive();
        }
        if self.clock > CLOCK_MAX {
            self.begin_anew();
        }
    }

    /// Goes on under `quota`: what sharers owe stays, and from now on units come back at its rate. At a higher rate, refused
    /// sharers count for less time.
    fn adopt(&mut self, quota: &Quota) {
        if self.quota == *quota {
            return;
        }
        let part = (units(quota.interval_ns()) / units(self.quota.interval_ns())).min(1.0);
        let overdraft_ns =
            units(self.overdraft_ns(self.at)) * units(quota.interval_ns()) / units(self.quota.interval_ns());
        self.quota = *quota;
        self.bucket.adopt(quota, self.at);
        self.all_paid_at = self.bucket_full_at(self.at).saturating_add_ns(whole(overdraft_ns.ceil()));
        for (until, id) in std::mem::take(&mut self.waiting) {
            let until = self.at.saturating_add_ns(whole((units(until.ns_since(self.at)) * part).ceil()));
            if let Some(sharer) = self.sharers.get_mut(&id) {
                sharer.waits_until = until;
                self.waiting.insert((until, id));
            }
        }
    }

    /// Ends what sharers owe to a bucket that stays full after all is paid: units that came back for sharers that did not take
    /// them.
    fn forgive(&mut self) {
        self.owing.clear();
        self.sharers.retain(|_, sharer| sharer.waits());
        self.sharers.values_mut().for_each(|sharer| sharer.paid_at = self.clock);
        self.weights = self.sharers.values().map(|sharer| u64::from(sharer.weight)).sum();
    }

    /// Decides a request of `cost` units at the time of the clock. Nothing is charged. A sharer that is refused counts until
    /// it may have retried, also once it owes nothing.
    pub(super) fn peek(&mut self, asker: Asker, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        if cost > 0 {
            self.adopt(quota); // a cost of 0 may be a look by the rule of an earlier policy
        }
        let decision = self.decide(asker, quota, cost, now);
        if let Some(Retry::AfterNs(ns)) = decision.denied
            && asker.id != 0
        {
            let sharer = self.remove(asker);
            let waits_until = now.saturating_add_ns(ns.saturating_add(PATIENCE_NS));
            self.insert(asker.id, Sharer { waits_until, ..sharer });
        }
        decision
    }

    /// As [`Pool::peek`], of a sharer that does not ask.
    pub(super) fn decide(&self, asker: Asker, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        let of_bucket = self.bucket.peek(quota, cost, now);
        let weights = self.weights_with(asker);
        let (owed, part) = (self.owed(asker), Self::part(asker, quota, weights));
        let has_all = weights <= f64::from(asker.weight) && owed <= units(quota.burst());
        let is_alone = has_all && of_bucket.is_admitted() && of_bucket.remaining >= self.reserved(quota, now);
        let is_within = cost == 0 || is_alone || owed <= ROUNDING || owed + units(cost) <= part + ROUNDING;
        let denied = match of_bucket.denied {
            Some(Retry::AfterNs(_)) | None if !is_within => {
                of_bucket.denied.max(Some(Retry::AfterNs(self.ns_until_within(asker, quota, cost, now))))
            }
            denied => denied,
        };
        let owed = if denied.is_none() { owed + units(cost) } else { owed };
        let least = u64::from(owed <= ROUNDING);
        let remaining = of_bucket.remaining.min(whole(part - owed + ROUNDING).max(least));
        let paid_ns = ns(owed / f64::from(asker.weight.max(1)) * weights, quota);
        Decision { denied, remaining, reset_after_ns: of_bucket.reset_after_ns.max(paid_ns) }
    }

    /// Decides a request of `cost` units and, if admitted, charges it and returns the receipt of the bucket.
    pub(super) fn admit(
        &mut self,
        asker: Asker,
        quota: &Quota,
        cost: u64,
        now: Timestamp,
    ) -> (Decision, Option<token_bucket::Receipt>) {
        let decision = self.peek(asker, quota, cost, now);
        if !decision.is_admitted() || cost == 0 {
            return (decision, None);
        }
        self.bucket.admit(quota, cost, now);
        self.all_paid_at = self.all_paid_at.max(now).saturating_add_ns(cost.saturating_mul(quota.interval_ns()));
        // One that was alone may owe more than the bucket lacks.
        let free = (units(quota.burst()) - self.owed(asker)).max(0.0);
        self.charge(asker, units(cost).min(free), 0.0);
        (decision, Some(self.bucket.receipt(cost, now)))
    }

    /// Gives a charge back that was made under `quota`. Returns the units that the bucket gets back.
    pub(super) fn refund(
        &mut self,
        asker: Asker,
        quota: &Quota,
        receipt: &token_bucket::Receipt,
        now: Timestamp,
    ) -> u64 {
        let full_at = self.bucket_full_at(now);
        let returned = self.bucket.refund(quota, receipt, now);
        let returned_ns = full_at.ns_since(self.bucket_full_at(now));
        self.all_paid_at = self.all_paid_at.saturating_sub_ns(returned_ns);
        self.charge(asker, -units(returned), 0.0);
        returned
    }

    /// Units that the sharer owes beyond the burst, rounded up.
    pub(super) fn over(&self, asker: Asker, quota: &Quota) -> u64 {
        whole((self.owed(asker) - units(quota.burst())).ceil())
    }

    /// The instant at which a sharer counts no more, if the others go on to.
    pub(super) fn idle_at(&self, id: u64) -> Timestamp {
        let Some(sharer) = self.sharers.get(&id) else { return Timestamp::ZERO };
        let paid_ns = ns((sharer.paid_at - self.clock) * units(self.weights), &self.quota);
        self.at.saturating_add_ns(paid_ns).max(sharer.waits_until)
    }

    /// Units that the sharer owes.
    pub(super) fn owed(&self, asker: Asker) -> f64 {
        let owed = |sharer: &Sharer| (sharer.paid_at - self.clock).max(0.0) * f64::from(sharer.weight);
        self.sharers.get(&asker.id).map_or(0.0, owed)
    }

    /// The part of the burst that a sharer may owe, next to sharers with these weights and its own.
    fn part(asker: Asker, quota: &Quota, weights: f64) -> f64 {
        units(quota.burst() - reserve(quota)) * f64::from(asker.weight) / weights.max(1.0)
    }

    /// The sum of the weights of all sharers that count, and of the one that asks.
    fn weights_with(&self, asker: Asker) -> f64 {
        let own = if self.sharers.contains_key(&asker.id) { 0 } else { asker.weight };
        units(self.weights + u64::from(own))
    }

    /// Adds units to those that a sharer owes, and to those of them that are beyond the bucket. It waits no more.
    fn charge(&mut self, asker: Asker, units: f64, overdraft: f64) {
        let owed = (self.owed(asker) + units).max(0.0);
        let overdraft = (self.overdraft(asker) + overdraft).max(0.0);
        self.remove(asker);
        let paid_at = self.clock + owed / f64::from(asker.weight.max(1));
        self.insert(asker.id, Sharer { weight: asker.weight, paid_at, overdraft, waits_until: Timestamp::ZERO });
    }

    /// Adds a sharer that was removed, if it counts.
    fn insert(&mut self, id: u64, sharer: Sharer) {
        let (owes, waits) = (sharer.paid_at > self.clock, sharer.waits_until > self.at);
        if owes {
            self.owing.insert((sharer.paid_at.to_bits(), id));
        }
        if waits {
            self.waiting.insert((sharer.waits_until, id));
        }
        if owes || waits {
            self.sharers.insert(id, sharer);
            self.weights += u64::from(sharer.weight);
        }
    }

    /// Removes a sharer, and returns it. One that did not count owes nothing.
    fn remove(&mut self, asker: Asker) -> Sharer {
        let Some(sharer) = self.sharers.remove(&asker.id) else {
            return Sharer { weight: asker.weight, paid_at: self.clock, overdraft: 0.0, waits_until: Timestamp::ZERO };
        };
        self.owing.remove(&(sharer.paid_at.to_bits(), asker.id));
        self.waiting.remove(&(sharer.waits_until, asker.id));
        self.weights -= u64::from(sharer.weight);
        sharer
    }

    /// Removes a sharer that neither owes nor waits any more.
    fn release(&mut self, id: u64) {
        if let Some(sharer) = self.sharers.get(&id)
            && sharer.paid_at <= self.clock
            && !sharer.waits()
        {
            self.weights -= u64::from(sharer.weight);
            self.sharers.remove(&id);
        }
    }

    /// Sets the clock to zero. What each sharer owes stays.
    fn begin_anew(&mut self) {
        let clock = std::mem::take(&mut self.clock);
        self.owing.clear();
        for (id, sharer) in &mut self.sharers {
            sharer.paid_at = (sharer.paid_at - clock).max(0.0);
            if sharer.paid_at > 0.0 {
                self.owing.insert((sharer.paid_at.to_bits(), *id));
            }
        }
    }
}

/// The units that a sharer leaves to sharers that come anew.
fn reserve(quota: &Quota) -> u64 {
    quota.burst() / RESERVE_PARTS
}

#[expect(clippy::cast_precision_loss)] // see the documentation of the module
pub(super) fn units(count: u64) -> f64 {
    count as f64
}

/// Whole units, rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a conversion saturates
fn whole(units: f64) -> u64 {
    units as u64
}

/// The time in which so many units come back to all, rounded up.
#[expect(clippy::cast_precision_loss)] // see the documentation of the module
fn ns(units: f64, quota: &Quota) -> u64 {
    whole((units * quota.interval_ns() as f64).ceil())
}
