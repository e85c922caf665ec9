//! Room for those who wait, over all limits: so many requests, and so many bytes of their heads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Gate, HoldCaps};

/// Room for one waiting request, given back on drop.
#[derive(Debug)]
pub(super) struct Reserved<'l> {
    gate: &'l Gate,
    head_bytes: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.gate.release(self.head_bytes);
    }
}

impl Gate {
    pub(super) fn reserve(&self, head_bytes: usize, caps: HoldCaps) -> Option<Reserved<'_>> {
        take(&self.waiting, 1, caps.max_waiting)?;
        if take(&self.waiting_bytes, head_bytes, caps.max_waiting_bytes).is_none() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Reserved { gate: self, head_bytes })
    }

    fn release(&self, head_bytes: usize) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(head_bytes, Ordering::AcqRel);
    }
}

/// Adds `amount` to `total` unless that exceeds `max`.
fn take(total: &AtomicUsize, amount: usize, max: usize) -> Option<()> {
    let add = |now: usize| now.checked_add(amount).filter(|sum| *sum <= max);
    total.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok().map(|_| ())
}
