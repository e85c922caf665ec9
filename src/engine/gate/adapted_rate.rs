//! The ends of the windows of limits that follow a signal, and the parts of their rates.
//!
//! Not here: what a limit learns (`rate_adaptation`).

use super::state::{Gate, Live};
use crate::engine::limit::adaptive_rate::Rule;
use crate::engine::policy::Policy;

/// The part of its rate that a limit has, and its signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptedRate {
    /// The rule.
    pub rule: Rule,
    /// Thousandths of the written numbers.
    pub part: u64,
    /// The signal, in nanoseconds or thousandths; `None` if it is not known.
    pub signal: Option<u64>,
}

impl Gate {
    /// Ends a window of the limits that follow a signal. `cpu` is the busy part of the CPUs in it, if it is known. Returns
    /// the policy with the parts of rates that have changed; `None` if none has.
    pub fn end_window(&self, live: &Live, cpu: Option<f64>) -> Option<Policy> {
        let adaptive = |index: usize| live.policy.limits()[index].adapt.map(|rule| (rule, &live.states[index]));
        for (rule, state) in (0..live.states.len()).filter_map(adaptive) {
            state.rate.end_window(rule, &state.metrics.cells, cpu);
        }
        live.policy.adapted(|index, _| Some(live.states[index].rate.state()?.0))
    }
}

impl Live {
    /// The part of its rate that the limit at `index` has; `None` if the limit follows no signal.
    pub fn adapted_rate(&self, index: usize) -> Option<AdaptedRate> {
        let limit = self.policy.limits().get(index)?;
        let signal = self.states.get(index)?.rate.state().and_then(|(_, signal)| signal);
        Some(AdaptedRate { rule: limit.adapt?, part: limit.adapted, signal })
    }
}
