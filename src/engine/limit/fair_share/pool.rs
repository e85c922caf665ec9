//! The bucket that sharers spend from, and what each of them owes.
//!
//! The clock of a pool counts the units, for each unit of weight, that have come back to every sharer that owed some: the
//! virtual time of generalized processor sharing (Parekh and Gallager, "A generalized processor sharing approach to flow
//! control in integrated services networks", 1993). It runs as fast as the units of the bucket come back, divided by the
//! weights of the sharers that owe units or wait. So the instant at which a sharer owes nothing is a fixed time of this
//! clock, whatever the others do.
//!
//! Units on the clock are `f64`: they decide only about fairness. The bound of all sharers is that of the bucket, which
//! computes with integers.

use std::collections::{BTreeMap, HashMap};

use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::token_bucket::{self, Bucket};
use crate::engine::limit::{Decision, Quota, Retry};

/// A part of the burst that a sharer leaves to sharers that come anew, if the burst has so many units.
const RESERVE_PARTS: u64 = 10;

/// Rounding errors of the clock, in units.
const ROUNDING: f64 = 1e-6;

/// A refused sharer counts for so long after the time at which it may retry, in nanoseconds. `Retry-After` has whole seconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The state of all sharers of one limit.
#[derive(Debug)]
pub(super) struct Pool {
    bucket: Bucket,
    /// The instant of the clock.
    at: Timestamp,
    clock: f64,
    /// The weights of the sharers that owe units, by the bits of the time of the clock at which they owe none, and by their
    /// ids. The order of the bits is that of the numbers, which are not negative.
    owing: BTreeMap<(u64, u64), u32>,
    /// The weights of refused sharers that owe nothing, by the instant until which they count, and by their ids.
    waiting: BTreeMap<(Timestamp, u64), u32>,
    /// The instants of `waiting`, by the ids.
    waits_until: HashMap<u64, Timestamp>,
    /// The sum of the weights of all that owe or wait.
    weights: u64,
    last_id: u64,
}

/// One sharer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharer {
    /// 0 before it is in the pool.
    id: u64,
    weight: u32,
    /// The time of the clock at which it owes nothing.
    paid_at: f64,
}

impl Sharer {
    /// A sharer that owes nothing.
    pub(super) fn new(weight: u32) -> Self {
        Self { id: 0, weight, paid_at: 0.0 }
    }
}

impl Pool {
    /// A full bucket without sharers.
    pub(super) fn new(quota: &Quota) -> Self {
        Self {
            bucket: Bucket::fresh(quota),
            at: Timestamp::ZERO,
            clock: 0.0,
            owing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waits_until: HashMap::new(),
            weights: 0,
            last_id: 0,
        }
    }

    /// Moves the clock to `now`, unless it is there.
    #[expect(clippy::cast_precision_loss)] // see the documentation of the module
    pub(super) fn advance(&mut self, quota: &Quota, now: Timestamp) {
        let mut units = now.ns_since(self.at) as f64 / quota.interval_ns() as f64;
        self.at = self.at.max(now);
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            self.waits_until.remove(&first.key().1);
            self.weights -= u64::from(first.remove());
        }
        while let Some(first) = self.owing.first_entry() {
            let paid_at = f64::from_bits(first.key().0);
            let needed = (paid_at - self.clock) * self.weights as f64;
            if needed > units {
                self.clock += units / self.weights as f64;
                return;
            }
            units -= needed;
            self.clock = paid_at;
            self.weights -= u64::from(first.remove());
        }
    }

    /// Applies another rule. What the sharer owes stays.
    pub(super) fn adopt(&mut self, sharer: &mut Sharer, quota: &Quota, weight: u32, now: Timestamp) {
        self.bucket.adopt(quota, now);
        if sharer.weight != weight {
            let owed = self.owed(sharer);
            self.remove(sharer);
            sharer.weight = weight;
            sharer.paid_at = self.clock;
            self.owe(sharer, owed);
        }
    }

    /// Decides a request of `cost` units at the time of the clock. Nothing is charged. A sharer that waits goes on to wait.
    pub(super) fn peek(&mut self, sharer: &Sharer, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        let decision = self.decide(sharer, quota, cost, now);
        if decision.denied.is_some() && self.waits_until.contains_key(&sharer.id) {
            self.wait_on(sharer, &decision, now);
        }
        decision
    }

    fn decide(&self, sharer: &Sharer, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        let of_bucket = self.bucket.peek(quota, cost, now);
        let (owed, part) = (self.owed(sharer), self.part(sharer, quota));
        let is_within = owed <= ROUNDING || owed + units(cost) <= part + ROUNDING;
        let denied = match of_bucket.denied {
            Some(Retry::Never) => Some(Retry::Never),
            of_bucket if cost == 0 || is_within => of_bucket,
            of_bucket => {
                let excess = owed - (part - units(cost)).max(0.0);
                Some(Retry::AfterNs(self.ns_to_pay(sharer, excess, quota))).max(of_bucket)
            }
        };
        let owed = if denied.is_none() { owed + units(cost) } else { owed };
        let least = u64::from(owed <= ROUNDING);
        let remaining = of_bucket.remaining.min(whole(part - owed + ROUNDING).max(least));
        let paid_ns = self.ns_to_pay(sharer, owed, quota);
        Decision { denied, remaining, reset_after_ns: of_bucket.reset_after_ns.max(paid_ns) }
    }

    /// Decides a request of `cost` units and, if admitted, charges it and returns the receipt of the bucket.
    pub(super) fn admit(
        &mut self,
        sharer: &mut Sharer,
        quota: &Quota,
        cost: u64,
        now: Timestamp,
    ) -> (Decision, Option<token_bucket::Receipt>) {
        let decision = self.decide(sharer, quota, cost, now);
        match decision.denied {
            None if cost > 0 => {
                self.bucket.admit(quota, cost, now);
                self.remove(sharer);
                self.owe(sharer, units(cost));
                (decision, Some(self.bucket.receipt(cost, now)))
            }
            Some(_) if self.owed(sharer) <= ROUNDING => {
                self.name(sharer);
                self.wait_on(sharer, &decision, now);
                (decision, None)
            }
            _ => (decision, None),
        }
    }

    /// The wait behind requests of the same sharer that take `ahead` units, if all sharers that owe units now go on to.
    pub(super) fn wait(&self, sharer: &Sharer, quota: &Quota, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let of_bucket = self.bucket.wait(quota, ahead, cost, now);
        let part = self.part(sharer, quota);
        let excess = self.owed(sharer) + units(ahead) - (part - units(cost)).max(0.0);
        let shared = self.weights_with(sharer) / f64::from(sharer.weight.max(1));
        of_bucket.max(Retry::AfterNs(ns(excess * shared, quota)))
    }

    /// Gives a charge back. Returns the units that the bucket gets back.
    pub(super) fn refund(
        &mut self,
        sharer: &mut Sharer,
        quota: &Quota,
        receipt: &token_bucket::Receipt,
        now: Timestamp,
    ) -> u64 {
        self.remove(sharer);
        self.owe(sharer, -units(receipt.cost()));
        self.bucket.refund(quota, receipt, now)
    }

    /// Charges units whether they fit or not; see [`State::settle`](crate::engine::limit::State::settle).
    #[expect(clippy::cast_precision_loss)] // see the documentation of the module
    pub(super) fn settle(
        &mut self,
        sharer: &mut Sharer,
        quota: &Quota,
        (extra, max_debt): (i64, u64),
        now: Timestamp,
    ) -> i64 {
        let settled = self.bucket.settle(quota, extra, max_debt, now);
        self.remove(sharer);
        self.owe(sharer, settled as f64);
        settled
    }

    /// Units of the bucket beyond its limit.
    pub(super) fn over(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.bucket.over(quota, now)
    }

    /// Whether the sharer decides as a new one, at the time of the clock.
    fn is_idle(&self, sharer: &Sharer) -> bool {
        sharer.paid_at <= self.clock && !self.waits_until.contains_key(&sharer.id)
    }

    /// Units that the sharer owes, rounded up, and the instant of the clock.
    pub(super) fn owed_at(&self, sharer: &Sharer) -> (u64, Timestamp) {
        (whole(self.owed(sharer).ceil()), self.at)
    }

    /// Units that the sharer owes.
    fn owed(&self, sharer: &Sharer) -> f64 {
        (sharer.paid_at - self.clock).max(0.0) * f64::from(sharer.weight)
    }

    /// The instant at which a sharer owes nothing, if no other one comes, and it waits no more.
    pub(super) fn idle_at(&self, sharer: &Sharer, quota: &Quota) -> Timestamp {
        let paid_at = self.at.saturating_add_ns(self.ns_to_pay(sharer, self.owed(sharer), quota));
        self.waits_until.get(&sharer.id).map_or(paid_at, |until| paid_at.max(*until))
    }

    /// The part of the burst that a sharer may owe.
    #[expect(clippy::cast_precision_loss)] // see the documentation of the module
    fn part(&self, sharer: &Sharer, quota: &Quota) -> f64 {
        let shared = quota.burst() - quota.burst() / RESERVE_PARTS;
        shared as f64 * f64::from(sharer.weight) / self.weights_with(sharer).max(1.0)
    }

    /// The sum of the weights of all sharers that count, and of `sharer`.
    #[expect(clippy::cast_precision_loss)] // see the documentation of the module
    fn weights_with(&self, sharer: &Sharer) -> f64 {
        let own = if self.is_idle(sharer) { sharer.weight } else { 0 };
        (self.weights + u64::from(own)) as f64
    }

    /// Nanoseconds until `sharer` has paid so many units, if nobody is charged meanwhile.
    fn ns_to_pay(&self, sharer: &Sharer, owed: f64, quota: &Quota) -> u64 {
        if owed <= ROUNDING {
            return 0;
        }
        let (mut clock, mut weights, mut all) = (self.clock, self.weights_with(sharer), 0.0);
        let target = clock + owed / f64::from(sharer.weight.max(1));
        for ((bits, _), weight) in &self.owing {
            let paid_at = f64::from_bits(*bits);
            if paid_at >= target {
                break;
            }
            all += (paid_at - clock) * weights;
            (clock, weights) = (paid_at, weights - f64::from(*weight));
        }
        ns(all + (target - clock) * weights.max(1.0), quota)
    }

    /// Adds units to those that a sharer owes, which is in neither of the maps.
    fn owe(&mut self, sharer: &mut Sharer, units: f64) {
        self.name(sharer);
        sharer.paid_at = sharer.paid_at.max(self.clock) + units / f64::from(sharer.weight.max(1));
        if sharer.paid_at > self.clock {
            self.owing.insert((sharer.paid_at.to_bits(), sharer.id), sharer.weight);
            self.weights += u64::from(sharer.weight);
        }
    }

    /// Lets a sharer count that owes nothing and is refused, until it may have retried.
    fn wait_on(&mut self, sharer: &Sharer, decision: &Decision, now: Timestamp) {
        let Some(Retry::AfterNs(ns)) = decision.denied else { return };
        let until = now.saturating_add_ns(ns.saturating_add(PATIENCE_NS));
        self.remove(sharer);
        self.waits_until.insert(sharer.id, until);
        self.waiting.insert((until, sharer.id), sharer.weight);
        self.weights += u64::from(sharer.weight);
    }

    fn name(&mut self, sharer: &mut Sharer) {
        if sharer.id == 0 {
            self.last_id += 1;
            sharer.id = self.last_id;
        }
    }

    /// Removes a sharer from both maps.
    fn remove(&mut self, sharer: &Sharer) {
        let owed = self.owing.remove(&(sharer.paid_at.to_bits(), sharer.id));
        let until = self.waits_until.remove(&sharer.id);
        let waited = until.and_then(|until| self.waiting.remove(&(until, sharer.id)));
        self.weights -= owed.into_iter().chain(waited).map(u64::from).sum::<u64>();
    }
}

#[expect(clippy::cast_precision_loss)] // see the documentation of the module
fn units(count: u64) -> f64 {
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
