//! The window that a state has by itself.
//!
//! Not here: the units that count in it (`fixed_window`, `sliding_window`).

use super::{Algorithm, AnyState};
use crate::engine::limit::{Allowance, Rate, fixed_window};

impl AnyState {
    /// A rule of `count` units under which the window of the state stays as it is; `None` for windows of a calendar, and
    /// for other algorithms.
    pub fn own_window(&self, count: u64) -> Option<Algorithm> {
        let rate = |period_ns| Rate { count, period_ns };
        match self {
            Self::FixedWindow(state) => {
                let rule = fixed_window::Rule::from_first(rate(state.length_ns()?));
                rule.map(Algorithm::FixedWindow).ok()
            }
            Self::SlidingWindow(state) => Allowance::new(rate(state.period_ns())).map(Algorithm::SlidingWindow).ok(),
            _ => None,
        }
    }
}
