//! Bodies of requests that wait: for a limit, or for the body itself, which limits read before they decide.

use std::net::IpAddr;

use super::capacity::Reservation;
use crate::engine::gate::state::{Gate, Live};
use crate::engine::policy::Facts;

/// The bytes that have come of a body since its request waits for a limit. They take capacity until this is dropped.
#[derive(Debug)]
pub struct BodyGrowth<'g> {
    gate: &'g Gate,
    live: &'g Live,
    client: IpAddr,
    bytes: usize,
}

impl Gate {
    /// Reserves capacity for a request that waits for `bytes` of its body, as for one that a limit holds. `None` if its
    /// client, or all clients together, have no more.
    #[cold]
    pub fn reserve_body(&self, live: &Live, facts: &Facts<'_>, bytes: usize) -> Option<Reservation<'_>> {
        let reservation = self.capacity.reserve(live.footprint(facts, bytes), live.caps);
        if reservation.is_none() {
            self.metrics.hold_overflow.inc();
        }
        reservation
    }

    /// The growth of the body of a request that waits from now on.
    pub fn body_growth<'g>(&'g self, live: &'g Live, facts: &Facts<'_>) -> BodyGrowth<'g> {
        BodyGrowth { gate: self, live, client: live.footprint(facts, 0).client, bytes: 0 }
    }
}

impl BodyGrowth<'_> {
    /// Counts `bytes` in all. Returns `false`, and counts no more, if its client, or all clients together, have no
    /// capacity for them.
    #[must_use]
    pub fn reach(&mut self, bytes: usize) -> bool {
        let Self { gate, live, client, bytes: before } = self;
        let more = bytes.saturating_sub(*before);
        if more == 0 {
            return true;
        }
        let fits = gate.capacity.grow(*client, more, live.caps);
        if fits {
            *before = bytes;
        } else {
            gate.metrics.hold_overflow.inc();
        }
        fits
    }
}

impl Drop for BodyGrowth<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.gate.capacity.shrink(self.client, self.bytes);
        }
    }
}
