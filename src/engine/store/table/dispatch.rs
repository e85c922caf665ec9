//! The states of one limit's keys under any algorithm.
//!
//! Token buckets have a map of their own, because most limits are token buckets and their state is two words. All other
//! algorithms share one kind of map.

use std::io;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::keys::Keys;
use super::lost_times::LostTimes;
use super::map::Map;
use super::mirror::Mirrors;
use super::receipt::{Outcome, Receipt};
use super::state::TableState;
use crate::base::time::Timestamp;
use crate::engine::limit::slow_down::{SlowDown, Slowed};
use crate::engine::limit::state::State;
use crate::engine::limit::token_bucket::Answer;
use crate::engine::limit::{
    Algorithm, AnyState, Decision, Key, OnFull, Quota, RemainingByRate, Retry, Unpacker, token_bucket,
};
use crate::engine::store::Returned;
use crate::engine::store::snapshot::blocks::Emit;

/// The states of all keys of one limit.
#[derive(Debug)]
pub struct Table {
    pub(super) kind: Kind,
    /// Present once a store was heard. The states of the table are mirrors then.
    pub(super) mirrors: OnceLock<Box<Mirrors>>,
    /// Of token buckets; made for the first refund that needs it.
    lost_times: OnceLock<LostTimes>,
    /// The units that this replica has taken of keys that it borrows from, as if all replicas took as many.
    pub(super) own: OnceLock<Box<Table>>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one for each limit
pub(super) enum Kind {
    Buckets(Keys<token_bucket::State>),
    Any(Keys<AnyState>),
}

/// Evaluates `$do` with the keys and the rule of their algorithm; `$other` if the rule does not fit.
macro_rules! matched {
    ($kind:expr, $rule:expr, |$keys:ident, $numbers:ident| $do:expr, else $other:expr) => {
        match ($kind, $rule) {
            (Kind::Buckets($keys), Algorithm::TokenBucket($numbers)) => $do,
            (Kind::Any($keys), $numbers) => $do,
            _ => $other,
        }
    };
}

pub(super) use matched;

/// Evaluates `$do` with the keys.
macro_rules! each {
    ($kind:expr, |$keys:ident| $do:expr) => {
        match $kind {
            Kind::Buckets($keys) => $do,
            Kind::Any($keys) => $do,
        }
    };
}

impl Table {
    /// An empty table for limits like `rule`, which remembers `max_keys` keys exactly. `on_full` applies to all others.
    pub fn new(rule: &Algorithm, max_keys: usize, on_full: OnFull) -> Self {
        Self::with(match rule {
            Algorithm::TokenBucket(_) => Kind::Buckets(Keys::new(max_keys, on_full)),
            _ => Kind::Any(Keys::new(max_keys, on_full)),
        })
    }

    fn with(kind: Kind) -> Self {
        Self { kind, mirrors: OnceLock::new(), lost_times: OnceLock::new(), own: OnceLock::new() }
    }

    /// Whether the table can hold states under `rule`. If not, the limit needs another table and begins anew.
    pub fn fits(&self, rule: &Algorithm) -> bool {
        matches!(rule, Algorithm::TokenBucket(_)) == matches!(self.kind, Kind::Buckets(_))
    }

    /// Changes the bound. Keys beyond a smaller one stay until they are idle.
    ///
    /// Keys that are in a sketch, or share buckets, stay there.
    pub fn set_bound(&self, max_keys: usize, on_full: OnFull) {
        each!(&self.kind, |keys| keys.set_bound(max_keys, on_full));
        if let Some(own) = self.own.get() {
            own.set_bound(max_keys, OnFull::Allow);
        }
    }

    /// Keys remembered exactly.
    pub fn len(&self) -> usize {
        each!(&self.kind, |keys| keys.len())
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every key is idle at `now`, so that the table is equivalent to a new one.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        each!(&self.kind, |keys| keys.is_idle(now))
    }

    /// Whether one key may wait for units of the other: both may be beyond the bound.
    pub fn share_bucket(&self, one: Key, other: Key) -> bool {
        each!(&self.kind, |keys| keys.share_bucket(one, other))
    }

    /// Decisions about keys beyond the bound since the last call.
    pub fn take_overflowed(&self) -> u64 {
        each!(&self.kind, |keys| keys.take_overflowed())
    }

    /// Decides a request and charges it if it is admitted. A rule that does not fit the table denies it.
    #[inline]
    pub(in crate::engine::store) fn admit(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Outcome {
        matched!(&self.kind, rule, |keys, rule| keys.admit(key, rule, cost, now), else unfit().into())
    }

    /// Decides a request as [`Table::admit`] does, if `key` is a token bucket that is found at once. Most are.
    #[inline]
    pub(in crate::engine::store) fn charge_known<'r>(
        &self,
        key: Key,
        rule: &'r Algorithm,
        cost: u64,
        now: Timestamp,
    ) -> Option<(Answer, &'r Quota)> {
        let (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) = (&self.kind, rule) else { return None };
        Some((keys.charge_known(key, quota, cost, now)?, quota))
    }

    /// The decision about a request. Nothing is charged.
    pub fn peek(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(&self.kind, rule, |keys, rule| keys.peek(key, rule, cost, now), else unfit())
    }

    /// Calls `seen` with each key that is remembered exactly and is not idle at `now`, and with the decision about `cost`
    /// units. Locks a few keys at a time.
    pub fn each_used<'r>(
        &self,
        rule: impl Fn(Key) -> Option<&'r Algorithm>,
        cost: u64,
        now: Timestamp,
        seen: impl FnMut(Key, Decision),
    ) {
        match &self.kind {
            Kind::Buckets(keys) => {
                let quota = |key| match rule(key) {
                    Some(Algorithm::TokenBucket(quota)) => Some(quota),
                    _ => None,
                };
                keys.each_used(quota, cost, now, seen);
            }
            Kind::Any(keys) => keys.each_used(rule, cost, now, seen),
        }
    }

    /// The state of `key`, which may be under another rule; that of a new key under `rule` if there is none.
    pub fn state(&self, key: Key, rule: &Algorithm, now: Timestamp) -> AnyState {
        match (&self.kind, rule) {
            (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) => {
                keys.look(key, quota, now, |state| AnyState::TokenBucket((*state).into()))
            }
            (Kind::Any(keys), rule) => keys.look(key, rule, now, Clone::clone),
            _ => AnyState::fresh(rule),
        }
    }

    /// The units that remain for a request of `cost` units, for each rate of `rule`.
    pub fn remaining(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> RemainingByRate {
        matched!(&self.kind, rule, |keys, rule| {
            keys.remaining(key, rule, cost, now)
        }, else SmallVec::from_iter([unfit().into()]))
    }

    /// The wait of a request of `cost` units behind requests that take `ahead` units.
    pub fn wait(&self, key: Key, rule: &Algorithm, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        matched!(&self.kind, rule, |keys, rule| {
            keys.look(key, rule, now, |state| State::wait(state, rule, ahead, cost, now))
        }, else Retry::AfterNs(UNFIT_RETRY_NS))
    }

    /// Gives a charge back, as far as its units have not come back by themselves. Returns the effect; nothing if a store
    /// has the units.
    pub fn refund(&self, key: Key, receipt: &Receipt, now: Timestamp) -> Returned {
        match (&self.kind, receipt) {
            (Kind::Buckets(keys), Receipt::Bucket(receipt, interval_ns)) => {
                let (mut risk_ns, mut charged) = (0, receipt.cost());
                let lose = |at, most_ns| {
                    risk_ns = most_ns;
                    self.lost_times().lose(key, at, most_ns, now)
                };
                let units = keys.undo(key, |state| {
                    let changed = keys.shortest_since(key, receipt.at());
                    let Some(ns) = changed else { return state.give_back(receipt, *interval_ns, lose, now) };
                    self.lost_times().settled(key, now);
                    charged = state.give_back_changed(receipt, ns, now);
                    charged
                });
                let charged = if units > 0 || risk_ns > 0 { charged } else { 0 };
                Returned { units, charged, risk_ns, at: receipt.at() }
            }
            (Kind::Buckets(keys), Receipt::Sketch(receipt)) => Returned::whole(keys.undo_sketched(key, receipt), now),
            (Kind::Any(keys), Receipt::Any(charged)) => {
                let (rule, receipt) = &**charged;
                Returned::whole(keys.undo(key, |state| state.refund(rule, receipt, now)), now)
            }
            (_, Receipt::Remote(charge)) => {
                self.take_back(key, charge, now);
                Returned::default()
            }
            (_, Receipt::Lease(taken)) => {
                taken.iter().for_each(|(of, units)| self.put_back(key, of, *units, now));
                Returned::default()
            }
            _ => Returned::default(),
        }
    }

    /// Gives a charge back that another replica gave back at `at`. Together, refunds here and there lose no more time than
    /// has passed.
    pub fn refund_as_of(&self, key: Key, rule: &Algorithm, returned: &Returned, at: Timestamp, now: Timestamp) {
        match (&self.kind, rule) {
            (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) if keys.shortest_since(key, returned.at).is_none() => {
                let lose = |most_ns| self.lost_times().lose(key, returned.at, most_ns, at);
                let risk = (returned.risk_ns, lose);
                keys.change(key, quota, at, |state| state.take_back(quota, returned.charged, risk, at));
            }
            (Kind::Any(keys), rule) => {
                keys.change(key, rule, at, |state| state.take_back(rule, returned.charged, at, now));
            }
            _ => {}
        }
    }

    fn lost_times(&self) -> &LostTimes {
        self.lost_times.get_or_init(LostTimes::default)
    }

    /// Charges `extra` units whether they fit or not, at most `max_debt` beyond the limit. A negative number gives units
    /// back. Returns the units that are charged or, if negative, given back, rounded.
    pub fn settle(&self, key: Key, rule: &Algorithm, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        if extra < 0 && matches!(self.kind, Kind::Buckets(_)) {
            self.lost_times().settled(key, now);
        }
        matched!(&self.kind, rule, |keys, rule| {
            keys.change(key, rule, now, |state| state.settle(rule, extra, max_debt, now))
        }, else 0)
    }

    /// A rule of `count` units under which the window of `key` stays as it is; `None` if the key is not remembered, or has
    /// no such window.
    pub fn own_window(&self, key: Key, count: u64) -> Option<Algorithm> {
        let Kind::Any(keys) = &self.kind else { return None };
        keys.states.find(key, |state| state.own_window(count)).ok().flatten()
    }

    /// Charges `units` that another replica has admitted or given back, as of `at`. They make a debt if they do not fit.
    /// Units of a window that has ended by `now` do not count.
    pub fn charge_as_of(&self, key: Key, rule: &Algorithm, units: i64, at: Timestamp, now: Timestamp) {
        match &self.kind {
            Kind::Buckets(_) => _ = self.settle(key, rule, units, u64::MAX, at),
            Kind::Any(keys) => keys.change(key, rule, at, |state| state.charge_as_of(rule, units, at, now)),
        }
    }

    /// Replaces the state of `key` by `other` if that has spent more. A state of another algorithm changes nothing.
    pub fn raise(&self, key: Key, rule: &Algorithm, other: &AnyState, now: Timestamp) {
        match (&self.kind, rule, other) {
            (Kind::Buckets(keys), Algorithm::TokenBucket(quota), AnyState::TokenBucket(other)) => {
                keys.change(key, quota, now, |state| state.raise(quota, &other.state(), now));
            }
            (Kind::Any(keys), rule, other) => keys.change(key, rule, now, |state| state.raise(rule, other, now)),
            _ => {}
        }
    }

    /// Charges a request although the limit denies it. Returns its delay.
    pub(in crate::engine::store) fn slow_down(
        &self,
        key: Key,
        rule: &Algorithm,
        slow: &SlowDown,
        cost: u64,
        now: Timestamp,
    ) -> Slowed<Receipt> {
        let unfit = Slowed { delay_ns: slow.max_ns, decision: unfit(), charged: 0, receipt: Receipt::None };
        matched!(&self.kind, rule, |keys, rule| {
            let slowed = keys.change(key, rule, now, |state| slow.admit(state, rule, cost, now));
            with_table_receipt(keys, slowed, rule)
        }, else unfit)
    }

    /// Adds `units` of `key` to those of [`Table::take_pending`]. Returns the sum of the key before; `None` if the table has
    /// no number of units beside the state of the key.
    #[inline]
    pub fn add_pending(&self, key: Key, units: i64) -> Option<i64> {
        match &self.kind {
            Kind::Buckets(keys) => keys.states.add_pending(key, units),
            Kind::Any(_) => None,
        }
    }

    /// Takes `units` of `key` back that [`Table::add_pending`] has added, if no taker has them.
    pub fn withdraw_pending(&self, key: Key, units: u64) -> bool {
        match &self.kind {
            Kind::Buckets(keys) => keys.states.withdraw_pending(key, units),
            Kind::Any(_) => false,
        }
    }

    /// Moves the units of [`Table::add_pending`] to `taken`, those of `most` keys about.
    pub fn take_pending(&self, most: usize, taken: impl FnMut(Key, i64)) {
        if let Kind::Buckets(keys) = &self.kind {
            keys.states.take_pending(most, taken);
        }
    }

    /// Units charged beyond the limit and not yet paid, rounded up.
    pub fn over(&self, key: Key, rule: &Algorithm, now: Timestamp) -> u64 {
        matched!(&self.kind, rule, |keys, rule| keys.look(key, rule, now, |state| state.over(rule, now)), else 0)
    }

    /// The units of `key` that are not back: spent ones, and its debt.
    pub fn owed(&self, key: Key, rule: &Algorithm, now: Timestamp) -> u64 {
        let remaining = self.peek(key, rule, 0, now).remaining;
        rule.capacity().saturating_sub(remaining).saturating_add(self.over(key, rule, now))
    }

    /// The kind of the states, as a snapshot has it.
    pub(in crate::engine::store) fn kind(&self) -> u8 {
        u8::from(matches!(self.kind, Kind::Any(_)))
    }

    /// An empty table for states of this kind; `None` if the kind is unknown.
    pub(in crate::engine::store) fn of_kind(kind: u8, max_keys: usize, on_full: OnFull) -> Option<Self> {
        match kind {
            0 => Some(Self::with(Kind::Buckets(Keys::new(max_keys, on_full)))),
            1 => Some(Self::with(Kind::Any(Keys::new(max_keys, on_full)))),
            _ => None,
        }
    }

    /// Keys that may be remembered exactly.
    pub fn max_keys(&self) -> usize {
        each!(&self.kind, |keys| keys.max_keys())
    }

    /// Packs all keys that are not idle at `now`, block by block. Locks a few keys at a time.
    pub(in crate::engine::store) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        each!(&self.kind, |keys| keys.pack(now, emit))
    }

    pub(in crate::engine::store) fn unpack_keys(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        each!(&self.kind, |keys| keys.unpack_keys(from, now))
    }

    pub(in crate::engine::store) fn unpack_sketch(&self, from: &mut Unpacker<'_>) -> Option<()> {
        each!(&self.kind, |keys| keys.unpack_sketch(from))
    }

    pub(in crate::engine::store) fn unpack_shared(&self, from: &mut Unpacker<'_>) -> Option<()> {
        each!(&self.kind, |keys| keys.unpack_shared(from))
    }

    /// Drops every key that is idle at `now`, and returns their number. Locks a few keys at a time.
    pub fn sweep(&self, now: Timestamp) -> usize {
        if let Some(mirrors) = self.mirrors.get() {
            mirrors.sweep(now, |key| self.end_flights(key, 0));
        }
        if let Some(own) = self.own.get() {
            own.sweep(now);
        }
        each!(&self.kind, |keys| keys.sweep(now))
    }
}

fn with_table_receipt<S: TableState>(_: &Keys<S>, slowed: Slowed<S::Receipt>, rule: &S::Rule) -> Slowed<Receipt> {
    let Slowed { delay_ns, decision, charged, receipt } = slowed;
    Slowed { delay_ns, decision, charged, receipt: S::table_receipt(receipt, rule) }
}

/// The retry of a rule that does not fit its table, in nanoseconds: by then a new policy has its own table.
const UNFIT_RETRY_NS: u64 = 1_000_000_000;

/// The decision about a rule that does not fit its table.
#[cold]
pub(super) fn unfit() -> Decision {
    let denied = Some(Retry::AfterNs(UNFIT_RETRY_NS));
    Decision { denied, remaining: 0, reset_after_ns: UNFIT_RETRY_NS }
}
