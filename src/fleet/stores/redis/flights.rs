//! Units of concurrency limits that requests of this replica have in flight, so that it can renew them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::script::{in_flight, released};
use crate::engine::limit::Algorithm;
use crate::engine::store::backend::RedisReceipt;

/// Units in flight by their keys in Redis.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Box<str>, u64>>);

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
    /// requests are charged so, and each gives its units back under its rule when it ends, whatever the node does.
    pub(super) fn settled(&self, store_key: &str, rule: &Algorithm, units: i64) {
        released(store_key, rule).for_each(|key| self.change(key, |before| before.saturating_add_signed(units)));
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<Box<str>> {
        self.units().keys().cloned().collect()
    }

    /// Those of `keys` that have units, with the units.
    pub(super) fn of<'k>(&self, keys: &'k [Box<str>]) -> Vec<(&'k str, u64)> {
        let all = self.units();
        keys.iter().filter_map(|key| Some((&**key, *all.get(key)?))).collect()
    }

    fn change(&self, key: Box<str>, change: impl FnOnce(u64) -> u64) {
        let mut all = self.units();
        match change(all.get(&key).copied().unwrap_or(0)) {
            0 => _ = all.remove(&key),
            units => _ = all.insert(key, units),
        }
    }

    fn units(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
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
        flights.of(&flights.keys()).into_iter().map(|(key, units)| (key.to_owned(), units)).collect()
    }

    #[test]
    fn only_units_in_flight_are_counted() {
        let flights = Flights::default();
        flights.begun(&receipt(1, &[1]));
        assert!(flights.keys().is_empty());
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
        let keys = flights.keys();
        flights.ended(&receipt(1, &[7]));
        assert_eq!(flights.of(&keys), [("k", 1)]);
        flights.ended(&receipt(1, &[7]));
        assert_eq!(flights.of(&keys), []);
    }

    #[test]
    fn units_of_an_outage_count_until_they_are_given_back() {
        let (flights, three) = (Flights::default(), algorithm("concurrency 3"));
        flights.settled("k", &algorithm("token_bucket 10/1s burst 10"), 1);
        assert!(flights.keys().is_empty());
        flights.begun(&receipt(1, &[7]));
        flights.settled("k", &three, 2);
        assert_eq!(all(&flights), [("k".into(), 3)]);
        flights.ended(&receipt(1, &[7]));
        flights.settled("k", &three, -2);
        assert!(flights.keys().is_empty());
        flights.settled("k", &three, -1);
        flights.settled("k", &algorithm("token_bucket 10/1s burst 10+concurrency 3"), 1);
        assert_eq!(all(&flights), [("k:1".into(), 1)]);
    }

    #[test]
    fn an_unknown_end_changes_nothing() {
        let flights = Flights::default();
        flights.ended(&receipt(1, &[7]));
        assert!(flights.keys().is_empty());
        let none: RedisReceipt = RedisReceipt { store_key: "k".into(), units: 1, rates: smallvec![] };
        flights.begun(&none);
        assert!(flights.keys().is_empty());
    }
}
