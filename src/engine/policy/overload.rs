//! The bounds of `[overload]`: beyond one of them, requests of low priority are shed.

/// The bounds; at least one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// CPU time in use, in percent of what the machine and the cgroup of the process have.
    pub cpu_percent: Option<u8>,
    /// Requests at services, or in wait for a connection to one.
    pub in_flight: Option<usize>,
    /// The wait of the oldest request that waits for a connection to its service, in nanoseconds.
    pub queue_delay_ns: Option<u64>,
}
