//! The charges of a limit that replicas share by streams, until peers hear of them.
//!
//! The table keeps the units of most keys beside their states. Those of all others, those by plan, and the charges that were
//! given back are in a [`Pending`].
//!
//! Not here: which charges these are (`report`), and the batches (`store::stream`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::base::telemetry::Counter;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{Limit, Strategy};
use crate::engine::store::stream::message::LimitCharges;
use crate::engine::store::stream::{KEYS_MAX, Pending, PendingCharge, becomes_urgent};
use crate::engine::store::{Returned, Table};

/// The charges of one limit that peers have not heard of.
#[derive(Debug)]
pub(super) struct Streamed {
    /// Whether the last policy that has the limit shares it by streams.
    is_on: AtomicBool,
    has_plans: AtomicBool,
    pending: Pending,
    /// The names of plans by their numbers, from 1: those of all policies so far, because charges outlive a policy.
    plans: Mutex<Vec<Box<str>>>,
    /// Units that peers charged.
    pub(super) received: Counter,
}

impl Streamed {
    pub(super) fn new(received: Counter) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            has_plans: AtomicBool::new(false),
            pending: Pending::default(),
            plans: Mutex::default(),
            received,
        }
    }

    /// Follows the strategy of `limit`. Returns the numbers of its plans, in their order.
    pub(super) fn follow(&self, limit: &Limit) -> Box<[u16]> {
        let numbers: Box<[u16]> = limit.allowed.plans.iter().map(|(name, _)| self.number(name)).collect();
        self.has_plans.store(!numbers.is_empty(), Ordering::Relaxed);
        self.is_on.store(limit.strategy == Strategy::Stream, Ordering::Relaxed);
        numbers
    }

    /// Whether the last policy that has the limit shares it by streams.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds units that were charged to `table`; negative ones were given back by a settlement. `number` is the number of the
    /// plan, if the limit has plans. Returns whether peers are to be told at once.
    #[inline]
    pub(super) fn add(&self, table: &Table, key: Key, number: impl FnOnce() -> u16, units: i64, capacity: u64) -> bool {
        if self.has_plans.load(Ordering::Relaxed) {
            return self.pending.add(key, number(), units, capacity);
        }
        match table.add_pending(key, units) {
            Some(before) => becomes_urgent(before, before.saturating_add(units), capacity),
            None => self.pending.add(key, 0, units, capacity),
        }
    }

    /// Adds a charge to `table` that was given back.
    pub(super) fn add_returned(&self, table: &Table, key: Key, number: impl FnOnce() -> u16, returned: &Returned) {
        if self.has_plans.load(Ordering::Relaxed) {
            return self.pending.add_returned(key, number(), returned);
        }
        if !(self.pending.is_untold(returned) && table.withdraw_pending(key, returned.charged)) {
            self.pending.add_returned(key, 0, returned);
        }
    }

    /// Moves the pending charges of a table that no policy uses any more to those without a table.
    pub(super) fn keep_pending(&self, table: &Table) {
        table.take_pending(usize::MAX, |key, units| _ = self.pending.add(key, 0, units, u64::MAX));
    }

    /// The number of the plan `name`; 0 if there are too many plans.
    fn number(&self, name: &str) -> u16 {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let known = plans.iter().position(|plan| **plan == *name);
        let place = known.unwrap_or_else(|| {
            plans.push(name.into());
            plans.len() - 1
        });
        u16::try_from(place + 1).unwrap_or(0)
    }

    /// Moves the pending charges of the limit `name` with this `table` to `into`, by plan. Returns whether none was lost.
    pub(super) fn take(
        &self,
        name: &str,
        table: &Table,
        buffer: &mut Vec<PendingCharge>,
        into: &mut Vec<LimitCharges>,
        now: Timestamp,
    ) -> bool {
        buffer.clear();
        let is_complete = self.pending.take(now, buffer);
        table.take_pending(KEYS_MAX, |key, units| {
            buffer.push(PendingCharge { key, plan: 0, units, returned: Returned::default() });
        });
        buffer.sort_unstable_by_key(|charge| charge.plan);
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        for of_plan in buffer.chunk_by(|one, other| one.plan == other.plan) {
            let number = of_plan.first().map_or(0, |charge| usize::from(charge.plan));
            let plan = number.checked_sub(1).and_then(|place| plans.get(place));
            let mut charges = LimitCharges::of(name, plan.map(|plan| &**plan));
            let mut returned = charges.clone();
            for charge in of_plan {
                if charge.units != 0 {
                    charges.push(charge.key, charge.units);
                }
                if charge.returned.charged > 0 {
                    returned.push_returned(charge.key, &charge.returned, now);
                }
            }
            into.extend([charges, returned].into_iter().filter(|charges| !charges.keys.is_empty()));
        }
        is_complete
    }
}
