//! Leases: units that a replica borrows from a store and spends alone.
//!
//! A borrowed unit counts in the store from the instant at which it was borrowed. It is spent within [`LEASE_NS`], or
//! goes back. So all replicas together spend no more units than the store has charged. In any span of length `w` they
//! admit no more than the limit admits in a span of `w + LEASE_NS`.
//!
//! The amount follows the demand: twice the units that requests took in [`INTERVAL_NS`], or were denied. A lease is renewed when half of
//! the demand is left, so a busy key does not wait. At most one call for a key is in flight.
//!
//! A spent unit that is given back returns to its grant, if that is still known and has not expired. Otherwise it returns to
//! the store by the receipt of its grant.
//!
//! Not here: the call (`crate::fleet::stores`), and its step in a decision (gate).

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use dashmap::DashMap;
use smallvec::SmallVec;
use tokio::sync::watch;

use super::backend::{Unavailable, Units};
use super::table::shards::Spread;
use crate::base::split_mix::mix;
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, LeaseUnits};

/// The longest time from borrowing a unit until it is spent, in nanoseconds.
pub const LEASE_NS: u64 = 500_000_000;

/// The time over which demand is counted, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;

/// The least time without a call after the store had no units left, in nanoseconds. So three replicas make at most 50 calls
/// a second for a key that is always at its limit.
const SCARCE_NS: u64 = 60_000_000;

/// The random part of this time, in nanoseconds. Otherwise a replica that always asks after another one gets nothing.
const SCARCE_JITTER_NS: u64 = 30_000_000;

/// Locks, so that workers seldom contend.
const SHARDS: usize = 16;

/// Grants of one key that are kept although all their units are spent. A busy key has about eight in [`LEASE_NS`].
const SPENT_GRANTS_MAX: usize = 16;

/// The leases of one limit. `R` is the proof of a charge in the store. A lock is held for one look into a map.
#[derive(Debug)]
pub struct Leases<R> {
    keys: DashMap<Key, Lease<R>, BuildHasherDefault<Spread>>,
}

/// The borrowed units of one key.
#[derive(Debug)]
struct Lease<R> {
    /// In the order in which they were borrowed, also spent ones. Those that have expired wait for [`Leases::sweep`].
    grants: SmallVec<[Grant<R>; 2]>,
    demand: Demand,
    /// Dropped when the call in flight ends, after the reason if it failed; `None` if there is no call.
    call: Option<watch::Sender<Option<Unavailable>>>,
    /// The store has no more than `in_store` units before.
    scarce_until: Timestamp,
    in_store: u64,
}

/// Units that were borrowed by one call.
#[derive(Debug)]
pub struct Grant<R> {
    /// Units that are left.
    pub units: u64,
    /// The instant at which they go back.
    pub expires: Timestamp,
    /// The proof of their charge in the store. Each request that took some of them has it too.
    pub receipt: Arc<R>,
}

/// Units that a request took, with the receipts of their grants. Most requests take units of one grant.
pub type Taken<R> = SmallVec<[(Arc<R>, u64); 1]>;

/// The units that a request took, and those that it left.
#[derive(Debug)]
pub struct SpentUnits<R> {
    /// The units that the request took.
    pub taken: Taken<R>,
    /// Units at hand after that.
    pub left: u64,
}

/// Units that requests took in the current interval and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    began: Timestamp,
    this: u64,
    last: u64,
}

/// The result of a request for units at hand.
#[derive(Debug)]
pub enum Spend<R> {
    /// The units are spent.
    Spent {
        /// The units.
        spent: SpentUnits<R>,
        /// Whether a call should borrow more.
        are_few: bool,
    },
    /// Too few units are at hand, and the store has none for so many nanoseconds.
    Denied(u64),
    /// Too few units are at hand.
    Short,
}

/// The result of a request for units, which may have to be borrowed.
#[derive(Debug)]
pub enum Supply<R> {
    /// The units are spent.
    Spent(SpentUnits<R>),
    /// Too few units are at hand, and the store has none for so many nanoseconds.
    Denied(u64),
    /// Too few units are at hand. The caller makes the call, and spends what it needs of its units.
    Borrow(Call<R>),
    /// Too few units are at hand, and a call is in flight.
    Wait(InFlight),
}

/// A call of another request for units of the same key.
#[derive(Debug)]
pub struct InFlight(watch::Receiver<Option<Unavailable>>);

/// A call that borrows units of one key. Dropping it ends the call.
#[derive(Debug)]
pub struct Call<R> {
    leases: Arc<Leases<R>>,
    key: Key,
    /// Units to borrow, if the store has so many.
    pub want: u64,
    /// The least units that are of use: with those at hand they suffice.
    pub least: u64,
    /// Units at hand when the call began.
    at_hand: u64,
}

impl Demand {
    fn add(&mut self, units: u64, now: Timestamp) {
        let elapsed_ns = now.ns_since(self.began);
        if elapsed_ns >= INTERVAL_NS {
            let last = if elapsed_ns < 2 * INTERVAL_NS { self.this } else { 0 };
            *self = Self { began: now, this: 0, last };
        }
        self.this = self.this.saturating_add(units);
    }

    fn units(&self) -> u64 {
        self.this.max(self.last)
    }
}

impl<R> Default for Lease<R> {
    fn default() -> Self {
        Self {
            grants: SmallVec::new(),
            demand: Demand::default(),
            call: None,
            scarce_until: Timestamp::ZERO,
            in_store: 0,
        }
    }
}

impl<R> Lease<R> {
    /// Units that may be spent at `now`.
    fn unspent(&self, now: Timestamp) -> u64 {
        let alive = self.grants.iter().filter(|grant| grant.expires > now);
        alive.fold(0, |units, grant| units.saturating_add(grant.units))
    }

    /// Spends `cost` units, if they are at hand.
    fn spend(&mut self, cost: u64, units: LeaseUnits, now: Timestamp) -> Spend<R> {
        let at_hand = self.unspent(now);
        let Some(left) = at_hand.checked_sub(cost) else {
            return match self.scarce_ns(cost - at_hand, now) {
                0 => Spend::Short,
                scarce_ns => {
                    // It is as much in demand as what others spend elsewhere.
                    self.demand.add(cost, now);
                    Spend::Denied(scarce_ns)
                }
            };
        };
        let taken = self.take(cost, now);
        self.demand.add(cost, now);
        Spend::Spent { spent: SpentUnits { taken, left }, are_few: self.are_few(left, units, now) }
    }

    /// Takes `units`, which are there, from the oldest grants.
    fn take(&mut self, mut units: u64, now: Timestamp) -> Taken<R> {
        let mut all = Taken::new();
        for grant in self.grants.iter_mut().filter(|grant| grant.expires > now && grant.units > 0) {
            if units == 0 {
                break;
            }
            let taken = units.min(grant.units);
            (grant.units, units) = (grant.units - taken, units - taken);
            all.push((Arc::clone(&grant.receipt), taken));
        }
        all
    }

    /// Adds a grant. Forgets the oldest spent one if there are many.
    fn add(&mut self, grant: Grant<R>) {
        if self.grants.len() >= SPENT_GRANTS_MAX
            && let Some(spent) = self.grants.iter().position(|grant| grant.units == 0)
        {
            self.grants.remove(spent);
        }
        self.grants.push(grant);
    }

    /// Whether a call should borrow more, if `left` units are at hand.
    fn are_few(&self, left: u64, units: LeaseUnits, now: Timestamp) -> bool {
        left < self.amount(units) / 4 && self.call.is_none() && self.scarce_ns(1, now) == 0
    }

    /// Nanoseconds for which the store has less than `units`.
    fn scarce_ns(&self, units: u64, now: Timestamp) -> u64 {
        if units > self.in_store { self.scarce_until.ns_since(now) } else { 0 }
    }

    /// Units that a call borrows.
    fn amount(&self, units: LeaseUnits) -> u64 {
        match units {
            LeaseUnits::Auto => self.demand.units().saturating_mul(2),
            LeaseUnits::Fixed(units) => units,
        }
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.grants.is_empty()
            && self.call.is_none()
            && self.scarce_until <= now
            && now.ns_since(self.demand.began) >= 2 * INTERVAL_NS
    }
}

impl<R> Default for Leases<R> {
    fn default() -> Self {
        Self { keys: DashMap::with_capacity_and_hasher_and_shard_amount(0, BuildHasherDefault::default(), SHARDS) }
    }
}

impl<R> Leases<R> {
    /// Spends `cost` units of `key`, if they are at hand. A call borrows `units`.
    pub fn spend(&self, key: Key, cost: u64, units: LeaseUnits, now: Timestamp) -> Spend<R> {
        match self.keys.get_mut(&key) {
            Some(mut lease) => lease.spend(cost, units, now),
            None => Spend::Short,
        }
    }

    /// Spends `cost` units of `key`, or begins the call that borrows them.
    pub fn supply(self: &Arc<Self>, key: Key, cost: u64, units: LeaseUnits, now: Timestamp) -> Supply<R> {
        let mut lease = self.keys.entry(key).or_default();
        match lease.spend(cost, units, now) {
            Spend::Spent { spent, .. } => return Supply::Spent(spent),
            Spend::Denied(scarce_ns) => return Supply::Denied(scarce_ns),
            Spend::Short => {}
        }
        if let Some(in_flight) = &lease.call {
            return Supply::Wait(InFlight(in_flight.subscribe()));
        }
        let (want, at_hand) = (lease.amount(units).max(cost), lease.unspent(now));
        lease.call = Some(watch::Sender::new(None));
        Supply::Borrow(Call { leases: Arc::clone(self), key, want, least: cost.saturating_sub(at_hand), at_hand })
    }

    /// Begins a call that borrows more units of `key`, if few are at hand.
    pub fn refill(self: &Arc<Self>, key: Key, units: LeaseUnits, now: Timestamp) -> Option<Call<R>> {
        let mut lease = self.keys.get_mut(&key)?;
        let left = lease.unspent(now);
        if !lease.are_few(left, units, now) {
            return None;
        }
        lease.call = Some(watch::Sender::new(None));
        Some(Call { leases: Arc::clone(self), key, want: lease.amount(units), least: 1, at_hand: left })
    }

    /// Lets the store be asked again, which has units of `key` once more.
    pub fn end_scarcity(&self, key: Key) {
        if let Some(mut lease) = self.keys.get_mut(&key) {
            lease.scarce_until = Timestamp::ZERO;
        }
    }

    /// Units of `key` that are borrowed and not spent.
    pub fn unspent(&self, key: Key, now: Timestamp) -> u64 {
        self.keys.get(&key).map_or(0, |lease| lease.unspent(now))
    }

    /// Puts units back into the grant of `receipt`, from which they were taken. Returns `false` if the grant has expired or
    /// is forgotten.
    pub fn put_back(&self, key: Key, receipt: &Arc<R>, units: u64, now: Timestamp) -> bool {
        let Some(mut lease) = self.keys.get_mut(&key) else { return false };
        let mut alive = lease.grants.iter_mut().filter(|grant| grant.expires > now);
        alive.find(|grant| Arc::ptr_eq(&grant.receipt, receipt)).is_some_and(|grant| {
            grant.units = grant.units.saturating_add(units);
            true
        })
    }

    /// Removes expired grants and the leases of idle keys. Returns the grants with units that are not spent, with their keys.
    /// With `all`, removes every grant.
    pub fn sweep(&self, all: bool, now: Timestamp) -> Vec<(Key, Grant<R>)> {
        let mut removed = Vec::new();
        self.keys.retain(|key, lease| {
            let has_ended = |grant: &Grant<R>| all || grant.expires <= now;
            if lease.grants.iter().any(has_ended) {
                let (ended, alive): (SmallVec<[_; 2]>, _) = lease.grants.drain(..).partition(has_ended);
                lease.grants = alive;
                let unspent = ended.into_iter().filter(|grant| grant.units > 0);
                removed.extend(unspent.map(|grant| (*key, grant)));
            }
            !lease.is_idle(now)
        });
        removed
    }

    /// Units of all keys that are borrowed and not spent, also of expired grants.
    pub fn units(&self) -> u64 {
        let units = |lease: &Lease<R>| lease.unspent(Timestamp::ZERO);
        self.keys.iter().fold(0, |all, lease| all.saturating_add(units(&lease)))
    }
}

impl InFlight {
    /// Waits for the end of the call. Returns why it failed, if it did.
    pub async fn ended(mut self) -> Option<Unavailable> {
        // An error says that the sender is gone.
        match self.0.changed().await {
            Ok(()) => *self.0.borrow(),
            Err(_) => None,
        }
    }
}

impl<R> Call<R> {
    /// The units that the call asks for.
    pub fn units(&self) -> Units {
        Units { cost: self.least, want: self.want, divisor: 1, at_hand: self.at_hand }
    }

    /// Ends the call, whose store says nothing. Requests that wait for it do not call again.
    pub fn failed(self, why: Unavailable) {
        if let Some(in_flight) = self.leases.keys.get(&self.key).and_then(|lease| lease.call.clone()) {
            in_flight.send_replace(Some(why));
        }
    }

    /// Adds `grant`, and spends `cost` units. Returns `None` if so many are not at hand, because others spent them during the
    /// call.
    pub fn granted(&self, grant: Grant<R>, cost: u64, now: Timestamp) -> Option<SpentUnits<R>> {
        let mut lease = self.leases.keys.entry(self.key).or_default();
        lease.add(grant);
        lease.demand.add(cost, now);
        let left = lease.unspent(now).checked_sub(cost)?;
        Some(SpentUnits { taken: lease.take(cost, now), left })
    }

    /// Notes that the store has no more than `in_store` units, for `most_ns` nanoseconds at most.
    pub fn is_scarce(&self, in_store: u64, most_ns: u64, now: Timestamp) {
        let mut lease = self.leases.keys.entry(self.key).or_default();
        let jitter_ns = mix(now.as_ns() ^ self.key.first) % SCARCE_JITTER_NS;
        lease.scarce_until = now.saturating_add_ns(most_ns.min(SCARCE_NS + jitter_ns));
        lease.in_store = in_store;
    }
}

impl<R> Drop for Call<R> {
    fn drop(&mut self) {
        if let Some(mut lease) = self.leases.keys.get_mut(&self.key) {
            lease.call = None;
        }
    }
}

#[cfg(test)]
mod tests;
