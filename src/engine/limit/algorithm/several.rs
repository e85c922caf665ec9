//! Several rules at once: one state for each, as [`windows`] decides about them.

use std::borrow::Cow;

use super::{Algorithm, AnyReceipt, AnyState, Several};
use crate::base::time::Timestamp;
use crate::engine::limit::packed::{Packed, Unpacker};
use crate::engine::limit::portable::{Charged, Numbers, Portable, Unportable};
use crate::engine::limit::rule::{Rule, Scale};
use crate::engine::limit::state::{Receipt, State};
use crate::engine::limit::{Decision, Pace, QuotaError, RemainingByRate, Retry, windows};

impl Rule for Box<[Algorithm]> {
    fn capacity(&self) -> u64 {
        self.iter().map(Algorithm::capacity).min().unwrap_or(u64::MAX)
    }

    /// That of the rate with the smallest capacity.
    fn period_ns(&self) -> Option<u64> {
        self.iter().min_by_key(|rule| rule.capacity()).and_then(Algorithm::period_ns)
    }

    fn refill_ns(&self, cost: u64) -> u64 {
        self.iter().map(|rule| rule.refill_ns(cost)).max().unwrap_or(0)
    }

    fn memory_ns(&self) -> u64 {
        self.iter().map(|rule| rule.memory_ns()).max().unwrap_or(0)
    }

    /// The slowest.
    fn pace(&self, now: Timestamp) -> Option<Pace> {
        self.iter().filter_map(|rule| rule.pace(now)).max_by_key(Pace::ns_per_million)
    }

    fn is_released(&self) -> bool {
        self.iter().any(Algorithm::is_released)
    }

    fn chargeable_from(&self, earliest: Timestamp, now: Timestamp) -> Timestamp {
        self.iter().fold(earliest, |from, rule| rule.chargeable_from(from, now))
    }

    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        self.iter().any(|rule| rule.counts(at, now))
    }

    fn is_within(&self, other: &Self) -> bool {
        other.iter().all(|other| self.iter().any(|own| own.is_within(other)))
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        self.iter().map(|rule| rule.scaled(scale)).collect()
    }

    fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
        self.iter().map(|rule| rule.to_portable(max_debt)).collect()
    }

    fn portable_debt_max(&self) -> Option<u64> {
        let each = self.iter().map(|rule| rule.portable_debt_max());
        each.reduce(|one, other| Some(one?.min(other?))).flatten()
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.iter().map(|rule| rule.bound(span_ns)).min().unwrap_or(u64::MAX)
    }
}

impl Several {
    /// The states, one for each rule, in their order; a copy if they must be paired.
    fn under(&self, rules: &<Self as State>::Rule, now: Timestamp) -> Cow<'_, Self> {
        if self.is_paired(rules) {
            return Cow::Borrowed(self);
        }
        let mut adopted = self.clone();
        adopted.adopt(rules, now);
        Cow::Owned(adopted)
    }

    /// Whether each state is that of the rule at its position. If no rule has a state, rules of the same number are those of
    /// before with other numbers.
    pub(super) fn is_paired(&self, rules: &<Self as State>::Rule) -> bool {
        let has_state = |rule: &Algorithm| self.states.iter().any(|state| state.is_of(rule));
        self.is_of(rules) || (self.states.len() == rules.len() && !rules.iter().any(has_state))
    }

    /// Gives each rule the state that it had at another position, the rest of the states to the rest of the rules, and a
    /// fresh state to each rule beyond these.
    #[cold]
    fn pair(&mut self, rules: &[Algorithm]) {
        let mut rest: Vec<_> = self.states.iter().cloned().map(Some).collect();
        let mut take = |fits: &dyn Fn(&AnyState) -> bool| {
            rest.iter_mut().find(|state| state.as_ref().is_some_and(fits)).and_then(Option::take)
        };
        let known: Vec<_> = rules.iter().map(|rule| take(&|state| state.is_of(rule))).collect();
        let each = known.into_iter().zip(rules);
        self.states = each
            .map(|(known, rule)| known.or_else(|| take(&|_| true)).unwrap_or_else(|| AnyState::fresh(rule)))
            .collect();
    }
}

impl Receipt for Box<[AnyReceipt]> {
    /// Of units that not every rate can prove, none is left.
    fn part(&self, units: u64, grown: u64) -> (Self, u64) {
        let (parts, rest): (Vec<_>, Vec<_>) = self.iter().map(|receipt| receipt.part(units, grown)).unzip();
        (parts.into(), rest.into_iter().min().unwrap_or(0))
    }
}

/// See [`windows`].
impl State for Several {
    type Rule = Box<[Algorithm]>;
    type Receipt = Box<[AnyReceipt]>;

    fn fresh(rules: &Self::Rule) -> Self {
        Self { states: rules.iter().map(AnyState::fresh).collect() }
    }

    fn is_of(&self, rules: &Self::Rule) -> bool {
        self.states.len() == rules.len() && self.states.iter().zip(rules).all(|(state, rule)| state.is_of(rule))
    }

    fn adopt(&mut self, rules: &Self::Rule, now: Timestamp) {
        if !self.is_paired(rules) {
            self.pair(rules);
        }
        self.states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt(rule, now));
    }

    fn admit(&mut self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        self.adopt(rules, now);
        let peeked = self.peek(rules, cost, now);
        if !peeked.is_admitted() {
            return peeked;
        }
        windows::together(self.states.iter_mut().zip(rules).map(|(state, rule)| state.admit(rule, cost, now)))
    }

    fn peek(&self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        let own = self.under(rules, now);
        let each = || own.states.iter().zip(rules);
        let peek = |cost| windows::together(each().map(|(state, rule)| state.peek(rule, cost, now)));
        let peeked = peek(cost);
        // Windows that would admit the request are not charged.
        if peeked.is_admitted() { peeked } else { Decision { denied: peeked.denied, ..peek(0) } }
    }

    fn remaining(&self, rules: &Self::Rule, cost: u64, now: Timestamp) -> RemainingByRate {
        let own = self.under(rules, now);
        own.states.iter().zip(rules).flat_map(|(state, rule)| state.remaining(rule, cost, now)).collect()
    }

    fn wait(&self, rules: &Self::Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let own = self.under(rules, now);
        let waits = own.states.iter().zip(rules).map(|(state, rule)| state.wait(rule, ahead, cost, now));
        waits.max().unwrap_or(Retry::AfterNs(0))
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Self::Receipt {
        self.states.iter().map(|state| state.receipt(cost, now)).collect()
    }

    /// Returns the units that every rate gives back.
    fn refund(&mut self, rules: &Self::Rule, receipts: &Self::Receipt, now: Timestamp) -> u64 {
        let each = self.states.iter_mut().zip(rules).zip(receipts);
        each.map(|((state, rule), receipt)| state.refund(rule, receipt, now)).min().unwrap_or(0)
    }

    /// Returns the most units that a rate charges, or the units that every rate gives back.
    fn settle(&mut self, rules: &Self::Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(rules, now);
        let each = self.states.iter_mut().zip(rules);
        each.map(|(state, rule)| state.settle(rule, extra, max_debt, now)).max().unwrap_or(0)
    }

    fn raise(&mut self, rules: &Self::Rule, other: &Self, now: Timestamp) {
        self.adopt(rules, now);
        let others = self.states.iter_mut().zip(rules).zip(&other.states);
        others.for_each(|((state, rule), other)| state.raise(rule, other, now));
    }

    fn over(&self, rules: &Self::Rule, now: Timestamp) -> u64 {
        let own = self.under(rules, now);
        own.states.iter().zip(rules).map(|(state, rule)| state.over(rule, now)).max().unwrap_or(0)
    }

    fn idle_at(&self) -> Timestamp {
        self.states.iter().map(AnyState::idle_at).max().unwrap_or(Timestamp::ZERO)
    }
}

impl Packed for Several {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::try_from(self.states.len()).unwrap_or(u8::MAX));
        self.states.iter().for_each(|state| state.pack(bytes));
    }

    /// It never contains itself.
    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let states = 0..from.u8()?;
        Some(Self { states: states.map(|_| AnyState::unpack_one(from)).collect::<Option<_>>()? })
    }
}

/// The numbers of a state are of one rate.
impl Portable for Several {
    fn export(&self, _: &Self::Rule, _: Timestamp, _: &mut Numbers) {}

    fn import(_: &Self::Rule, _: &mut dyn Iterator<Item = u64>, _: Timestamp) -> Option<Self> {
        None
    }

    fn proof(_: &Self::Rule, _: &[u64], _: Charged) -> Option<(usize, [u64; 5])> {
        None
    }
}
