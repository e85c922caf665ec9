//! Requests that wait for their bodies, which limits read before they decide.

use super::capacity::Reservation;
use crate::engine::gate::state::{Gate, Live};
use crate::engine::policy::Facts;

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
}
