//! Leases: units that a replica borrows from a store and spends alone.
//!
//! A borrowed unit counts in the store from the instant at which it was borrowed. It is spent within [`LEASE_NS`], or
//! goes back. So all replicas together spend no more units than the store has charged. In any span of length `w` they
//! admit no more than the limit admits in a span of `w + LEASE_NS`.
//!
//! The amount follows the demand: twice the units that the key used in [`INTERVAL_NS`]. A lease is renewed when half of
//! the demand is left, so a busy key does not wait. At most one call for a key is in flight.
//!
//! Not here: the call (redis), and its step in a decision (gate).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::sync::watch;

use crate::limit::Key;
use crate::time::Timestamp;

/// The longest time from borrowing a unit until it is spent, in nanoseconds.
pub const LEASE_NS: u64 = 500_000_000;

/// The time over which demand is counted, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;

/// The time without a call after the store had no units left, in nanoseconds. So three replicas make at most 50 calls a
/// second for a key that is always at its limit.
const SCARCE_NS: u64 = 60_000_000;

/// Locks, so that workers seldom contend.
const SHARDS: usize = 16;

/// The leases of one limit. `R` is the proof of a charge in the store. A lock is held for one look into a map.
#[derive(Debug)]
pub struct Leases<R> {
    shards: [Mutex<HashMap<Key, Lease<R>>>; SHARDS],
    hasher: RandomState,
}

/// The borrowed units of one key.
#[derive(Debug)]
struct Lease<R> {
    /// In the order in which they were borrowed.
    grants: SmallVec<[Grant<R>; 2]>,
    demand: Demand,
    /// Dropped when the call in flight ends; `None` if there is none.
    call: Option<watch::Sender<()>>,
    /// The store has no units before.
    scarce_until: Timestamp,
}

/// Units that were borrowed by one call.
#[derive(Debug)]
pub struct Grant<R> {
    /// Units that are left.
    pub units: u64,
    /// The instant at which they go back.
    pub expires: Timestamp,
    /// The proof of their charge in the store.
    pub receipt: R,
}

/// Units that requests took in the current interval and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    began: Timestamp,
    this: u64,
    last: u64,
}

/// The result of a request for units.
#[derive(Debug)]
pub enum Spend<'l, R> {
    /// The units are spent, and so many are left. If there is a call, the caller makes it in the background.
    Spent(u64, Option<Call<'l, R>>),
    /// Too few units are left. The caller makes the call, and spends what it needs of its units.
    Borrow(Call<'l, R>),
    /// Too few units are left, and a call is in flight. The caller tries again when the sender is dropped.
    Wait(watch::Receiver<()>),
    /// Too few units are left, and the store has none for so many nanoseconds.
    Denied(u64),
}

/// A call that borrows units of one key. Dropping it ends the call.
#[derive(Debug)]
pub struct Call<'l, R> {
    leases: &'l Leases<R>,
    key: Key,
    /// Units to borrow, if the store has so many.
    pub want: u64,
}

/// Grants that have expired. Their units go back to the store.
pub type Expired<R> = SmallVec<[Grant<R>; 2]>;

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
        Self { grants: SmallVec::new(), demand: Demand::default(), call: None, scarce_until: Timestamp::ZERO }
    }
}

impl<R> Lease<R> {
    fn unspent(&self) -> u64 {
        self.grants.iter().fold(0, |units, grant| units.saturating_add(grant.units))
    }

    /// Moves expired grants to `expired`.
    fn expire(&mut self, now: Timestamp, expired: &mut Expired<R>) {
        for index in (0..self.grants.len()).rev() {
            if self.grants[index].expires <= now {
                expired.push(self.grants.remove(index));
            }
        }
    }

    /// Takes `units`, which are there, from the oldest grants.
    fn take(&mut self, mut units: u64) {
        for grant in &mut self.grants {
            let taken = units.min(grant.units);
            (grant.units, units) = (grant.units - taken, units - taken);
        }
        self.grants.retain(|grant| grant.units > 0);
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
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

impl<R> Leases<R> {
    /// Spends `cost` units of `key`. A call borrows `amount` units; without it, as many as the demand needs. Expired
    /// grants are moved to `expired`.
    pub fn spend(
        &self,
        key: Key,
        cost: u64,
        amount: Option<u64>,
        now: Timestamp,
        expired: &mut Expired<R>,
    ) -> Spend<'_, R> {
        let mut shard = self.shard(key);
        let lease = shard.entry(key).or_default();
        lease.expire(now, expired);
        let is_spent = cost <= lease.unspent();
        if is_spent {
            lease.take(cost);
            lease.demand.add(cost, now);
        }
        let left = lease.unspent();
        let amount = amount.unwrap_or_else(|| lease.demand.units().saturating_mul(2));
        if is_spent && left >= amount / 4 {
            return Spend::Spent(left, None);
        }
        let scarce_ns = lease.scarce_until.ns_since(now);
        match &lease.call {
            _ if is_spent && scarce_ns > 0 => return Spend::Spent(left, None),
            _ if scarce_ns > 0 => return Spend::Denied(scarce_ns),
            Some(_) if is_spent => return Spend::Spent(left, None),
            Some(in_flight) => return Spend::Wait(in_flight.subscribe()),
            None => lease.call = Some(watch::Sender::new(())),
        }
        let call = Call { leases: self, key, want: amount.max(cost) };
        if is_spent { Spend::Spent(left, Some(call)) } else { Spend::Borrow(call) }
    }

    /// Units of `key` that are borrowed and not spent.
    pub fn unspent(&self, key: Key, now: Timestamp) -> u64 {
        let shard = self.shard(key);
        let grants = shard.get(&key).into_iter().flat_map(|lease| &lease.grants);
        grants.filter(|grant| grant.expires > now).fold(0, |units, grant| units.saturating_add(grant.units))
    }

    /// Puts spent units back. Returns `false` if no grant is left that could hold them.
    pub fn put_back(&self, key: Key, units: u64, now: Timestamp) -> bool {
        let mut shard = self.shard(key);
        let newest = shard.get_mut(&key).and_then(|lease| lease.grants.last_mut());
        let newest = newest.filter(|grant| grant.expires > now);
        newest.is_some_and(|grant| {
            grant.units = grant.units.saturating_add(units);
            true
        })
    }

    /// Removes expired grants and the leases of idle keys, and returns the grants with their keys. With `all`, removes
    /// every grant.
    pub fn sweep(&self, all: bool, now: Timestamp) -> Vec<(Key, Grant<R>)> {
        let mut removed = Vec::new();
        for shard in &self.shards {
            let mut leases = shard.lock().unwrap_or_else(PoisonError::into_inner);
            leases.retain(|key, lease| {
                let mut expired = Expired::new();
                lease.expire(if all { Timestamp::from_ns(u64::MAX) } else { now }, &mut expired);
                removed.extend(expired.into_iter().map(|grant| (*key, grant)));
                !lease.is_idle(now)
            });
        }
        removed
    }

    /// Units of all keys that are borrowed and not spent, also of expired grants.
    pub fn units(&self) -> u64 {
        let units = |shard: &Mutex<HashMap<Key, Lease<R>>>| {
            let leases = shard.lock().unwrap_or_else(PoisonError::into_inner);
            leases.values().fold(0, |units: u64, lease| units.saturating_add(lease.unspent()))
        };
        self.shards.iter().map(units).fold(0, u64::saturating_add)
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, HashMap<Key, Lease<R>>> {
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Call<'_, R> {
    /// Adds `grant`, of which `spent` units, which it has, are spent at once.
    pub fn granted(&self, mut grant: Grant<R>, spent: u64, now: Timestamp) {
        grant.units = grant.units.saturating_sub(spent);
        let mut shard = self.leases.shard(self.key);
        let lease = shard.entry(self.key).or_default();
        lease.demand.add(spent, now);
        if grant.units > 0 {
            lease.grants.push(grant);
        }
    }

    /// Notes that the store has no more units.
    pub fn is_scarce(&self, now: Timestamp) {
        let mut shard = self.leases.shard(self.key);
        shard.entry(self.key).or_default().scarce_until = now.saturating_add_ns(SCARCE_NS);
    }
}

impl<R> Drop for Call<'_, R> {
    fn drop(&mut self) {
        if let Some(lease) = self.leases.shard(self.key).get_mut(&self.key) {
            lease.call = None;
        }
    }
}

#[cfg(test)]
mod tests;
