//! The windows of limits that follow a signal, and the busy part of the CPUs of the machine.
//!
//! Not here: what a window changes (`limit::adaptive_rate`).

use std::fs;

use super::fleet;
use crate::engine::limit::adaptive_rate::Signal;
use crate::engine::policy::Policy;
use crate::transport::proxy::SharedState;

/// The windows of limits that follow a signal.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The CPU times at the end of the last window; `None` if no limit follows them, or the system does not tell.
    cpu: Option<CpuTimes>,
}

/// The CPU times of the machine since its start, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    all: u64,
}

impl Windows {
    /// Ends a window: limits get the rates that follow from their signals. To be called on the runtime that reloads. Nothing
    /// waits here, so that no reload comes in between.
    pub(super) fn end(&mut self, shared: &SharedState) {
        let live = &shared.running_config.load_full().live;
        if !live.policy.adapts() {
            return;
        }
        let before = self.cpu.take();
        self.cpu = follows_cpu(&live.policy).then(CpuTimes::read).flatten();
        let busy = before.zip(self.cpu).and_then(|(before, now)| now.busy_since(before));
        if let Some(policy) = shared.gate.end_window(live, busy) {
            fleet::follow(shared, policy);
        }
    }
}

fn follows_cpu(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.adapt.is_some_and(|rule| rule.signal == Signal::Cpu))
}

impl CpuTimes {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The times of all CPUs in `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal. The rest is
    /// part of the first two.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let idle = times.get(3)? + times.get(4).unwrap_or(&0);
        let all = times.iter().sum();
        Some(Self { busy: all - idle, all })
    }

    /// The busy part of the time since `before`; `None` if no time has passed.
    #[expect(clippy::cast_precision_loss)] // 53 bits are enough for a part
    fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(before.busy) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cpus_and_cpus_that_wait_for_disks_are_not_busy() {
        let [before, now] = ["cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1", "intr 1\ncpu  40 5 25 100 20 5 5 0 9 0\n"]
            .map(|text| CpuTimes::parse(text).unwrap());
        assert_eq!((before.busy, before.all, now.busy, now.all), (20, 100, 80, 200));
        assert_eq!(now.busy_since(before), Some(0.6));
        assert_eq!((now.busy_since(now), before.busy_since(now)), (None, None));
        assert_eq!([CpuTimes::parse("cpu 1 2 3"), CpuTimes::parse("cpu0 1 2 3 4")], [None, None]);
        assert!(CpuTimes::read().unwrap().all > 0);
    }
}
