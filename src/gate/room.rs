//! Room for those who wait, over all limits: so many requests, and so many bytes of their heads, of all and of each client.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Gate, HoldCaps};
use crate::policy::Facts;
use crate::policy::client_ip::network;

/// The room that a request takes while it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    client: IpAddr,
    head_bytes: usize,
}

impl Size {
    /// Of a request whose head has so many bytes.
    pub(super) fn of(facts: &Facts<'_>, ipv6_prefix: u8, head_bytes: usize) -> Self {
        Self { client: network(facts.client_ip, ipv6_prefix), head_bytes }
    }
}

/// Room for one waiting request, given back on drop.
#[derive(Debug)]
pub(super) struct Reserved<'l> {
    gate: &'l Gate,
    size: Size,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.gate.release(self.size);
    }
}

impl Gate {
    pub(super) fn reserve(&self, size: Size, caps: HoldCaps) -> Option<Reserved<'_>> {
        let Size { client, head_bytes } = size;
        take(&self.waiting, 1, caps.all.count)?;
        if take(&self.waiting_bytes, head_bytes, caps.all.bytes).is_none() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        if !self.waiting_clients.enter(client, head_bytes, caps.per_client) {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.waiting_bytes.fetch_sub(head_bytes, Ordering::AcqRel);
            return None;
        }
        Some(Reserved { gate: self, size })
    }

    /// Whether [`Gate::reserve`] would find room by now.
    pub(super) fn has_room(&self, size: Size, caps: HoldCaps) -> bool {
        let waiting_bytes = self.waiting_bytes.load(Ordering::Acquire);
        self.waiting() < caps.all.count
            && waiting_bytes.saturating_add(size.head_bytes) <= caps.all.bytes
            && self.waiting_clients.has_room(size.client, size.head_bytes, caps.per_client)
    }

    fn release(&self, Size { client, head_bytes }: Size) {
        self.waiting_clients.leave(client, head_bytes);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(head_bytes, Ordering::AcqRel);
    }
}

/// Adds `amount` to `total` unless that exceeds `max`.
fn take(total: &AtomicUsize, amount: usize, max: usize) -> Option<()> {
    let add = |now: usize| now.checked_add(amount).filter(|sum| *sum <= max);
    total.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok().map(|_| ())
}
