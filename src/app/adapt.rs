//! The windows of limits that follow a signal.
//!
//! Not here: what a window changes (`limit::adaptive_rate`), and how CPU time is read (`base::cpu`).

use super::fleet;
use crate::base::cpu::CpuSampler;
use crate::engine::limit::adaptive_rate::Signal;
use crate::engine::policy::Policy;
use crate::transport::proxy::SharedState;

/// The windows of limits that follow a signal.
#[derive(Debug, Default)]
pub(super) struct Windows {
    cpu: CpuSampler,
}

impl Windows {
    /// Ends a window: limits get the rates that follow from their signals. To be called on the runtime that reloads. Nothing
    /// waits here, so that no reload comes in between.
    pub(super) fn end(&mut self, shared: &SharedState) {
        let live = &shared.running_config.load_full().live;
        if !live.policy.adapts() {
            return;
        }
        let now = shared.gate.clock().now();
        let permille = if follows_cpu(&live.policy) { self.cpu.sample(now) } else { None };
        let busy =
            permille.and_then(|permille| u32::try_from(permille).ok()).map(|permille| f64::from(permille) / 1000.0);
        if let Some(policy) = shared.gate.end_window(live, busy) {
            fleet::follow(shared, policy);
        }
    }
}

fn follows_cpu(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.adapt.is_some_and(|rule| rule.signal == Signal::Cpu))
}
