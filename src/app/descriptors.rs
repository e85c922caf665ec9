//! File descriptors: raises their limit, and divides them among the listeners at the start.
//!
//! Without a bound, clients could use all descriptors. Then every request gets 502, and operators cannot connect.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin::CONNECTIONS_MAX;

/// Descriptors for the process, beside its connections, and for each worker.
const RESERVED: usize = 32;
const RESERVED_BY_WORKER: usize = 8;
/// Descriptors for operators, health checks, name servers, fetched keys and files.
const RESERVED_BESIDE: usize = 96;
/// With fewer descriptors there is no reserve for these; of further descriptors the reserve is one in eight.
const SCARCE: usize = 64;
/// Operators get two thirds of that reserve, and without one so many descriptors of those for the process.
const OPERATORS_MIN: usize = 8;
/// The default bound on client connections, if there are enough descriptors.
const CLIENTS_USUAL: usize = 10_000;

/// Checks get at most one in so many descriptors, and so do calls of the limiter service.
const CHECKS_PART: usize = 4;

/// The bound on connections to all upstreams.
const UPSTREAMS_MOST: usize = 65_536;

/// Bounds on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorBudget {
    /// Of clients; at least one.
    pub(super) clients: usize,
    /// Of other proxies that ask for checks.
    pub(super) checks: usize,
    /// Of callers of the limiter service.
    pub(super) calls: usize,
    /// To all upstreams together; at least one.
    pub(super) upstreams: usize,
    /// Of operators; at least eight.
    pub(super) operators: usize,
}

/// The configured bounds on connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Of clients; `None` for the default.
    pub(super) clients: Option<usize>,
    /// Of other proxies that ask for checks.
    pub(super) checks: usize,
    /// Of callers of the limiter service.
    pub(super) calls: usize,
    /// Of and to other replicas, and of callers of the limiter service that are not open yet.
    pub(super) peers: usize,
}

impl DescriptorBudget {
    /// Raises the soft limit to the hard limit, and divides the descriptors.
    pub(super) fn take(workers: usize, wanted: Wanted) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
        let descriptors = limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self::of(descriptors, workers, wanted)
    }

    fn of(descriptors: usize, workers: usize, wanted: Wanted) -> Self {
        let beside = (descriptors.saturating_sub(SCARCE) / 8).min(RESERVED_BESIDE);
        let reserved = RESERVED + workers.saturating_mul(RESERVED_BY_WORKER) + beside;
        let most = descriptors.saturating_sub(reserved) / CHECKS_PART;
        let (checks, calls) = (wanted.checks.min(most), wanted.calls.min(most));
        let reserved = reserved + checks + calls + wanted.peers.min(most);
        // A client's connection may need one to the upstream.
        let most = (descriptors.saturating_sub(reserved) / 2).max(1);
        let clients = wanted.clients.unwrap_or(CLIENTS_USUAL).min(most);
        let upstreams = descriptors.saturating_sub(reserved + clients).clamp(1, UPSTREAMS_MOST);
        let operators = (beside * 2 / 3).clamp(OPERATORS_MIN, CONNECTIONS_MAX);
        Self { clients, checks, calls, upstreams, operators }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_shared_out() {
        // Descriptors, workers, wanted connections and checks; connections of clients, of checks, to upstreams and of
        // operators.
        for (descriptors, workers, wanted, wanted_checks, clients, checks, upstreams, operators) in [
            (1, 2, None, 0, 1, 0, 1, 8),
            (64, 2, None, 0, 8, 0, 8, 8),
            (64, 2, Some(7), 0, 7, 0, 9, 8),
            (64, 2, Some(9), 0, 8, 0, 8, 8),
            (64, 2, None, 1000, 6, 4, 6, 8),
            (256, 2, None, 0, 92, 0, 92, 16),
            (400, 2, None, 0, 155, 0, 155, 28),
            (1024, 2, None, 0, 440, 0, 440, 64),
            (1024, 2, Some(10_000), 0, 440, 0, 440, 64),
            (1024, 2, Some(100), 0, 100, 0, 780, 64),
            (1024, 2, None, 10, 435, 10, 435, 64),
            (1024, 2, None, 1000, 330, 220, 330, 64),
            (20_000, 2, None, 0, 9_928, 0, 9_928, 64),
            (65_536, 4, None, 0, 10_000, 0, 55_376, 64),
            (65_536, 4, None, 1000, 10_000, 1000, 54_376, 64),
            (65_536, 4, Some(30_000), 0, 30_000, 0, 35_376, 64),
            (usize::MAX, 1024, None, 0, 10_000, 0, 65_536, 64),
        ] {
            let wanted = Wanted { clients: wanted, checks: wanted_checks, ..Wanted::default() };
            let shares = DescriptorBudget::of(descriptors, workers, wanted);
            let expected = DescriptorBudget { clients, checks, calls: 0, upstreams, operators };
            assert_eq!(shares, expected, "{descriptors} {workers} {wanted:?}");
        }
        let wanted = Wanted { clients: None, checks: 1000, calls: 1000, peers: 0 };
        let expected = DescriptorBudget { clients: 220, checks: 220, calls: 220, upstreams: 220, operators: 64 };
        assert_eq!(DescriptorBudget::of(1024, 2, wanted), expected);
        let expected =
            DescriptorBudget { clients: 10_000, checks: 1000, calls: 1000, upstreams: 27_856, operators: 64 };
        assert_eq!(DescriptorBudget::of(40_000, 2, wanted), expected);
        let wanted = Wanted { peers: 164, ..Wanted::default() };
        let expected = DescriptorBudget { clients: 10_000, checks: 0, calls: 0, upstreams: 29_692, operators: 64 };
        assert_eq!(DescriptorBudget::of(40_000, 2, wanted), expected);
    }
}
