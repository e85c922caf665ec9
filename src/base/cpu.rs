//! CPU time in use: of the machine, and of the cgroup of the process if that has a quota.
//!
//! Linux counts it in steps of 10 ms, so samples less than 100 ms apart are coarse.

use std::fs;
use std::path::{Path, PathBuf};

use super::time::Timestamp;

/// Samples the CPU time in use.
#[derive(Debug, Default)]
pub struct CpuSampler {
    last: Option<Reading>,
    /// Whether the log has that the system does not tell.
    is_told: bool,
}

/// The counters at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at: Timestamp,
    /// None if `/proc/stat` is hidden.
    machine: Option<MachineTime>,
    /// None without cgroup version 2 or a quota.
    group: Option<GroupTime>,
}

/// The time of all processors in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MachineTime {
    busy: u64,
    all: u64,
}

/// The time of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupTime {
    used_us: u64,
    /// The time that it may use in a period, and the period.
    quota: (u64, u64),
}

impl CpuSampler {
    /// The CPU time in use since the last sample, in thousandths of what there is: of the machine or of the cgroup, whichever
    /// is fuller. None for the first sample, and if the system does not tell.
    pub fn sample(&mut self, now: Timestamp) -> Option<u64> {
        let reading = read(now, &fs::read_to_string("/proc/stat").unwrap_or_default());
        if reading.machine.is_none() && reading.group.is_none() && !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("the CPU time in use cannot be read: limits and bounds that follow it stay as they are");
        }
        used_permille(self.last.replace(reading)?, reading)
    }
}

fn read(at: Timestamp, stat: &str) -> Reading {
    let group = group_folder().and_then(|folder| group_time_in(&folder));
    Reading { at, machine: machine_time(stat), group }
}

/// The folder of the process's cgroup (version 2). In a container, its path may be that of the host.
fn group_folder() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(path);
    Some(if own.join("cpu.max").exists() { own } else { root.to_owned() })
}

fn group_time_in(folder: &Path) -> Option<GroupTime> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    group_time(&read("cpu.max")?, &read("cpu.stat")?)
}

/// The times in `/proc/stat`. Guests are part of other times, and time that the hypervisor takes is in use.
fn machine_time(stat: &str) -> Option<MachineTime> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    let (idle, waiting) = (times.get(3)?, times.get(4)?);
    let all = times.iter().sum();
    Some(MachineTime { busy: all - idle - waiting, all })
}

/// The time in `cpu.stat` and the quota in `cpu.max`, if there is one.
fn group_time(max: &str, stat: &str) -> Option<GroupTime> {
    let (quota, period) = max.trim().split_once(' ')?;
    let quota = (quota.parse().ok()?, period.parse().ok()?);
    let used_us = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
    Some(GroupTime { used_us, quota })
}

fn used_permille(before: Reading, after: Reading) -> Option<u64> {
    let permille = |used: u64, all: u64| (all > 0).then(|| (used.saturating_mul(1000) / all).min(1000));
    let since = |after: u64, before: u64| after.saturating_sub(before);
    let machine = before.machine.zip(after.machine).and_then(|(before_machine, machine)| {
        permille(since(machine.busy, before_machine.busy), since(machine.all, before_machine.all))
    });
    let group = before.group.zip(after.group).and_then(|(before_group, group)| {
        let (quota, period) = group.quota;
        let elapsed_us = after.at.ns_since(before.at) / 1000;
        permille(since(group.used_us, before_group.used_us), elapsed_us.saturating_mul(quota) / period.max(1))
    });
    machine.max(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_linux_writes_them() {
        let stat = "cpu  100 20 30 400 50 6 7 8 99 99\ncpu0 1 2 3 4 5\n";
        assert_eq!(machine_time(stat), Some(MachineTime { busy: 171, all: 621 }));
        for broken in ["", "cpu", "cpu 1 2 3", "cpu a b c d e", "cpu0 1 2 3 4 5"] {
            assert_eq!(machine_time(broken), None, "{broken}");
        }
        let stat = "usage_usec 1234\nuser_usec 1000\n";
        assert_eq!(group_time("50000 100000\n", stat), Some(GroupTime { used_us: 1234, quota: (50_000, 100_000) }));
        assert_eq!((group_time("max 100000\n", stat), group_time("50000 100000", "user_usec 1")), (None, None));
    }

    #[test]
    fn the_fuller_of_machine_and_cgroup_counts() {
        let reading = |at_ms: u64, busy, all, used_us: Option<u64>| Reading {
            at: Timestamp::from_ns(at_ms * 1_000_000),
            machine: Some(MachineTime { busy, all }),
            group: used_us.map(|used_us| GroupTime { used_us, quota: (50_000, 100_000) }),
        };
        let before = reading(1000, 10, 100, Some(7));
        for (after, expected) in [
            (reading(1100, 15, 120, None), Some(250)),
            (reading(1100, 15, 120, Some(40_007)), Some(800)),
            (reading(1100, 29, 120, Some(40_007)), Some(950)),
            (reading(1100, 15, 120, Some(90_007)), Some(1000)),
            (reading(1000, 10, 100, Some(7)), None),
        ] {
            assert_eq!(used_permille(before, after), expected, "{after:?}");
        }
        // Of a hidden one, nothing counts.
        let hidden = |at_ms, used_us| Reading { machine: None, ..reading(at_ms, 0, 0, used_us) };
        assert_eq!(used_permille(hidden(1000, Some(7)), hidden(1100, Some(40_007))), Some(800));
        assert_eq!(used_permille(hidden(1000, None), hidden(1100, None)), None);
    }

    #[test]
    fn the_system_tells_its_times() {
        let at = Timestamp::from_ns;
        let stat = fs::read_to_string("/proc/stat").unwrap();
        assert!(read(at(1), &stat).machine.is_some_and(|machine| machine.all > 0));
        assert_eq!(read(at(1), "").machine, None);
        assert_eq!(CpuSampler::default().sample(at(1)), None);
    }
}
