//! Several windows on one limit, as in `["100/min", "1000/h"]`: one key, one state for each.
//!
//! A request passes if all admit it, and is charged by all or by none. `remaining` is the smallest, the retry and
//! the time until the key is as good as new are the longest. Each window keeps its own bound.

use std::array;

use super::{Decision, Retry, state};
use crate::time::Timestamp;

/// The most windows that a limit may have.
pub const WINDOWS_MAX: usize = 4;

/// The states of one key under `N` rules of one algorithm, inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows<S, const N: usize> {
    states: [S; N],
}

impl<S: state::State, const N: usize> Windows<S, N> {
    /// Which of the windows a client is told of: of those that deny a request of `cost` units the one with the
    /// longest wait, else the one with the least left of what `capacity` says it holds.
    pub fn tightest(
        &self,
        rules: &[S::Rule; N],
        cost: u64,
        now: Timestamp,
        capacity: impl Fn(&S::Rule) -> u64,
    ) -> usize {
        let decisions =
            self.states.iter().zip(rules).map(|(state, rule)| (state.peek(rule, cost, now), capacity(rule)));
        tightest(decisions)
    }
}

/// The index of the decision that a client is told of; with each comes what its limit holds.
pub fn tightest(decisions: impl Iterator<Item = (Decision, u64)>) -> usize {
    let mut best: Option<(usize, Decision, u64)> = None;
    for (index, (decision, capacity)) in decisions.enumerate() {
        let is_tighter = best.as_ref().is_none_or(|(_, known, known_capacity)| {
            // remaining / capacity, compared without dividing.
            let share = u128::from(decision.remaining) * u128::from(*known_capacity);
            let known_share = u128::from(known.remaining) * u128::from(capacity);
            decision.denied > known.denied || (decision.denied == known.denied && share < known_share)
        });
        if is_tighter {
            best = Some((index, decision, capacity));
        }
    }
    best.map_or(0, |(index, _, _)| index)
}

/// What all of `decisions` say together.
pub(super) fn together(decisions: impl Iterator<Item = Decision>) -> Decision {
    let none = Decision { denied: None, remaining: u64::MAX, reset_after_ns: 0 };
    decisions.fold(none, |all, one| Decision {
        denied: all.denied.max(one.denied),
        remaining: all.remaining.min(one.remaining),
        reset_after_ns: all.reset_after_ns.max(one.reset_after_ns),
    })
}

/// Peeks at all of `states` and charges them if all admit.
pub(super) fn admit<S: state::State>(states: &mut [S], rules: &[S::Rule], cost: u64, now: Timestamp) -> Decision {
    states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt(rule, now));
    let peeked = together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, cost, now)));
    if peeked.is_admitted() {
        return together(states.iter_mut().zip(rules).map(|(state, rule)| state.admit(rule, cost, now)));
    }
    // Those that would admit it have not been charged.
    Decision {
        denied: peeked.denied,
        ..together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, 0, now)))
    }
}

/// Decides as [`admit`] would.
pub(super) fn peek<S: state::State>(states: &[S], rules: &[S::Rule], cost: u64, now: Timestamp) -> Decision {
    let peek = |cost| together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, cost, now)));
    let peeked = peek(cost);
    if peeked.is_admitted() { peeked } else { Decision { denied: peeked.denied, ..peek(0) } }
}

impl<S: state::State, const N: usize> state::State for Windows<S, N> {
    type Rule = [S::Rule; N];
    type Receipt = [S::Receipt; N];

    fn fresh(rules: &Self::Rule) -> Self {
        Self { states: array::from_fn(|index| S::fresh(&rules[index])) }
    }

    fn adopt(&mut self, rules: &Self::Rule, now: Timestamp) {
        self.states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt(rule, now));
    }

    fn admit(&mut self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        admit(&mut self.states, rules, cost, now)
    }

    fn peek(&self, rules: &Self::Rule, cost: u64, now: Timestamp) -> Decision {
        peek(&self.states, rules, cost, now)
    }

    /// The longest. Exact for token buckets, whatever those ahead cost; for others it may be too short.
    fn wait(&self, rules: &Self::Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let waits = self.states.iter().zip(rules).map(|(state, rule)| state.wait(rule, ahead, cost, now));
        waits.max().unwrap_or(Retry::AfterNs(0))
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Self::Receipt {
        array::from_fn(|index| self.states[index].receipt(cost, now))
    }

    fn refund(&mut self, rules: &Self::Rule, receipts: &Self::Receipt, now: Timestamp) {
        for ((state, rule), receipt) in self.states.iter_mut().zip(rules).zip(receipts) {
            state.refund(rule, receipt, now);
        }
    }

    /// Each window may owe `max_debt`.
    fn settle(&mut self, rules: &Self::Rule, extra: i64, max_debt: u64, now: Timestamp) {
        self.states.iter_mut().zip(rules).for_each(|(state, rule)| state.settle(rule, extra, max_debt, now));
    }

    fn over(&self, rules: &Self::Rule, now: Timestamp) -> u64 {
        self.states.iter().zip(rules).map(|(state, rule)| state.over(rule, now)).max().unwrap_or(0)
    }

    fn idle_at(&self) -> Timestamp {
        self.states.iter().map(state::State::idle_at).max().unwrap_or(Timestamp::ZERO)
    }
}

#[cfg(test)]
mod tests;
