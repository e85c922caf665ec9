//! File descriptors: as many as the system gives, and no more connections than they suffice for.
//!
//! Clients that take them all would leave none for the upstream, so that everybody gets 502, and none for operators.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a process needs beside its connections, and what each worker does.
const RESERVED: usize = 32;
const RESERVED_BY_WORKER: usize = 8;
/// A client's connection and the upstream's.
const PER_CONNECTION: usize = 2;

/// Raises the soft limit to the hard one, and gives the connections that fit under it; at least one.
pub(super) fn connections_that_fit(workers: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    let descriptors = limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let reserved = RESERVED + workers.saturating_mul(RESERVED_BY_WORKER);
    (descriptors.saturating_sub(reserved) / PER_CONNECTION).max(1)
}
