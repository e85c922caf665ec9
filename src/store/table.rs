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
use crate::limit::{
    Algorithm, AnyReceipt, AnyState, Decision, Key, Lefts, OnFull, Quota, Retry, Unpacker, sketch, token_bucket,
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

impl Receipt {
    /// That of a bucket that was known, and said at `at` that it is full after so many nanoseconds.
    pub fn of_known(rule: &Algorithm, cost: u64, reset_after_ns: u64, given_back: u32, at: Timestamp) -> Self {
        let Algorithm::TokenBucket(quota) = rule else { return Self::None };
        let answer = token_bucket::Answer::admitted(reset_after_ns, given_back);
        Self::Bucket(answer.receipt(quota, cost, at), quota.interval_ns())
    }
}

/// What one limit says, and what it charged.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it says.
    pub decision: Decision,
    /// What it charged.
    pub receipt: Receipt,
}

impl Outcome {
    /// Whether the request may pass.
    pub fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        Self { decision, receipt: Receipt::None }
    }
}

/// What a bucket that was known said, not worked out yet.
#[derive(Clone, Copy, Debug)]
pub struct Known<'r> {
    answer: token_bucket::Answer,
    quota: &'r Quota,
    cost: u64,
}

impl Known<'_> {
    /// What it says.
    #[inline]
    pub fn decision(&self) -> Decision {
        self.answer.decision(self.quota, self.cost)
    }

    /// The rest of what its receipt is made of.
    #[inline]
    pub fn given_back(&self) -> u32 {
        self.answer.given_back()
    }

    /// What it says, and what it charged at `now`.
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        token_bucket::State::outcome(self.answer, self.quota, self.cost, now)
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

    /// Decides a request and, if admitted, charges it. A rule that does not fit admits all and charges nothing.
    #[inline]
    pub fn admit(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Outcome {
        matched!(&self.0, rule, |keys, rule| keys.admit(key, rule, cost, now), else unfit(rule).into())
    }

    /// The same, if it is a bucket that is known already: by far the most are.
    #[inline]
    pub fn charge_known<'r>(&self, key: Key, rule: &'r Algorithm, cost: u64, now: Timestamp) -> Option<Known<'r>> {
        let (Kind::Buckets(keys), Algorithm::TokenBucket(quota)) = (&self.0, rule) else { return None };
        Some(Known { answer: keys.charge_known(key, quota, cost, now)?, quota, cost })
    }

    /// Decides a request as [`Table::admit`] would, charging nothing.
    pub fn peek(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        matched!(&self.0, rule, |keys, rule| {
            keys.peek(key, rule, cost, now)
        }, else unfit(rule))
    }

    /// What is left for a request of `cost` units, for each rate of `rule`.
    pub fn left(&self, key: Key, rule: &Algorithm, cost: u64, now: Timestamp) -> Lefts {
        matched!(&self.0, rule, |keys, rule| {
            keys.left(key, rule, cost, now)
        }, else SmallVec::from_iter([unfit(rule).into()]))
    }

    /// When a request of `cost` units could pass behind others that take `ahead` units.
    pub fn wait(&self, key: Key, rule: &Algorithm, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        matched!(&self.0, rule, |keys, rule| {
            keys.look(key, rule, now, |state| State::wait(state, rule, ahead, cost, now))
        }, else Retry::AfterNs(0))
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
    pub fn slow_down(&self, key: Key, rule: &Algorithm, slow: &SlowDown, cost: u64, now: Timestamp) -> Slowed<Receipt> {
        matched!(&self.0, rule, |keys, rule| {
            let slowed = keys.change(key, rule, now, |state| slow.admit(state, rule, cost, now));
            given_out(keys, slowed, rule)
        }, else Slowed { delay_ns: 0, decision: unfit(rule), receipt: Receipt::None })
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

fn unfit(rule: &Algorithm) -> Decision {
    Decision { denied: None, remaining: rule.capacity(), reset_after_ns: 0 }
}
