//! Sheds requests of low priority under overload, so that others are served.
//!
//! A request is shed at random, so that no client is shed again and again, and before any limit of its stage is charged. It
//! is shed only once all that it must prove is verified: a 401, or a 403 of an access list, never becomes a 503. A ban by a
//! limit of the stage is part of the limit's decision, so its 403 may.

use std::sync::atomic::Ordering;

use super::overload::{Level, shed_permille};
use super::refusal::RetryJitter;
use super::state::Gate;
use crate::engine::limit::Retry;
use crate::engine::policy::Priority;

/// A request that is shed.
#[derive(Clone, Copy, Debug)]
pub struct Shed {
    /// Its priority.
    pub priority: Priority,
    /// Seconds until its client should retry.
    pub wait_s: u64,
    /// The time beyond that.
    pub jitter: RetryJitter,
}

impl Gate {
    /// Sets the level of shedding, and returns the level before.
    pub fn set_overload(&self, level: Level) -> Level {
        self.overload.swap(level, Ordering::Relaxed)
    }

    /// Whether some requests may be shed.
    pub(super) fn is_overloaded(&self) -> bool {
        self.overload.load(Ordering::Relaxed) > 0
    }

    /// Sheds a request of this priority, or not.
    pub(super) fn draw_shed(&self, priority: Priority) -> Option<Shed> {
        let bits = self.jitter.bits();
        if bits % 1000 >= shed_permille(self.overload.load(Ordering::Relaxed), priority) {
            return None;
        }
        let wait_s: u64 = if priority == Priority::Background { 10 } else { 2 };
        let jitter = RetryJitter::of(100, Retry::AfterNs(wait_s * 1_000_000_000), bits);
        Some(Shed { priority, wait_s, jitter })
    }
}
