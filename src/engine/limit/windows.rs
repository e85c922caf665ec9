//! Several windows on one limit, as in `["100/min", "1000/h"]`: one key, one state for each window.
//!
//! A request passes if all windows admit it, and is charged by all or by none. `remaining` is the smallest; the retry and
//! the time until the key is idle are the longest. Each window keeps its own bound.

use super::{Decision, state};
use crate::base::time::Timestamp;

/// The largest number of windows of a limit.
pub const WINDOWS_MAX: usize = 4;

/// The decision of all windows together.
pub(super) fn together(decisions: impl Iterator<Item = Decision>) -> Decision {
    let none = Decision { denied: None, remaining: u64::MAX, reset_after_ns: 0 };
    decisions.fold(none, |all, one| Decision {
        denied: all.denied.max(one.denied),
        remaining: all.remaining.min(one.remaining),
        reset_after_ns: all.reset_after_ns.max(one.reset_after_ns),
    })
}

/// Decides a request of `cost` units, and charges all of `states` if all admit it.
pub(super) fn admit<S: state::State>(states: &mut [S], rules: &[S::Rule], cost: u64, now: Timestamp) -> Decision {
    states.iter_mut().zip(rules).for_each(|(state, rule)| state.adopt(rule, now));
    let peeked = together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, cost, now)));
    if peeked.is_admitted() {
        return together(states.iter_mut().zip(rules).map(|(state, rule)| state.admit(rule, cost, now)));
    }
    // Windows that would admit the request are not charged.
    Decision {
        denied: peeked.denied,
        ..together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, 0, now)))
    }
}

/// The decision that [`admit`] would make. Nothing is charged.
pub(super) fn peek<S: state::State>(states: &[S], rules: &[S::Rule], cost: u64, now: Timestamp) -> Decision {
    let peek = |cost| together(states.iter().zip(rules).map(|(state, rule)| state.peek(rule, cost, now)));
    let peeked = peek(cost);
    if peeked.is_admitted() { peeked } else { Decision { denied: peeked.denied, ..peek(0) } }
}

#[cfg(test)]
mod tests;
