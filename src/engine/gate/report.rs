//! Which charges a successor and peers hear of.
//!
//! Each replica of a fleet decides by its own table. An isolated replica takes each absent peer to charge as much as it does
//! itself, so it keeps to its share.

use std::sync::Arc;

use super::delta::{Delta, units};
use super::state::LimitState;
use super::streamed::Streamed;
use crate::base::telemetry::Counter;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::{Limit, Strategy};
use crate::engine::store::stream::PendingCharge;
use crate::engine::store::stream::message::LimitCharges;
use crate::engine::store::{Receipt, Returned};

impl LimitState {
    /// Follows the strategy of `limit`. Returns the numbers of its plans, in their order, if peers hear of its charges.
    pub(super) fn follow_strategy(&self, limit: &Limit, received: impl FnOnce() -> Counter) -> Box<[u16]> {
        let streamed = match self.streamed.get() {
            Some(streamed) => streamed,
            None if limit.strategy == Strategy::Stream => {
                self.streamed.get_or_init(|| Arc::new(Streamed::new(received())))
            }
            None => return Box::default(),
        };
        streamed.follow(limit)
    }

    /// Reports units that were charged at `now` under `rule`; negative ones were given back by a settlement.
    #[inline]
    pub(super) fn report(&self, key: Key, rule: &Algorithm, units: i64, now: Timestamp) {
        if self.listeners.is_on() && units != 0 && !rule.is_released() {
            self.report_on(key, rule, units, now);
        }
    }

    #[inline]
    fn report_on(&self, key: Key, rule: &Algorithm, units: i64, now: Timestamp) {
        if self.listeners.has_successor() {
            self.push_delta(key, rule, units);
        } else {
            self.tell_peers(key, rule, units, now);
        }
    }

    /// Gives a charge under `rule` back that was reported, and wakes a request that waits for its units. Returns those that
    /// came back here.
    pub(super) fn give_back(&self, key: Key, rule: &Algorithm, receipt: &Receipt) -> u64 {
        let now = self.clock.now();
        let returned = self.table.refund(key, receipt, now);
        self.report_returned(key, rule, &returned, now);
        self.wake_front(key, rule);
        returned.units
    }

    /// Wakes a request that waits for units of `key` that came back. If no time gives them back, requests on other keys of a
    /// shared bucket wait for them, too.
    pub(super) fn wake_front(&self, key: Key, rule: &Algorithm) {
        if rule.is_released() && self.table.share_bucket(key, key) {
            self.queues.wake_fronts(|other| self.table.share_bucket(key, other));
        } else {
            self.queues.wake_front(key);
        }
    }

    /// Reports a charge that was given back at `now`. A successor does not hear of it.
    pub(super) fn report_returned(&self, key: Key, rule: &Algorithm, returned: &Returned, now: Timestamp) {
        self.refusal_log.charged(&self.name, key, -units(returned.charged), now);
        if returned.charged == 0 || self.listeners.has_successor() || rule.is_released() {
            return;
        }
        let Some(streamed) = self.streamed.get().filter(|streamed| streamed.is_on()) else { return };
        let absent = self.listeners.link.absent();
        if absent > 0 {
            self.table.refund_as_of(key, rule, &returned.times(absent), now, now);
        }
        streamed.add_returned(&self.table, key, || self.plan_number(rule), returned);
    }

    #[cold]
    fn push_delta(&self, key: Key, rule: &Algorithm, units: i64) {
        let limit = self.newest.load();
        let plans = limit.as_ref().map_or(&[][..], |limit| &limit.allowed.plans);
        let plan = plans.iter().find(|(_, planned)| planned.as_ref() == Some(rule)).map(|(name, _)| name.clone());
        self.listeners.deltas.push(Delta { limit: self.name.clone(), key, plan, units });
    }

    /// Adds the units to those that peers will hear of. While peers are absent, each counts as one that charges as much.
    #[inline]
    fn tell_peers(&self, key: Key, rule: &Algorithm, units: i64, now: Timestamp) {
        let Some(streamed) = self.streamed.get().filter(|streamed| streamed.is_on()) else { return };
        let link = &self.listeners.link;
        let absent = link.absent();
        if absent > 0 {
            self.charge_for_absent(key, rule, units, absent, now);
        }
        if streamed.add(&self.table, key, || self.plan_number(rule), units, rule.capacity()) {
            link.hurry();
        }
    }

    #[cold]
    fn charge_for_absent(&self, key: Key, rule: &Algorithm, units: i64, absent: u64, now: Timestamp) {
        let theirs = units.saturating_mul(i64::try_from(absent).unwrap_or(i64::MAX));
        self.table.settle(key, rule, theirs, u64::MAX, now);
    }

    /// The number of the plan of the newest policy that has `rule`; 0 if none has.
    #[inline(never)]
    fn plan_number(&self, rule: &Algorithm) -> u16 {
        let newest = self.newest.load();
        let Some(newest) = newest.as_ref() else { return 0 };
        let place = newest.allowed.plans.iter().position(|(_, planned)| planned.as_ref() == Some(rule));
        place.and_then(|place| newest.plan_numbers.get(place)).copied().unwrap_or(0)
    }

    /// Keeps the charges that peers have not heard of for the state that replaces this one.
    pub(super) fn keep_pending(&self) {
        if let Some(streamed) = self.streamed.get() {
            streamed.keep_pending(&self.table);
        }
    }

    /// Moves the charges that peers have not heard of to `into`. Returns whether none was lost.
    pub(super) fn take_pending(
        &self,
        buffer: &mut Vec<PendingCharge>,
        into: &mut Vec<LimitCharges>,
        now: Timestamp,
    ) -> bool {
        into.extend(self.take_refusals());
        self.streamed.get().is_none_or(|streamed| streamed.take(&self.name, &self.table, buffer, into, now))
    }
}

impl Drop for LimitState {
    /// A request of an older policy may have charged a table that another one has replaced.
    fn drop(&mut self) {
        self.keep_pending();
    }
}
