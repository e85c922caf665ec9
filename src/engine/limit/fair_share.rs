//! Fair shares of one token bucket: max-min fairness between sharers, by weight.
//!
//! All sharers of a limit spend from one bucket. Each owes the units that it has spent. The units that come back pay for
//! sharers that owe some, in proportion to their weights; see `pool.rs`. A sharer may spend as long as it owes no more than
//! its part of the burst, or if it owes nothing. What one sharer leaves goes to the others, at once.
//!
//! Bounds: all sharers together, that of [`token_bucket`]. A sharer that asks for no more than its part of the rate is
//! always admitted, as long as the burst has ten units for each unit that sharers ask for at once. With a smaller burst its
//! request may find the bucket empty; it counts from then on, and is the next one.
//!
//! The states of the sharers share the pool of their rule, behind a lock. Nothing else in `limit` takes one.

mod pool;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use self::pool::{Asker, Pool};
use super::packed::{Packed, Unpacker};
use super::portable::{Charged, Numbers, Portable};
use super::rule::{self, Scale};
use super::state;
use super::{Decision, Pace, Quota, QuotaError, RemainingByRate, Retry, token_bucket};
use crate::base::time::Timestamp;

/// The pool of a limit.
#[derive(Clone, Debug, Default)]
pub struct SharedPool(Arc<OnceLock<PoolHandle>>);

type PoolHandle = Arc<Mutex<Pool>>;

/// The rule of the sharers of one weight.
#[derive(Clone, Debug)]
pub struct Rule(Arc<Terms>);

#[derive(Clone, Debug)]
struct Terms {
    quota: Quota,
    weight: u32,
    pool: SharedPool,
}

impl SharedPool {
    fn handle(&self, quota: &Quota) -> &PoolHandle {
        self.0.get_or_init(|| Arc::new(Mutex::new(Pool::new(quota))))
    }
}

impl Rule {
    /// The rule of sharers with this weight, which spend from `pool`.
    pub fn new(quota: Quota, weight: u32, pool: SharedPool) -> Self {
        Self(Arc::new(Terms { quota, weight: weight.max(1), pool }))
    }

    /// The part of a sharer is in proportion to it.
    #[cfg(test)]
    pub(crate) fn weight(&self) -> u32 {
        self.0.weight
    }

    /// Lets the rule, and all that have its pool, go on with the pool that is `known`. It becomes known if none is.
    pub fn join(&self, known: &OnceLock<SharedPool>) {
        let Terms { quota, pool, .. } = &*self.0;
        let handle = known.get_or_init(|| pool.clone()).handle(quota);
        pool.0.get_or_init(|| Arc::clone(handle));
    }

    fn handle(&self) -> &PoolHandle {
        self.0.pool.handle(&self.0.quota)
    }

    /// The pool at `now`.
    fn pool(&self, now: Timestamp) -> MutexGuard<'_, Pool> {
        let mut pool = lock(self.handle());
        pool.advance(now);
        pool
    }
}

fn lock(pool: &PoolHandle) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rules are equal if they have the same numbers in the configuration.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        (self.0.quota, self.0.weight) == (other.0.quota, other.0.weight)
    }
}

impl Eq for Rule {}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.0.quota.burst()
    }

    fn period_ns(&self) -> Option<u64> {
        rule::Rule::period_ns(&self.0.quota)
    }

    fn interval_ns(&self) -> u64 {
        self.0.quota.interval_ns()
    }

    fn memory_ns(&self) -> u64 {
        self.0.quota.memory_ns()
    }

    fn pace(&self, now: Timestamp) -> Option<Pace> {
        self.0.quota.pace(now)
    }

    /// What a sharer gets depends on the others.
    fn is_within(&self, _: &Self) -> bool {
        false
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        let Terms { quota, weight, pool } = &*self.0;
        Ok(Self::new(quota.scaled(scale)?, *weight, pool.clone()))
    }

    /// A store knows no sharers.
    fn portable_debt_max(&self) -> Option<u64> {
        None
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.0.quota.bound(span_ns)
    }
}

/// The state of one sharer: its place in the pool. Copies are the same sharer.
#[derive(Clone, Debug)]
pub struct State(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    /// 0 before the first request.
    id: u64,
    /// `None` before a rule is known.
    pool: Option<PoolHandle>,
    /// The receipt of the last charge.
    receipt: Option<token_bucket::Receipt>,
}

/// The proof of a charge: that of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(Option<token_bucket::Receipt>);

/// Units that were charged since may be beyond the bucket.
impl state::Receipt for Receipt {
    fn part(&self, units: u64, grown: u64) -> (Self, u64) {
        let own = units.min(self.0.map_or(0, |receipt| receipt.cost()));
        (Self(self.0.map(|receipt| state::Receipt::part(&receipt, own, 0).0)), (units - own).min(grown))
    }
}

impl State {
    /// The sharer, as `rule` has it.
    fn asker(&self, rule: &Rule) -> Asker {
        Asker { id: self.0.id, weight: rule.0.weight }
    }

    /// The sharer, which has an id from now on.
    fn identified(&mut self, rule: &Rule, pool: &mut Pool) -> Asker {
        if self.0.id == 0 {
            self.0.id = pool.next_id();
            self.0.pool = Some(Arc::clone(rule.handle()));
        }
        self.asker(rule)
    }
}

impl state::State for State {
    type Rule = Rule;
    type Receipt = Receipt;

    fn fresh(_: &Rule) -> Self {
        Self(Box::new(Inner { id: 0, pool: None, receipt: None }))
    }

    fn is_of(&self, _rule: &Rule) -> bool {
        true
    }

    /// The pool adopts the rule of each request.
    fn adopt(&mut self, _: &Rule, _: Timestamp) {}

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        let mut pool = rule.pool(now);
        let asker = self.identified(rule, &mut pool);
        let (decision, receipt) = pool.admit(asker, &rule.0.quota, cost, now);
        self.0.receipt = receipt;
        decision
    }

    fn peek(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        rule.pool(now).peek(self.asker(rule), &rule.0.quota, cost, now)
    }

    /// A sharer counts no longer than before.
    fn look(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        rule.pool(now).decide(self.asker(rule), &rule.0.quota, cost, now)
    }

    /// A look.
    fn remaining(&self, rule: &Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        let (pool, asker) = (rule.pool(now), self.asker(rule));
        [state::remaining_of(|cost| pool.decide(asker, &rule.0.quota, cost, now), cost)].into_iter().collect()
    }

    /// An estimate: sharers may come and go.
    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        rule.pool(now).wait(self.asker(rule), &rule.0.quota, ahead, cost, now)
    }

    fn receipt(&self, _cost: u64, _now: Timestamp) -> Receipt {
        Receipt(self.0.receipt)
    }

    fn refund(&mut self, rule: &Rule, receipt: &Receipt, now: Timestamp) -> u64 {
        let mut pool = rule.pool(now);
        receipt.0.map_or(0, |receipt| pool.refund(self.asker(rule), &rule.0.quota, &receipt, now))
    }

    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        let mut pool = rule.pool(now);
        let asker = self.identified(rule, &mut pool);
        pool.settle(asker, (extra, max_debt), now)
    }

    fn over(&self, rule: &Rule, now: Timestamp) -> u64 {
        rule.pool(now).over(self.asker(rule), &rule.0.quota)
    }

    fn idle_at(&self) -> Timestamp {
        self.0.pool.as_ref().map_or(Timestamp::ZERO, |pool| lock(pool).idle_at(self.0.id))
    }
}

/// The pool ends with the process, so nothing is stored.
impl Packed for State {
    fn pack(&self, _: &mut Vec<u8>) {}

    fn unpack(_: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self(Box::new(Inner { id: 0, pool: None, receipt: None })))
    }
}

/// A store knows no sharers.
impl Portable for State {
    fn export(&self, _: &Rule, _: Timestamp, _: &mut Numbers) {}

    fn import(_: &Rule, _: &mut dyn Iterator<Item = u64>, _: Timestamp) -> Option<Self> {
        None
    }

    fn proof(_: &Rule, _: &[u64], _: Charged) -> Option<(usize, [u64; 5])> {
        None
    }
}

#[cfg(test)]
mod tests;
