//! The tables of limits that replicas share by streams, as the streams charge and read them.

use std::sync::{Arc, PoisonError};

use super::named_charge::RESET_UNITS;
use super::newest_live::NewestLive;
use super::state::{Gate, LimitState, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::{Limit, Strategy, Variant};
use crate::engine::store::stream::message::{BanChange, Cursor, LimitCharges, LimitStates, States};
use crate::engine::store::stream::{Ledger, PendingCharge, Taken, merge_states, pack_states};

/// The tables of a gate. Charges and states of limits that the newest policy does not share by streams are ignored, but resets
/// of those of which each replica has a share.
#[derive(Debug)]
pub struct StreamLedger {
    gate: Arc<Gate>,
    live: NewestLive,
    buffer: Vec<PendingCharge>,
}

/// States of keys of all limits in one part, about.
const PART_KEYS: usize = 4096;

/// A limit that replicas share by streams.
struct Shared<'l> {
    live: &'l Live,
    index: usize,
    limit: &'l Limit,
    state: &'l LimitState,
}

impl StreamLedger {
    /// The tables of `gate` under the policy of `live`.
    pub fn new(gate: Arc<Gate>, live: NewestLive) -> Self {
        Self { gate, live, buffer: Vec::new() }
    }
}

impl Live {
    /// The limit `name`, if replicas share it by streams.
    fn shared(&self, name: &str) -> Option<Shared<'_>> {
        let applied = self.policy.by_name(name)?;
        let (index, limit) = (applied.index, applied.limit);
        let state = self.states.get(index)?;
        (limit.strategy == Strategy::Stream).then_some(Shared { live: self, index, limit, state })
    }

    /// The names of the limits that replicas share by streams, from `first` on, sorted.
    fn shared_names(&self, first: &str) -> Vec<&str> {
        let shared = self.policy.limits().iter().filter(|limit| limit.strategy == Strategy::Stream);
        let mut names: Vec<&str> = shared.map(|limit| &*limit.name).filter(|name| *name >= first).collect();
        names.sort_unstable();
        names
    }
}

impl<'l> Shared<'l> {
    /// The rule of `key` if it has no override; `None` if the key has no limit.
    fn rule(&self, key: Key, without: Variant) -> Option<&'l Algorithm> {
        self.limit.allowed.rule(self.live.special(self.index, key).unwrap_or(without))
    }
}

impl Ledger for StreamLedger {
    /// Also takes charges of limits that are gone: peers may still have them.
    fn take(&mut self, now: Timestamp) -> Taken {
        let known = self.gate.states.lock().unwrap_or_else(PoisonError::into_inner);
        let states: Vec<Arc<LimitState>> = known.values().map(Arc::clone).collect();
        drop(known);
        let bans = self.gate.listeners.take_ban_changes();
        let (mut limits, mut is_complete) = (self.gate.listeners.take_resets(), !self.gate.listeners.take_gap());
        for state in states {
            is_complete &= state.take_pending(&mut self.buffer, &mut limits, now);
        }
        Taken { limits, bans, is_complete }
    }

    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, now: Timestamp) {
        let live = self.live.load();
        let Some(shared) = live.shared(&charges.limit) else { return live.reset_shares(charges, now) };
        let (state, allowed) = (shared.state, &shared.limit.allowed);
        let by_plan = if charges.plan.is_empty() { Variant::Usual } else { allowed.plan(&charges.plan) };
        let mut received = 0_u64;
        for (key, units) in charges.each() {
            let Some(rule) = shared.rule(key, by_plan) else { continue };
            state.table.charge_as_of(key, rule, units, at, now);
            if units < 0 {
                state.queues.wake_front(key);
            }
            received = received.saturating_add_signed(units.max(0));
        }
        for (key, returned) in charges.each_returned(at) {
            let Some(rule) = shared.rule(key, by_plan) else { continue };
            state.table.refund_as_of(key, rule, &returned, at, now);
            state.queues.wake_front(key);
        }
        state.count_refusals(shared.limit, charges, at, now);
        if let Some(streamed) = state.streamed.get() {
            streamed.received.inc_by(received);
        }
    }

    fn ban(&mut self, bans: &[BanChange], now: Timestamp) {
        self.gate.hear_bans(&self.live.load(), bans, now);
    }

    fn states(&mut self, at: &Cursor, now: Timestamp) -> States {
        let live = self.live.load();
        if !at.limit.is_empty() {
            let (limits, next) = live.shared_states(at, now);
            return States { at: Some(at.clone()), limits, bans: Vec::new(), next };
        }
        let (bans, next) = self.gate.shared_bans(&live, (at.bans, at.from), now);
        let further = next.map(|(bans, from)| Cursor { from, bans, ..Cursor::default() });
        let first_limit = || Some(Cursor { limit: live.shared_names("").first()?.to_string(), ..Cursor::default() });
        States { at: Some(at.clone()), limits: Vec::new(), bans, next: further.or_else(first_limit) }
    }

    fn merge(&mut self, states: &LimitStates, now: Timestamp) {
        let live = self.live.load();
        if let Some(shared) = live.shared(&states.limit) {
            merge_states(states, &shared.state.table, |key| shared.rule(key, Variant::Usual), now);
        }
    }
}

impl Live {
    /// Gives back the units of keys that a peer has reset, if each replica has a share of their limit.
    fn reset_shares(&self, charges: &LimitCharges, now: Timestamp) {
        let Some(applied) = self.policy.by_name(&charges.limit) else { return };
        let Some(state) = self.states.get(applied.index) else { return };
        let plan = Some(&*charges.plan).filter(|plan| !plan.is_empty());
        let is_reset = |units| units == RESET_UNITS && matches!(applied.limit.strategy, Strategy::Split(_));
        for (key, _) in charges.each().filter(|(_, units)| is_reset(*units)) {
            if let Some(rule) = applied.limit.allowed.rule(self.variant(&applied, key, plan)) {
                state.settle(key, rule, RESET_UNITS, 0, now);
            }
        }
    }

    /// The states of keys that owe, from `at` on, and where the next part begins.
    fn shared_states(&self, at: &Cursor, now: Timestamp) -> (Vec<LimitStates>, Option<Cursor>) {
        let (mut parts, mut keys) = (Vec::new(), 0);
        for name in self.shared_names(&at.limit) {
            if keys >= PART_KEYS {
                return (parts, Some(Cursor { limit: name.to_owned(), ..Cursor::default() }));
            }
            let Some(shared) = self.shared(name) else { continue };
            let from = if *name == *at.limit { at.from } else { 0 };
            let rule = |key| shared.rule(key, Variant::Usual);
            let (states, next) = pack_states(name, &shared.state.table, from, rule, now);
            keys += states.keys.len() / 2;
            parts.push(states);
            if let Some(from) = next {
                return (parts, Some(Cursor { limit: name.to_owned(), from, bans: 0 }));
            }
        }
        (parts, None)
    }
}
