//! Measures whether a client keeps up a minimum rate, one window after another.
//!
//! A window begins when Weir begins to wait for the client, and another one follows it. Each window needs its own
//! bytes: a burst does not count for later windows. There is no window while Weir waits for the other side.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use crate::base::time;

/// A minimum rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Length of a window.
    pub window: Duration,
}

/// The progress of one direction of a body.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since: Option<Instant>,
    bytes: u64,
}

impl MinRate {
    /// Bytes that must move in a window; at least 1.
    fn bytes(self) -> u64 {
        let bytes = u128::from(self.bytes_per_s) * self.window.as_millis() / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }
}

impl Pace {
    /// Counts bytes that moved.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Ends the window: Weir does not wait for the client.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }

    /// Weir waits for the client at `now`. Returns the end of the window. None if the client was too slow.
    pub(crate) fn wait(&mut self, now: Instant, rate: MinRate) -> Option<Instant> {
        let mut since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= rate.window {
            if self.bytes < rate.bytes() {
                return None;
            }
            since = now;
            *self = Self { since: Some(now), bytes: 0 };
        }
        Some(since + rate.window)
    }

    /// Ready at `at`, or when the client was slower than `rate`. Weir waits for the client.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        at: Instant,
        rate: Option<MinRate>,
    ) -> Poll<()> {
        while let Some(rate) = rate {
            let Some(by) = self.wait(time::instant_now(), rate) else { return Poll::Ready(()) };
            if by >= at {
                break;
            }
            ready!(deadline.poll(cx, by));
        }
        deadline.poll(cx, at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: MinRate = MinRate { bytes_per_s: 100, window: Duration::from_secs(10) };

    /// Checks the ends of windows, in seconds, of a client that moves these bytes at these seconds.
    fn check(moves: &[(u64, u64)], expected: &[Option<u64>]) {
        let (began, mut pace) = (time::instant_now(), Pace::default());
        let at = |s: u64| began + Duration::from_secs(s);
        let ends: Vec<_> = moves
            .iter()
            .map(|&(s, bytes)| {
                pace.moved(bytes);
                pace.wait(at(s), RATE).map(|by| (by - began).as_secs())
            })
            .collect();
        assert_eq!(ends, expected, "{moves:?}");
    }

    #[test]
    fn each_window_has_to_be_filled() {
        check(&[(0, 0), (9, 0), (10, 0)], &[Some(10), Some(10), None]);
        check(&[(0, 0), (9, 999), (10, 0)], &[Some(10), Some(10), None]);
        check(&[(0, 0), (9, 999), (10, 1)], &[Some(10), Some(10), Some(20)]);
        // A window begins with the first wait; earlier bytes do not count for it.
        check(&[(0, 1_000_000), (12, 0), (21, 999), (22, 0)], &[Some(10), Some(22), Some(22), None]);
    }

    #[test]
    fn a_window_begins_again_after_a_rest() {
        let (began, mut pace) = (time::instant_now(), Pace::default());
        assert_eq!(pace.wait(began, RATE), Some(began + RATE.window));
        pace.rest();
        let later = began + Duration::from_mins(1);
        assert_eq!(pace.wait(later, RATE), Some(later + RATE.window));
        assert_eq!(pace.wait(later + RATE.window, RATE), None);
    }

    #[test]
    fn a_window_has_a_byte_at_least() {
        let smallest = MinRate { bytes_per_s: 1, window: Duration::from_millis(1) };
        assert_eq!(smallest.bytes(), 1);
    }

    proptest! {
        /// A client at the full rate is never too slow, and a client at 40 % of it is.
        #[test]
        fn only_the_rate_decides(steps_ms in prop::collection::vec(1_u64..2000, 40..80)) {
            for (permille, expected) in [(1000, true), (400, false)] {
                let (mut now, mut pace, mut kept) = (time::instant_now(), Pace::default(), true);
                pace.wait(now, RATE);
                let mut owed = 0;
                for step_ms in &steps_ms {
                    now += Duration::from_millis(*step_ms);
                    owed += step_ms * RATE.bytes_per_s * permille;
                    pace.moved(owed / 1_000_000);
                    owed %= 1_000_000;
                    // The last byte of a window may still be in flight.
                    pace.moved(u64::from(permille == 1000));
                    kept &= pace.wait(now, RATE).is_some();
                }
                let all_ms: u64 = steps_ms.iter().sum();
                prop_assert_eq!(kept, expected || all_ms < 10_000);
            }
        }
    }
}
