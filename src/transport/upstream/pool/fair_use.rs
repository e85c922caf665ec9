//! How much of an upstream's capacity each client uses: pure arithmetic and counting.
//!
//! A client may use three quarters of what other clients leave, so that the next client finds something. The operator chose
//! the capacity, so a client alone gets most of it; the process ceiling (`ceiling.rs`) is stricter. An upstream whose
//! capacity is not smaller than the ceiling needs no counts of its own.

use std::collections::HashMap;
use std::net::IpAddr;

/// The active requests of one upstream.
#[derive(Debug, Default)]
pub(crate) struct FairUse {
    /// Requests that the upstream can have at once; none if nothing is counted.
    capacity: Option<usize>,
    active: usize,
    by_client: HashMap<IpAddr, usize>,
}

impl FairUse {
    /// Sets the capacity, which a reload or a lookup may change.
    pub(crate) fn set_capacity(&mut self, capacity: Option<usize>) {
        self.capacity = capacity;
    }

    /// Whether `client` may begin one more request; none is a client that is not counted.
    pub(crate) fn allows(&self, client: Option<IpAddr>) -> bool {
        let (Some(capacity), Some(client)) = (self.capacity, client) else { return true };
        is_within_part(self.by_client.get(&client).copied().unwrap_or(0), self.active, capacity)
    }

    /// The requests that can begin on so many connections; 0 if `client` may have no more, or if nothing is counted.
    pub(crate) fn free(&self, client: Option<IpAddr>, connections: usize) -> usize {
        let capacity = self.capacity.filter(|_| self.allows(client));
        capacity.map_or(0, |capacity| capacity.min(connections).saturating_sub(self.active))
    }

    /// Counts a request. [`FairUse::end`] must follow.
    pub(crate) fn begin(&mut self, client: Option<IpAddr>) {
        self.active += 1;
        if let Some(client) = client {
            *self.by_client.entry(client).or_default() += 1;
        }
    }

    /// Ends the count of a request.
    pub(crate) fn end(&mut self, client: Option<IpAddr>) {
        self.active = self.active.saturating_sub(1);
        let Some(client) = client else { return };
        if let Some(active) = self.by_client.get_mut(&client) {
            *active -= 1;
            if *active == 0 {
                self.by_client.remove(&client);
            }
        }
    }
}

/// Whether a client that uses `own` of `used` may use one more of `capacity`: always the first, else as long as it has less
/// than three quarters, rounded up, of what others leave.
pub(crate) fn is_within_part(own: usize, used: usize, capacity: usize) -> bool {
    let left_by_others = capacity.saturating_sub(used.saturating_sub(own));
    own == 0 || own < left_by_others.saturating_mul(3).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests that each of `clients` has when all begin as many as they may, one after another.
    fn used(capacity: Option<usize>, clients: &[u8]) -> Vec<usize> {
        let mut fair_use = FairUse::default();
        fair_use.set_capacity(capacity);
        let fill = |client: &u8| {
            let client = Some(IpAddr::from([10, 0, 0, *client]));
            let mut count = 0;
            while count < 1000 && fair_use.allows(client) {
                fair_use.begin(client);
                count += 1;
            }
            count
        };
        let used = clients.iter().map(fill).collect();
        assert!(fair_use.allows(None), "a client that is not counted");
        used
    }

    #[test]
    fn a_greedy_client_leaves_capacity_to_others() {
        for (capacity, clients, expected) in [
            (None, &[1][..], &[1000][..]),
            (Some(1), &[1, 2], &[1, 1]),
            (Some(2), &[1, 2], &[2, 1]),
            (Some(4), &[1, 2], &[3, 1]),
            (Some(10), &[1, 2, 3], &[8, 2, 1]),
            (Some(100), &[1, 2, 3], &[75, 19, 5]),
        ] {
            assert_eq!(used(capacity, clients), expected, "{capacity:?}");
        }
    }

    #[test]
    fn no_count_remains() {
        let mut fair_use = FairUse::default();
        fair_use.set_capacity(Some(2));
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        fair_use.begin(client);
        fair_use.begin(None);
        assert!(!fair_use.allows(client), "1 of 2 is left, and the client has it");
        fair_use.end(None);
        fair_use.end(client);
        assert!(fair_use.allows(client) && fair_use.active == 0 && fair_use.by_client.is_empty());
    }
}
