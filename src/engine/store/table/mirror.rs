//! The mirrors of keys whose state is in a store: when each was heard, and whether it may deny.
//!
//! A mirror that denies saves a call, but only as long as the store has the same units. Refunds, which reach the store
//! later, and charges that the store does not know put a mirror in doubt until the store is heard again.
//!
//! Requests in flight are also counted by themselves: those of other replicas end unheard while the store is down.
//!
//! Not here: the states themselves, which are in the table as those of any limit.

use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock};

use dashmap::{DashMap, Entry};

use super::shards::Spread;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::store::lease::Leases;
use crate::engine::store::remote::Borrowed;

/// The mirrors of one limit. A lock guards one key for the length of one look or change.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    keys: DashMap<Key, Mirror, BuildHasherDefault<Spread>>,
    /// Units of a concurrency limit that requests of this process have.
    in_flight: DashMap<Key, u64, BuildHasherDefault<Spread>>,
    /// Units that are borrowed from the store; made for the first.
    pub(super) leases: OnceLock<Arc<Leases<Borrowed>>>,
}

/// The mirror of one key.
#[derive(Clone, Copy, Debug)]
struct Mirror {
    /// When the newest question was asked whose reply is known.
    queried_at: Timestamp,
    /// The digest of the rule of that question.
    rule: u64,
    /// Replies to earlier questions may lack a change.
    doubted_until: Timestamp,
    /// Units that were charged without the store since then.
    assumed: u64,
    /// The part of them that the store hears of: those of this replica.
    reported: u64,
    keep_until: Timestamp,
}

/// The time for which a mirror is kept at least.
const KEEP_NS_MIN: u64 = 10_000_000_000;

impl Mirrors {
    /// Notes the reply to a question that was asked at `queried_at` under `rule`. Returns whether it is the newest reply.
    pub(super) fn hear(&self, key: Key, queried_at: Timestamp, rule: &Algorithm) -> bool {
        let keep_until = queried_at.saturating_add_ns(rule.memory_ns().max(KEEP_NS_MIN));
        let (doubted_until, rule) = (Timestamp::ZERO, rule.digest());
        let heard = Mirror { queried_at, rule, doubted_until, assumed: 0, reported: 0, keep_until };
        let mut mirror = self.keys.entry(key).or_insert(heard);
        let is_newest = mirror.queried_at <= queried_at;
        if is_newest {
            *mirror = Mirror { doubted_until: mirror.doubted_until, ..heard };
        }
        is_newest
    }

    /// Puts the mirror of `key` in doubt: replies to questions that are asked before `until` may lack a change.
    pub(super) fn doubt(&self, key: Key, until: Timestamp) {
        if let Some(mut mirror) = self.keys.get_mut(&key) {
            mirror.doubted_until = mirror.doubted_until.max(until);
        }
    }

    /// Whether replies to questions that are asked at `now` may lack a change.
    pub(super) fn is_doubted(&self, key: Key, now: Timestamp) -> bool {
        self.keys.get(&key).is_some_and(|mirror| mirror.doubted_until > now)
    }

    /// Notes at `now` that the mirror of `key` is charged `units` without the store, which hears of `reported` units later.
    /// This puts the mirror in doubt.
    pub(super) fn assume(&self, key: Key, (units, reported): (u64, u64), keep_ns: u64, now: Timestamp) {
        let unheard = Mirror {
            queried_at: Timestamp::ZERO,
            rule: 0,
            doubted_until: now,
            assumed: 0,
            reported: 0,
            keep_until: now.saturating_add_ns(keep_ns.max(KEEP_NS_MIN)),
        };
        let mut mirror = self.keys.entry(key).or_insert(unheard);
        mirror.doubted_until = mirror.doubted_until.max(now);
        mirror.keep_until = mirror.keep_until.max(unheard.keep_until);
        mirror.assumed = mirror.assumed.saturating_add(units);
        mirror.reported = mirror.reported.saturating_add(reported);
    }

    /// Notes that the mirror of `key` gets back `units` that it was charged without the store, which hears of `reported`.
    pub(super) fn forgive(&self, key: Key, units: u64, reported: u64) {
        if let Some(mut mirror) = self.keys.get_mut(&key) {
            mirror.assumed = mirror.assumed.saturating_sub(units);
            mirror.reported = mirror.reported.saturating_sub(reported);
        }
    }

    /// The keys that were charged without the store since it was heard, with the units charged, and the part of them that
    /// is of this replica.
    pub(super) fn unheard(&self) -> Vec<(Key, u64, u64)> {
        let unheard = self.keys.iter().filter(|mirror| mirror.assumed > 0);
        unheard.map(|mirror| (*mirror.key(), mirror.assumed, mirror.reported)).collect()
    }

    /// Units that the mirror of `key` was charged without the store since it was heard.
    pub(super) fn assumed(&self, key: Key) -> u64 {
        self.keys.get(&key).map_or(0, |mirror| mirror.assumed)
    }

    /// Forgets the mirror of `key`.
    pub(super) fn forget(&self, key: Key) {
        self.keys.remove(&key);
    }

    /// Forgets all mirrors, and calls `forgotten` with their keys and the units in flight of this process.
    pub(super) fn forget_all(&self, forgotten: impl Fn(Key, u64)) {
        self.keys.retain(|key, _| {
            forgotten(*key, self.in_flight(*key));
            false
        });
    }

    /// Whether the mirror of `key` has the units of the store, as far as this process knows. Replies to questions before
    /// `asked_from` do not have them. Neither does the reply to a question under another rule than `rule`: until the store
    /// hears of the new one, its units come back as under the old one.
    pub(super) fn is_trusted(&self, key: Key, rule: &Algorithm, asked_from: Timestamp) -> bool {
        let is_newer = |mirror: &Mirror| mirror.queried_at >= mirror.doubted_until.max(asked_from);
        self.keys.get(&key).is_some_and(|mirror| is_newer(&mirror) && mirror.rule == rule.digest())
    }

    /// When the store was asked for the state that the mirror of `key` has.
    pub(super) fn queried_at(&self, key: Key) -> Option<Timestamp> {
        self.keys.get(&key).map(|mirror| mirror.queried_at).filter(|at| *at > Timestamp::ZERO)
    }

    /// Adds `units` of a request in flight if `fits` accepts the units that are in flight already.
    pub(super) fn enter(&self, key: Key, units: u64, fits: impl FnOnce(u64) -> bool) -> bool {
        match self.in_flight.entry(key) {
            Entry::Occupied(mut own) => {
                let is_entered = fits(*own.get());
                if is_entered {
                    *own.get_mut() += units;
                }
                is_entered
            }
            Entry::Vacant(own) => {
                let is_entered = fits(0);
                if is_entered && units > 0 {
                    own.insert(units);
                }
                is_entered
            }
        }
    }

    /// Removes `units` of a request that has ended.
    pub(super) fn leave(&self, key: Key, units: u64) {
        self.in_flight.remove_if_mut(&key, |_, own| {
            *own = own.saturating_sub(units);
            *own == 0
        });
    }

    /// Units in flight of `key`.
    pub(super) fn in_flight(&self, key: Key) -> u64 {
        self.in_flight.get(&key).map_or(0, |own| *own)
    }

    /// Forgets mirrors that were not heard for long, and calls `forgotten` with their keys. A mirror stays while its key has
    /// requests of this process in flight.
    pub(super) fn sweep(&self, now: Timestamp, forgotten: impl Fn(Key)) {
        self.keys.retain(|key, mirror| {
            let stays = mirror.keep_until > now || self.in_flight.contains_key(key);
            if !stays {
                forgotten(*key);
            }
            stays
        });
    }
}
