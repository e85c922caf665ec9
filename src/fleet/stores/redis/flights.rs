//! Units of concurrency limits that requests of this replica have in flight, so that it can renew them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::script::in_flight;
use crate::engine::store::backend::RedisReceipt;

/// Units in flight by their keys in Redis.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Box<str>, u64>>);

impl Flights {
    /// A request was charged.
    pub(super) fn begun(&self, receipt: &RedisReceipt) {
        for key in in_flight(receipt) {
            *self.units().entry(key).or_default() += receipt.units;
        }
    }

    /// The request of a charge has ended.
    pub(super) fn ended(&self, receipt: &RedisReceipt) {
        for key in in_flight(receipt) {
            let mut all = self.units();
            if let Some(units) = all.get_mut(&key) {
                *units = units.saturating_sub(receipt.units);
                if *units == 0 {
                    all.remove(&key);
                }
            }
        }
    }

    /// All keys with their units.
    pub(super) fn all(&self) -> Vec<(Box<str>, u64)> {
        self.units().iter().map(|(key, units)| (key.clone(), *units)).collect()
    }

    fn units(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::engine::store::backend::RateReceipt;

    fn receipt(units: u64, algorithms: &[u8]) -> RedisReceipt {
        let rate = |algorithm: &u8| RateReceipt { algorithm: *algorithm, numbers: [0; 5] };
        let rates = algorithms.iter().map(rate).collect();
        RedisReceipt { store_key: "k".into(), units, rates }
    }

    #[test]
    fn only_units_in_flight_are_counted() {
        let flights = Flights::default();
        flights.begun(&receipt(1, &[1]));
        assert_eq!(flights.all(), []);
        flights.begun(&receipt(2, &[7]));
        flights.begun(&receipt(1, &[7]));
        assert_eq!(flights.all(), [("k".into(), 3)]);
        flights.ended(&receipt(2, &[7]));
        assert_eq!(flights.all(), [("k".into(), 1)]);
        flights.ended(&receipt(1, &[7]));
        flights.begun(&receipt(1, &[1, 7]));
        assert_eq!(flights.all(), [("k:1".into(), 1)]);
    }

    #[test]
    fn an_unknown_end_changes_nothing() {
        let flights = Flights::default();
        flights.ended(&receipt(1, &[7]));
        assert_eq!(flights.all(), []);
        let none: RedisReceipt = RedisReceipt { store_key: "k".into(), units: 1, rates: smallvec![] };
        flights.begun(&none);
        assert_eq!(flights.all(), []);
    }
}
