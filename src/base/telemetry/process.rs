//! Metrics of the process as Linux has them: CPU time, memory, files, threads and start, read on each scrape.
//!
//! Their names are those of all Prometheus clients. Not here: what Weir counts itself.

use std::collections::HashMap;
use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::histogram::as_float;
use super::scrape::{counter_of, family, gauge};

/// Name, help and type of each metric, in the order of [`Values`].
const METRICS: [(&str, &str, MetricType); 7] = [
    ("process_cpu_seconds_total", "User and system CPU time in seconds.", MetricType::COUNTER),
    ("process_resident_memory_bytes", "Resident memory.", MetricType::GAUGE),
    ("process_virtual_memory_bytes", "Virtual memory.", MetricType::GAUGE),
    ("process_threads", "Threads.", MetricType::GAUGE),
    ("process_start_time_seconds", "Start of the process in Unix seconds.", MetricType::GAUGE),
    ("process_open_fds", "Open file descriptors.", MetricType::GAUGE),
    ("process_max_fds", "File descriptors that may be open.", MetricType::GAUGE),
];

/// The value of each metric; `None` if the system does not tell.
type Values = [Option<f64>; METRICS.len()];

/// The collector of these metrics.
#[derive(Clone, Debug)]
pub(super) struct ProcessCollector {
    descriptions: Vec<Desc>,
}

impl ProcessCollector {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let describe = |(name, help, _): &(&str, &str, _)| {
            Desc::new((*name).to_owned(), (*help).to_owned(), Vec::new(), HashMap::new())
        };
        Ok(Self { descriptions: METRICS.iter().map(describe).collect::<Result<_, _>>()? })
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let described = self.descriptions.iter().zip(METRICS).zip(values());
        let known = described.filter_map(|((description, (_, _, kind)), value)| {
            let value = value?;
            let metric = if kind == MetricType::COUNTER { counter_of(&[], value) } else { gauge(value) };
            Some(family(description, kind, vec![metric]))
        });
        known.collect()
    }
}

fn values() -> Values {
    let of_process = fs::read_to_string("/proc/self/stat").ok();
    let fields = of_process.as_deref().map(stat_fields).unwrap_or_default();
    // The numbers of proc(5), which begin with the name of the program and its state.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok().map(as_float);
    let ticks = as_float(clock_ticks_per_second().max(1));
    let page = as_float(u64::try_from(page_size()).unwrap_or(u64::MAX));
    let booted = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text)).map(as_float);
    // The folder itself is open while it is read.
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));
    [
        field(14).zip(field(15)).map(|(user, system)| (user + system) / ticks),
        field(24).map(|pages| pages * page),
        field(23),
        field(20),
        field(22).zip(booted).map(|(after, booted)| booted + after / ticks),
        open.and_then(|open| u64::try_from(open).ok()).map(as_float),
        // Without a bound there is no number.
        getrlimit(Resource::Nofile).current.map(as_float),
    ]
}

/// The fields of `/proc/PID/stat` from the third one on. The second one, the name of the program, may contain spaces.
fn stat_fields(text: &str) -> Vec<&str> {
    text.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// The start of the system in Unix seconds.
fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_is_one_field() {
        assert_eq!(stat_fields("7 (a ) b) S 1 2\n"), ["S", "1", "2"]);
        assert_eq!(stat_fields("nothing"), [""; 0]);
        assert_eq!((boot_time("cpu 1\nbtime 1700000000\n"), boot_time("cpu 1")), (Some(1_700_000_000), None));
    }

    /// The values of the test itself.
    #[test]
    fn the_system_tells_all_values() {
        let [cpu, resident, virtual_memory, threads, started, open, most] = values().map(Option::unwrap);
        assert!((0.0..1e6).contains(&cpu) && resident > 1e5 && virtual_memory >= resident, "{cpu} {resident}");
        assert!(threads >= 1.0 && started > 1.5e9 && (3.0..=most).contains(&open), "{threads} {started} {open}");
        let families = ProcessCollector::new().unwrap().collect();
        assert_eq!(families.len(), METRICS.len());
    }
}
