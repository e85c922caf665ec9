//! The difference between the clock of a peer and the own one, measured with messages that pass anyway.
//!
//! Each message has the time of its sender, which comes back with the time of the peer, as in NTP (RFC 5905, 8). The error
//! is at most half of the round trip, and grows with time because clocks drift. The measurement with the least error counts.

use super::message::{BanChange, Echo};
use crate::base::time::Timestamp;

/// The drift of a clock, one part in so many: 500 ppm, as NTP assumes at most.
const DRIFT: u64 = 2000;

/// The measured difference of clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skew {
    best: Option<Measured>,
    /// The time of the last message of the peer, and when it arrived.
    last: Option<(u64, Timestamp)>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    ahead_ns: i64,
    round_trip_ns: u64,
    at: Timestamp,
}

impl Skew {
    /// The time of the last message of the peer, for the peer.
    pub(super) fn echo(&self, now: Timestamp) -> Option<Echo> {
        self.last.map(|(sent_at, at)| Echo { sent_at, since_ns: now.ns_since(at) })
    }

    /// Notes a message that was sent at `sent_at` by the clock of the peer.
    pub(super) fn measure(&mut self, sent_at: u64, echo: Option<&Echo>, now: Timestamp) {
        self.last = Some((sent_at, now));
        let round_trip = |echo: &Echo| now.as_ns().checked_sub(echo.sent_at)?.checked_sub(echo.since_ns);
        let Some(round_trip_ns) = echo.and_then(round_trip) else { return };
        let error_ns = |best: &Measured| best.round_trip_ns / 2 + now.ns_since(best.at) / DRIFT;
        let is_better = |best: &Measured| round_trip_ns / 2 <= error_ns(best);
        if self.best.as_ref().is_none_or(is_better) {
            let there = i128::from(sent_at) + i128::from(round_trip_ns / 2);
            let ahead_ns = i64::try_from(there - i128::from(now.as_ns())).unwrap_or(i64::MAX);
            self.best = Some(Measured { ahead_ns, round_trip_ns, at: now });
        }
    }

    /// Nanoseconds by which the clock of the peer is ahead; `None` before it is known.
    pub(super) fn ahead_ns(&self) -> Option<i64> {
        self.best.map(|best| best.ahead_ns)
    }

    /// The changes of bans that the peer sent, with their ends by the own clock. Their stamps stay: replicas order changes by
    /// them.
    pub(super) fn bans(&self, bans: &[BanChange]) -> Vec<BanChange> {
        let ahead_ns = i128::from(self.ahead_ns().unwrap_or(0));
        let own = |ns: u64| match ns {
            0 => 0,
            ns => u64::try_from((i128::from(ns) - ahead_ns).max(1)).unwrap_or(u64::MAX),
        };
        let by_own_clock = |ban: &BanChange| {
            let (until, replaced_until) = (own(ban.until), own(ban.replaced_until));
            BanChange { until, replaced_until, ..ban.clone() }
        };
        bans.iter().map(by_own_clock).collect()
    }

    /// Nanoseconds since the clock of the peer showed `sent_at`; 0 before the difference is known.
    pub(super) fn since_ns(&self, sent_at: u64, now: Timestamp) -> u64 {
        let elapsed = |ahead_ns: i64| i128::from(now.as_ns()) + i128::from(ahead_ns) - i128::from(sent_at);
        self.ahead_ns().map_or(0, |ahead_ns| u64::try_from(elapsed(ahead_ns).max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Two clocks exchange messages; one takes `there_ms`, the answer `back_ms`.
    fn exchange(one: &mut Skew, other: &mut Skew, ahead_ms: u64, (there_ms, back_ms): (u64, u64), at_ms: u64) {
        let own = |ms: u64| Timestamp::from_ns(ms * MS);
        let others = |ms: u64| own(ms + ahead_ms);
        other.measure(own(at_ms).as_ns(), one.echo(own(at_ms)).as_ref(), others(at_ms + there_ms));
        let answered_ms = at_ms + there_ms + 7;
        let echo = other.echo(others(answered_ms));
        one.measure(others(answered_ms).as_ns(), echo.as_ref(), own(answered_ms + back_ms));
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let (mut one, mut other) = (Skew::default(), Skew::default());
        assert_eq!((one.ahead_ns(), one.since_ns(0, Timestamp::from_ns(MS))), (None, 0));
        for (at_ms, times, expected_ms) in [
            (1_000, (10, 10), 300),
            (2_000, (50, 10), 300), // a longer round trip, whose halves differ
            (3_000, (4, 2), 301),
            (40_000, (50, 10), 301), // the error of the best one has grown to 22 ms
            (90_000, (50, 10), 320),
        ] {
            exchange(&mut one, &mut other, 300, times, at_ms);
            assert_eq!(one.ahead_ns(), Some(expected_ms * 1_000_000), "{at_ms}");
        }
        assert!(other.ahead_ns().is_some_and(|ahead_ns| ahead_ns < 0), "the other clock is behind");
        let ban = |until_ms: u64, replaced_ms: u64| BanChange {
            at: 7,
            until: until_ms * MS,
            replaced_until: replaced_ms * MS,
            ..BanChange::default()
        };
        let sent = [ban(100_320, 0), ban(0, 0), ban(100_320, 200_320), ban(10, 0)];
        let heard = [ban(100_000, 0), ban(0, 0), ban(100_000, 200_000), BanChange { until: 1, ..ban(0, 0) }];
        assert_eq!((one.bans(&sent), Skew::default().bans(&sent)), (heard.into(), sent.clone().into()));
        let now = Timestamp::from_ns(100_000 * MS);
        assert_eq!(one.since_ns(100_120 * MS, now), 200 * MS);
        assert_eq!(one.since_ns(100_400 * MS, now), 0, "not before it was sent");
    }
}
