//! Units of concurrency limits that requests of this replica have in flight, so that it can renew them.
//!
//! A key without units is known for a while: its node may count units that have ended, and an exact renewal takes them away.
//! They end by themselves only in a key that is not charged meanwhile.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::script::{in_flight, released};
use crate::engine::limit::Algorithm;
use crate::engine::store::backend::RedisReceipt;

/// Keys without units that are known at once. Others are forgotten.
const IDLE_MAX: usize = 65_536;

/// The rounds for which a key without units is known. They take longer than units count on a node without a renewal.
const IDLE_ROUNDS: u64 = 5;

/// Units in flight by their keys in Redis.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    flights: HashMap<Box<str>, Flight>,
    /// Keys without units.
    idle: usize,
    round: u64,
}

/// The units of one key.
#[derive(Debug)]
struct Flight {
    units: u64,
    /// The round of the last change.
    changed_in: u64,
}

impl Flights {
    /// A request was charged.
    pub(super) fn begun(&self, receipt: &RedisReceipt) {
        in_flight(receipt).for_each(|key| self.change(key, |units| units.saturating_add(receipt.units)));
    }

    /// The request of a charge has ended.
    pub(super) fn ended(&self, receipt: &RedisReceipt) {
        in_flight(receipt).for_each(|key| self.change(key, |units| units.saturating_sub(receipt.units)));
    }

    /// A request was charged `units` without the node, or has ended if they are negative. No unit counts for ever: only
    /// requests are charged so, and each gives its units back under its rule when it ends, whatever the node does. With 0
    /// units the key is only known, because its node may have charged units without a reply.
    pub(super) fn settled(&self, store_key: &str, rule: &Algorithm, units: i64) {
        released(store_key, rule).for_each(|key| self.change(key, |before| before.saturating_add_signed(units)));
    }

    /// The keys with units, and then the others if `has_idle`.
    pub(super) fn keys(&self, has_idle: bool) -> Vec<Box<str>> {
        let all = self.lock();
        let of = |is_idle| all.flights.iter().filter(move |(_, flight)| (flight.units == 0) == is_idle);
        of(false).chain(of(true).filter(|_| has_idle)).map(|(key, _)| key.clone()).collect()
    }

    /// Those of `keys` that have units or, if `has_idle`, are known, with the units.
    pub(super) fn of<'k>(&self, keys: &'k [Box<str>], has_idle: bool) -> Vec<(&'k str, u64)> {
        let all = self.lock();
        let units = |key: &str| all.flights.get(key).map(|flight| flight.units).filter(|units| has_idle || *units > 0);
        keys.iter().filter_map(|key| Some((&**key, units(key)?))).collect()
    }

    /// A pause between renewals has ended. Forgets keys that have had no units for long.
    pub(super) fn end_round(&self) {
        let Keys { flights, idle, round } = &mut *self.lock();
        *round += 1;
        flights.retain(|_, flight| flight.units > 0 || flight.changed_in + IDLE_ROUNDS > *round);
        *idle = flights.values().filter(|flight| flight.units == 0).count();
    }

    fn change(&self, key: Box<str>, change: impl FnOnce(u64) -> u64) {
        let Keys { flights, idle, round } = &mut *self.lock();
        let before = flights.get(&key).map(|flight| flight.units);
        *idle -= usize::from(before == Some(0));
        let units = change(before.unwrap_or(0));
        if units == 0 && *idle >= IDLE_MAX {
            flights.remove(&key);
            return;
        }
        *idle += usize::from(units == 0);
        flights.insert(key, Flight { units, changed_in: *round });
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::engine::limit::tests::algorithm;
    use crate::engine::store::backend::RateReceipt;

    fn receipt(units: u64, algorithms: &[u8]) -> RedisReceipt {
        let rate = |algorithm: &u8| RateReceipt { algorithm: *algorithm, numbers: [0; 5] };
        let rates = algorithms.iter().map(rate).collect();
        RedisReceipt { store_key: "k".into(), units, rates }
    }

    fn all(flights: &Flights) -> Vec<(String, u64)> {
        flights.of(&flights.keys(false), false).into_iter().map(|(key, units)| (key.to_owned(), units)).collect()
    }

    #[test]
    fn only_units_in_flight_are_counted() {
        let flights = Flights::default();
        flights.begun(&receipt(1, &[1]));
        assert!(flights.keys(false).is_empty());
        flights.begun(&receipt(2, &[7]));
        flights.begun(&receipt(1, &[7]));
        assert_eq!(all(&flights), [("k".into(), 3)]);
        flights.ended(&receipt(2, &[7]));
        assert_eq!(all(&flights), [("k".into(), 1)]);
        flights.ended(&receipt(1, &[7]));
        flights.begun(&receipt(1, &[1, 7]));
        assert_eq!(all(&flights), [("k:1".into(), 1)]);
    }

    #[test]
    fn a_request_that_ends_is_renewed_no_more() {
        let flights = Flights::default();
        flights.begun(&receipt(2, &[7]));
        let keys = flights.keys(false);
        flights.ended(&receipt(1, &[7]));
        assert_eq!(flights.of(&keys, false), [("k", 1)]);
        flights.ended(&receipt(1, &[7]));
        assert_eq!(flights.of(&keys, false), []);
    }

    #[test]
    fn units_of_an_outage_count_until_they_are_given_back() {
        let (flights, three) = (Flights::default(), algorithm("concurrency 3"));
        flights.settled("k", &algorithm("token_bucket 10/1s burst 10"), 1);
        assert!(flights.keys(false).is_empty());
        flights.begun(&receipt(1, &[7]));
        flights.settled("k", &three, 2);
        assert_eq!(all(&flights), [("k".into(), 3)]);
        flights.ended(&receipt(1, &[7]));
        flights.settled("k", &three, -2);
        assert!(flights.keys(false).is_empty());
        flights.settled("k", &three, -1);
        flights.settled("k", &algorithm("token_bucket 10/1s burst 10+concurrency 3"), 1);
        assert_eq!(all(&flights), [("k:1".into(), 1)]);
    }

    #[test]
    fn an_unknown_end_changes_nothing() {
        let flights = Flights::default();
        flights.ended(&receipt(1, &[7]));
        assert!(flights.keys(false).is_empty());
        let none: RedisReceipt = RedisReceipt { store_key: "k".into(), units: 1, rates: smallvec![] };
        flights.begun(&none);
        assert!(flights.keys(false).is_empty());
    }

    /// An exact renewal of a key whose requests have all ended takes units away that its node counts too much.
    #[test]
    fn a_key_whose_requests_have_ended_is_known_for_a_while() {
        let flights = Flights::default();
        flights.begun(&receipt(2, &[7]));
        flights.ended(&receipt(2, &[7]));
        assert_eq!((flights.keys(false), flights.keys(true)), (vec![], vec!["k".into()]));
        assert_eq!(flights.of(&flights.keys(true), true), [("k", 0)]);
        assert_eq!(flights.of(&flights.keys(true), false), []);
        for _ in 1..IDLE_ROUNDS {
            flights.end_round();
        }
        assert_eq!(flights.keys(true).len(), 1);
        flights.settled("k", &algorithm("concurrency 3"), 0);
        flights.begun(&RedisReceipt { store_key: "long".into(), ..receipt(1, &[7]) });
        for known in [2, 2, 2, 2, 1, 1] {
            flights.end_round();
            assert_eq!(flights.keys(true).len(), known);
        }
        assert_eq!(all(&flights), [("long".into(), 1)]);
    }

    #[test]
    fn keys_without_units_are_bounded() {
        let flights = Flights::default();
        let three = algorithm("concurrency 3");
        for key in 0..IDLE_MAX + 2 {
            flights.settled(&key.to_string(), &three, 0);
        }
        assert_eq!(flights.keys(true).len(), IDLE_MAX);
        // A known key stays, and units always count.
        flights.settled("0", &three, 1);
        flights.settled("0", &three, -1);
        flights.settled("other", &three, 1);
        assert_eq!((flights.keys(true).len(), all(&flights)), (IDLE_MAX + 1, vec![("other".into(), 1)]));
    }
}
