//! Several windows on one limit, as in `["100/min", "1000/h"]`: one key, one state for each window.
//!
//! A request passes if all windows admit it, and is charged by all or by none. `remaining` is the smallest; the retry and
//! the time until the key is idle are the longest. Each window keeps its own bound.

use super::Decision;

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

#[cfg(test)]
mod tests;
