//! The time that all replicas of an etcd share: an offset to the clock of this process.
//!
//! etcd orders transactions and has no clock for them. So the time of the first replica counts. It is kept in one key, which
//! exists as long as a replica does, and in each counter. A newcomer takes the time over. After that a replica only ever
//! moves forward, to a later time that another one has written, so all follow the one that is ahead by some milliseconds.
//!
//! Pure. Not here: the key (`monitor`).

use std::sync::atomic::{AtomicI64, Ordering};

use crate::base::time::Timestamp;

/// The difference that is worth a warning.
const WARNED_NS: u64 = 1_000_000_000;

/// Before the time of the others is known.
const UNKNOWN: i64 = i64::MIN;

/// The offset of the shared time.
#[derive(Debug)]
pub(super) struct SharedClock {
    /// Nanoseconds by which the shared time is ahead of the clock of this process; [`UNKNOWN`] at first.
    ahead_ns: AtomicI64,
    /// The offset of the last warning.
    warned_ns: AtomicI64,
}

impl Default for SharedClock {
    fn default() -> Self {
        Self { ahead_ns: AtomicI64::new(UNKNOWN), warned_ns: AtomicI64::new(0) }
    }
}

impl SharedClock {
    /// Nanoseconds by which the shared time is ahead of the clock of this process.
    pub(super) fn ahead_ns(&self) -> i64 {
        match self.ahead_ns.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            ahead_ns => ahead_ns,
        }
    }

    /// The shared time at `own` by the clock of this process.
    pub(super) fn at(&self, own: Timestamp) -> Timestamp {
        Timestamp::from_ns(own.as_ns().saturating_add_signed(self.ahead_ns()))
    }

    /// The time by the clock of this process at a shared time.
    pub(super) fn own(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_ns(at.as_ns().saturating_add_signed(self.ahead_ns().saturating_neg()))
    }

    /// Another replica has written the time `seen`, which this one reads at `own`. The first such time may be earlier.
    pub(super) fn follow(&self, seen: Timestamp, own: Timestamp) {
        let ahead_ns = i64::try_from(i128::from(seen.as_ns()) - i128::from(own.as_ns())).unwrap_or(i64::MAX);
        self.ahead_ns.fetch_max(ahead_ns, Ordering::Relaxed);
    }

    /// Counts the own clock if there is no other.
    pub(super) fn begin(&self) {
        let _ = self.ahead_ns.compare_exchange(UNKNOWN, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The offset, if it differs by much from that of the last warning.
    pub(super) fn to_warn(&self) -> Option<i64> {
        let (now_ns, warned_ns) = (self.ahead_ns(), self.warned_ns.load(Ordering::Relaxed));
        (now_ns.abs_diff(warned_ns) >= WARNED_NS).then(|| self.warned_ns.store(now_ns, Ordering::Relaxed))?;
        Some(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ns((1_000_000 + seconds).unsigned_abs() * SECOND.unsigned_abs())
    }

    /// What is read, by the own clock, and the offset in seconds that follows.
    #[test]
    fn time_is_taken_over_once_and_then_moves_forward() {
        let clock = SharedClock::default();
        assert_eq!((clock.at(at(0)), clock.to_warn()), (at(0), None));
        for (seen, own, ahead, is_warned) in [
            (-3600, 0, -3600, true),
            (-3601, 0, -3600, false),
            (-3590, 10, -3600, false),
            (-3589, 10, -3599, true),
            (20, 10, 10, true),
            (0, 10, 10, false),
        ] {
            clock.follow(at(seen), at(own));
            let expected = is_warned.then_some(ahead * SECOND);
            assert_eq!((clock.ahead_ns(), clock.to_warn()), (ahead * SECOND, expected), "{seen} at {own}");
            assert_eq!((clock.at(at(own)), clock.own(clock.at(at(own)))), (at(own + ahead), at(own)));
        }
        let first = SharedClock::default();
        first.begin();
        first.follow(at(-5), at(0));
        assert_eq!(first.ahead_ns(), 0, "the first replica has the time");
    }
}
