//! Capacity for waiting requests over all limits: their number and the bytes that came of them, in all and of each client.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::policy::Facts;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::store::{ClientUsage, Usage};

/// Bounds on waiting requests over all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldCaps {
    /// Requests of all clients, and bytes of their heads.
    pub all: Usage,
    /// Requests of each client, and bytes of their heads.
    pub per_client: Usage,
}

/// The capacity that one request takes while it waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::gate) struct Footprint {
    pub(super) client: IpAddr,
    head_bytes: usize,
}

impl Footprint {
    /// The capacity for a request whose head has `head_bytes` bytes.
    pub(in crate::engine::gate) fn of(facts: &Facts<'_>, prefixes: Prefixes, head_bytes: usize) -> Self {
        Self { client: prefixes.network(facts.client_ip), head_bytes }
    }
}

/// The capacity that waiting requests take now.
#[derive(Debug, Default)]
pub(in crate::engine::gate) struct HoldCapacity {
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    clients: ClientUsage,
}

/// Capacity for one waiting request, released on drop.
#[derive(Debug)]
pub struct Reservation<'g> {
    capacity: &'g HoldCapacity,
    footprint: Footprint,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Footprint { client, head_bytes } = self.footprint;
        self.capacity.clients.remove(client, head_bytes);
        self.capacity.waiting.fetch_sub(1, Ordering::AcqRel);
        self.capacity.bytes.fetch_sub(head_bytes, Ordering::AcqRel);
    }
}

impl HoldCapacity {
    /// Requests that wait.
    pub(in crate::engine::gate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Reserves capacity within `caps`.
    pub(in crate::engine::gate) fn reserve(&self, footprint: Footprint, caps: HoldCaps) -> Option<Reservation<'_>> {
        let HoldCaps { all, per_client } = caps;
        let Footprint { client, head_bytes } = footprint;
        take(&self.waiting, 1, all.count)?;
        if take(&self.bytes, head_bytes, all.bytes).is_none() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        if !self.clients.add(client, head_bytes, per_client) {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.bytes.fetch_sub(head_bytes, Ordering::AcqRel);
            return None;
        }
        Some(Reservation { capacity: self, footprint })
    }

    /// Adds bytes that came of the body of a request of `client` while it waits. Returns `false`, and adds nothing, if
    /// that exceeds `caps`.
    pub(super) fn grow(&self, client: IpAddr, bytes: usize, caps: HoldCaps) -> bool {
        let fits_all = take(&self.bytes, bytes, caps.all.bytes).is_some();
        let fits = fits_all && self.clients.add_bytes(client, bytes, caps.per_client.bytes);
        if fits_all && !fits {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        fits
    }

    /// Removes bytes that [`HoldCapacity::grow`] added.
    pub(super) fn shrink(&self, client: IpAddr, bytes: usize) {
        self.clients.remove_bytes(client, bytes);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Whether [`HoldCapacity::reserve`] would succeed now.
    pub(super) fn fits(&self, footprint: Footprint, caps: HoldCaps) -> bool {
        let HoldCaps { all, per_client } = caps;
        let Footprint { client, head_bytes } = footprint;
        let bytes = self.bytes.load(Ordering::Acquire);
        self.waiting() < all.count
            && bytes.saturating_add(head_bytes) <= all.bytes
            && self.clients.fits(client, head_bytes, per_client)
    }

    /// Whether nothing is reserved, and no client is remembered.
    #[cfg(test)]
    pub(in crate::engine::gate) fn is_empty(&self) -> bool {
        (self.waiting(), self.bytes.load(Ordering::Acquire)) == (0, 0) && self.clients.is_empty()
    }
}

/// Adds `amount` to `total` unless the sum exceeds `max`.
fn take(total: &AtomicUsize, amount: usize, max: usize) -> Option<()> {
    let add = |now: usize| now.checked_add(amount).filter(|sum| *sum <= max);
    total.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok().map(|_| ())
}
