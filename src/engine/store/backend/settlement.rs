//! Units that a store charges or takes back without a receipt.

use smallvec::SmallVec;

use crate::base::time::Timestamp;
use crate::engine::limit::late::{self, LateByRate, LateCharges};
use crate::engine::limit::{Algorithm, Key};

/// Settlements up to this age are sent as they are.
const FRESH_NS: u64 = 100_000_000;

/// Units of one key that are charged, or given back if they are negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The owner of the budget.
    pub key: Key,
    /// The rule of the charge.
    pub rule: Algorithm,
    /// The most units that are charged beyond the limit.
    pub max_debt: u64,
    charges: LateCharges,
}

impl Settlement {
    /// `extra` units of `key`, as of `now`, at most `max_debt` of them beyond the limit.
    pub fn new(limit: &str, key: Key, rule: &Algorithm, (extra, max_debt): (i64, u64), now: Timestamp) -> Self {
        // The mirror may owe anything, so that all units count.
        let idle_at = if extra == 0 { now } else { Timestamp::from_ns(u64::MAX) };
        let idle_at: SmallVec<[_; 1]> = rule.rates().iter().map(|_| idle_at).collect();
        Self::on_mirror(limit, key, rule, (extra, extra, &idle_at), max_debt, now)
    }

    /// `extra` units for which the mirror was charged `assumed` ones. After that, each of its rates is idle at an instant of
    /// `idle_at`.
    pub fn on_mirror(
        limit: &str,
        key: Key,
        rule: &Algorithm,
        (extra, assumed, idle_at): (i64, i64, &[Timestamp]),
        max_debt: u64,
        now: Timestamp,
    ) -> Self {
        let charges = LateCharges::new(rule, (extra, assumed), idle_at, now);
        Self { limit: limit.into(), key, rule: rule.clone(), max_debt, charges }
    }

    /// When its first units were charged or given back.
    pub fn begun(&self) -> Timestamp {
        self.charges.begun()
    }

    /// The sum of all units.
    pub fn units(&self) -> i64 {
        self.charges.units()
    }

    /// Adds a later settlement of the same key. The newer rule counts, and the larger of both debts.
    pub fn add(&mut self, other: Self) {
        let max_debt = self.max_debt.max(other.max_debt);
        if self.rule != other.rule {
            self.charges = self.charges.under(&self.rule, &other.rule);
        }
        self.charges.add(&other.rule, &other.charges);
        (self.rule, self.max_debt) = (other.rule, max_debt);
    }

    /// Whether its units count as they are.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.ns_since(self.charges.begun()) <= FRESH_NS
    }

    /// The units that count at `now`: after a while, those that time has not given back.
    pub fn units_at(&self, now: Timestamp) -> LateByRate {
        if self.is_fresh(now) {
            late::at_once(&self.rule, self.charges.units())
        } else {
            self.charges.units_at(&self.rule, now)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::tests::algorithm;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(1_000_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn time_gives_units_of_old_reports_back() {
        let rule = algorithm("token_bucket 1/1s burst 10");
        // the units, the present, and the units that count with their age in milliseconds
        for (extra, now_ms, expected) in [
            (5, 0, Some((5, 0))),
            (5, 100, Some((5, 0))),
            (5, 101, Some((5, 101))),
            (5, 2000, Some((5, 2000))),
            (5, 4999, Some((5, 4999))),
            (5, 5000, None),
            (-5, 100, Some((-5, 0))),
            (-5, 2001, Some((-2, 0))),
            (-5, 5000, None),
        ] {
            let idle_at = [at(i64::unsigned_abs(extra) * 1000)];
            let charged = Settlement::on_mirror("a", Key::default(), &rule, (extra, extra, &idle_at), 0, at(0));
            let left = charged.units_at(at(now_ms)).remove(0);
            let found: Vec<_> = left.iter().map(|late| (late.units, late.age_ns / 1_000_000)).collect();
            assert_eq!(found, Vec::from_iter(expected), "{extra} at {now_ms}");
        }
    }
}
