//! The state of one limit's keys, under whichever algorithm it has.
//!
//! Token buckets have a map of their own, because they are what most limits are and a state of theirs is two words.
//! All others share one kind of map.

use std::io;

use smallvec::SmallVec;

use super::kept::Kept;
use super::memory::Keys;
use super::snapshot::Emit;
use crate::limit::slow_down::{SlowDown, Slowed};
use crate::limit::state::State;
use crate::limit::token_bucket::Answer;
use crate::limit::{
    Algorithm, AnyReceipt, AnyState, Decision, Key, OnFull, Quota, RemainingByRate, Retry, Unpacker, sketch,
    token_bucket,
};
use crate::time::Timestamp;

/// The state of all keys of one limit.
#[derive(Debug)]
pub struct Table(Kind);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there is one of them for each limit
enum Kind {
    Buckets(Keys<token_bucket::State>),
    Any(Keys<AnyState>),
}

/// What a charge is given back with.
#[derive(Clone, Debug)]
pub enum Receipt {
    /// Nothing was charged.
    None,
    /// By a token bucket, with its interval in nanoseconds.
    Bucket(token_bucket::Receipt, u64),
    /// By a sketch of token buckets.
    Sketch(Box<sketch::Receipt>),
    /// By another algorithm, with the numbers it had.
    Any(Box<(Algorithm, AnyReceipt)>),
}

/// What one limit says, and what it charged.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// What it says.
    pub(super) decision: Decision,
    /// What it charged.
    pub(super) receipt: Receipt,
}

impl Outcome {
    /// Whether the request may pass.
    pub(super) fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        Self { decision, receipt: Receipt::None }
    }
}

/// Runs `$do` on the keys and the numbers of their algorithm.
macro_rules! matched {
    ($kind:expr, $rule:expr, |$keys:ident, $numbers:ident| $do:expr, else $other:expr) => {
        match ($kind, $rule) {
            (Kind::Buckets($keys), Algorithm::TokenBucket($numbers)) => $do,
            (Kind::Any($keys), $numbers) => $do,
            _ => $other,
        }
    };
}

/// Runs `$do` on the keys.
macro_rules! each {
    ($kind:expr, |$keys:ident| $do:expr) => {
        match $kind {
            Kind::Buckets($keys) => $do,
            Kind::Any($keys) => $do,
        }
    };
}

impl Table {
    /// An empty table for limits like `rule` that remembers `max_keys` keys exactly.
    /// What happens to others then, `on_full` says.
    pub fn new(rule: &Algorithm, max_keys: usize, on_full: OnFull) -> Self {
        Self(match rule {
            Algorithm::TokenBucket(_) => Kind::Buckets(Keys::new(max_keys, on_full)),
            _ => Kind::Any(Keys::new(max_keys, on_full)),
        })
    }

    /// Whether states under `rule` are kept here. A limit that is not needs another table, and begins anew.
    pub fn fits(&self, rule: &Algorithm) -> bool {
        matches!(rule, Algorithm::TokenBucket(_)) == matches!(self.0, Kind::Buckets(_))
    }

    /// Changes the bound. Keys beyond a smaller one stay until they are idle.
    ///
    /// If keys are in a sketch, or share buckets, already, this does not change to the other.
    pub fn set_bound(&self, max_keys: usize, on_full: OnFull) {
        each!(&self.0, |keys| keys.set_bound(max_keys, on_full));
    }

    /// Keys remembered exactly.
    pub fn len(&self) -> usize {
        each!(&self.0, |keys| keys.len())
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every key is as good as new at `now`, so that the table could as well be a new one.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        each!(&self.0, |keys| keys.is_idle(now))
    }

    /// Decisions about keys beyond the bound since this was last asked.
    pub fn take_overflowed(&self) -> u64 {
        each!(&self.0, |keys| keys.take_overflowed())
    }

    /// Decides a request and charges it if it is admitted. A rule that does not fit the table denies it.
    #[inline]
    pub(super) fn admit(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Outcome {
        matched!(&self.0, rule, |keys, rule| keys.admit(key, rule, cost, now), else unfit().into())
    }

    /// Decides a request as [`Table::admit`] does, if `key` is a token bucket that is found at once. Most are.
    #[inline]
    pub(super) fn charge_known<'r>(
        &self,
        key: Key,
        rule: &'r Algorithm,
        cost: u64,
        now: Timestamp,
    ) -> Option<(Answer, &'r Quota)> {
        let (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) = (&self.0, rule) else { return None };
        Some((keys.charge_known(key, quota, cost, now)?, quota))
    }

    /// Decides a request as [`Table::admit`] would, charging nothing.
    pub fn peek(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(&self.0, rule, |keys, rule| {
            keys.peek(key, rule, cost, now)
        }, else unfit())
    }

    /// What is left for a request of `cost` units, for each rate of `rule`.
    pub fn remaining(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> RemainingByRate {
        matched!(&self.0, rule, |keys, rule| {
            keys.remaining(key, rule, cost, now)
        }, else SmallVec::from_iter([unfit().into()]))
    }

    /// When a request of `cost` units could pass behind others that take `ahead` units.
    pub fn wait(&self, key: Key, rule: &Algorithm, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        matched!(&self.0, rule, |keys, rule| {
            keys.look(key, rule, now, |state| State::wait(state, rule, ahead, cost, now))
        }, else Retry::AfterNs(UNFIT_RETRY_NS))
    }

    /// Gives back what was charged, as far as it has not come back by itself.
    pub fn refund(&self, key: Key, receipt: &Receipt, now: Timestamp) {
        match (&self.0, receipt) {
            (Kind::Buckets(keys), Receipt::Bucket(receipt, interval_ns)) => {
                keys.undo(key, |state| state.take_back(receipt, *interval_ns, now));
            }
            (Kind::Buckets(keys), Receipt::Sketch(receipt)) => keys.undo_sketched(key, receipt),
            (Kind::Any(keys), Receipt::Any(charged)) => {
                let (rule, receipt) = &**charged;
                keys.undo(key, |state| state.refund(rule, receipt, now));
            }
            _ => {}
        }
    }

    /// Charges `extra` units whether there is room or not, at most `max_debt` beyond the limit; or gives units back.
    pub fn settle(&self, key: Key, rule: &Algorithm, extra: i64, max_debt: u64, now: Timestamp) {
        matched!(&self.0, rule, |keys, rule| {
            keys.change(key, rule, now, |state| state.settle(rule, extra, max_debt, now));
        }, else {});
    }

    /// Charges a request in any case, and says how much it is delayed.
    pub(super) fn slow_down(
        &self,
        key: Key,
        rule: &Algorithm,
        slow: &SlowDown,
        cost: u64,
        now: Timestamp,
    ) -> Slowed<Receipt> {
        matched!(&self.0, rule, |keys, rule| {
            let slowed = keys.change(key, rule, now, |state| slow.admit(state, rule, cost, now));
            given_out(keys, slowed, rule)
        }, else Slowed { delay_ns: slow.max_ns, decision: unfit(), receipt: Receipt::None })
    }

    /// Units charged beyond the limit and not yet paid, rounded up.
    pub fn over(&self, key: Key, rule: &Algorithm, now: Timestamp) -> u64 {
        matched!(&self.0, rule, |keys, rule| keys.look(key, rule, now, |state| state.over(rule, now)), else 0)
    }

    /// Which states it keeps, as a snapshot says it.
    pub(super) fn kind(&self) -> u8 {
        match self.0 {
            Kind::Buckets(_) => 0,
            Kind::Any(_) => 1,
        }
    }

    /// An empty table that keeps such states.
    pub(super) fn of_kind(kind: u8, max_keys: usize, on_full: OnFull) -> Option<Self> {
        match kind {
            0 => Some(Self(Kind::Buckets(Keys::new(max_keys, on_full)))),
            1 => Some(Self(Kind::Any(Keys::new(max_keys, on_full)))),
            _ => None,
        }
    }

    /// Keys that may be remembered exactly.
    pub(super) fn max_keys(&self) -> usize {
        each!(&self.0, |keys| keys.max_keys())
    }

    /// Packs all that is not as good as new at `now`, block by block. Locks a few at a time.
    pub(super) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        each!(&self.0, |keys| keys.pack(now, emit))
    }

    pub(super) fn unpack_keys(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        each!(&self.0, |keys| keys.unpack_keys(from, now))
    }

    pub(super) fn unpack_sketch(&self, from: &mut Unpacker<'_>) -> Option<()> {
        each!(&self.0, |keys| keys.unpack_sketch(from))
    }

    pub(super) fn unpack_shared(&self, from: &mut Unpacker<'_>) -> Option<()> {
        each!(&self.0, |keys| keys.unpack_shared(from))
    }

    /// Drops every key that is as good as new at `now`, and says how many. Locks a few at a time.
    pub fn sweep(&self, now: Timestamp) -> usize {
        each!(&self.0, |keys| keys.sweep(now))
    }
}

fn given_out<S: Kept>(_: &Keys<S>, slowed: Slowed<S::Receipt>, rule: &S::Rule) -> Slowed<Receipt> {
    let Slowed { delay_ns, decision, receipt } = slowed;
    Slowed { delay_ns, decision, receipt: S::charged(receipt, rule) }
}

/// The retry of a rule that does not fit its table, in nanoseconds: by then a new policy has its own table.
const UNFIT_RETRY_NS: u64 = 1_000_000_000;

/// The decision about a rule that does not fit its table.
#[cold]
fn unfit() -> Decision {
    let denied = Some(Retry::AfterNs(UNFIT_RETRY_NS));
    Decision { denied, remaining: 0, reset_after_ns: UNFIT_RETRY_NS }
}
