//! Whether a client keeps up a rate, window by window, while it is the one that is waited for.
//!
//! A window begins when the wait does, and another one after it; in each there have to be so many bytes. What comes at
//! once counts for its own window only, so that nobody saves up for a long silence. While somebody else is waited for,
//! there is no window.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use crate::time;

/// A rate that is kept up, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// How long it is measured at a time.
    pub window: Duration,
}

/// One direction of one body.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since: Option<Instant>,
    bytes: u64,
}

impl MinRate {
    /// What has to move in a window.
    fn bytes(self) -> u64 {
        let bytes = u128::from(self.bytes_per_s) * self.window.as_millis() / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    /// How long so many bytes may take, if that is longer than a window.
    pub(crate) fn time_for(self, bytes: usize) -> Duration {
        let ms = (bytes as u64).saturating_mul(1000) / self.bytes_per_s.max(1);
        Duration::from_millis(ms).max(self.window)
    }
}

impl Pace {
    /// So many bytes have moved.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Nobody waits for the client.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }

    /// The client is waited for. Gives when to look again; none if it has been too slow.
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

    /// Ready at `at`, or when the client, who is waited for, has been too slow for `rate`.
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

    /// What is said of a client that has moved so many bytes at these seconds, and is waited for from then on.
    fn check(moves: &[(u64, u64)], expected: &[Option<u64>]) {
        let (began, mut pace) = (time::instant_now(), Pace::default());
        let at = |s: u64| began + Duration::from_secs(s);
        let told: Vec<_> = moves
            .iter()
            .map(|&(s, bytes)| {
                pace.moved(bytes);
                pace.wait(at(s), RATE).map(|by| (by - began).as_secs())
            })
            .collect();
        assert_eq!(told, expected, "{moves:?}");
    }

    #[test]
    fn each_window_has_to_be_filled() {
        check(&[(0, 0), (9, 0), (10, 0)], &[Some(10), Some(10), None]);
        check(&[(0, 0), (9, 999), (10, 0)], &[Some(10), Some(10), None]);
        check(&[(0, 0), (9, 999), (10, 1)], &[Some(10), Some(10), Some(20)]);
        // A window begins when it is looked at, and what came before it does not count for it.
        check(&[(0, 1_000_000), (12, 0), (21, 999), (22, 0)], &[Some(10), Some(22), Some(22), None]);
    }

    #[test]
    fn a_rest_begins_anew() {
        let (began, mut pace) = (time::instant_now(), Pace::default());
        assert_eq!(pace.wait(began, RATE), Some(began + RATE.window));
        pace.rest();
        let later = began + Duration::from_mins(1);
        assert_eq!(pace.wait(later, RATE), Some(later + RATE.window));
        assert_eq!(pace.wait(later + RATE.window, RATE), None);
    }

    #[test]
    fn a_piece_has_a_window_or_longer() {
        for (bytes, expected_s) in [(0, 10), (1000, 10), (1001, 10), (2000, 20), (16_384, 163)] {
            assert_eq!(RATE.time_for(bytes).as_secs(), expected_s, "{bytes}");
        }
        let smallest = MinRate { bytes_per_s: 1, window: Duration::from_millis(1) };
        assert_eq!(smallest.bytes(), 1);
    }

    proptest! {
        /// Who sends at the rate all the time is never too slow, however it is looked at; who sends half of it is.
        #[test]
        fn the_rate_is_what_counts(steps_ms in prop::collection::vec(1_u64..2000, 40..80)) {
            for (share, expected) in [(1000, true), (400, false)] {
                let (mut now, mut pace, mut kept) = (time::instant_now(), Pace::default(), true);
                pace.wait(now, RATE);
                let mut owed = 0;
                for step_ms in &steps_ms {
                    now += Duration::from_millis(*step_ms);
                    owed += step_ms * RATE.bytes_per_s * share;
                    pace.moved(owed / 1_000_000);
                    owed %= 1_000_000;
                    // A byte that is under way at the end of a window is not there yet.
                    pace.moved(u64::from(share == 1000));
                    kept &= pace.wait(now, RATE).is_some();
                }
                let all_ms: u64 = steps_ms.iter().sum();
                prop_assert_eq!(kept, expected || all_ms < 10_000);
            }
        }
    }
}
