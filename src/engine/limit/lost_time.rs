//! The time that the refunds of a bucket have lost.
//!
//! A full bucket gains nothing with time. If a charge is given back, the bucket would have been full for a while without
//! the charge, and that while is lost: the refund returns the charge less the units of that time. This is never longer
//! than the time since the charge. Time that an earlier refund has lost already is not lost again. So refunds in any order
//! lose together no more than the time that has passed.
//!
//! The lost time is one span. A refund whose charge is newer than the span begins another one, and forgets the span: then
//! refunds of older charges may lose some time twice.
//!
//! Units that were given back without a receipt fill a bucket at once, not with time. So the time since a charge says
//! nothing if that happened later.
//!
//! Not here: what a bucket knows by itself of the units of a charge (`token_bucket`).
//!
//! **Proof.** Let `K` be the charges that are not given back. By Lindley (1952) a bucket of these charges owes
//! `A(t) - t + U(t)`: `A` is the time of all charges until `t`, and `U(t)` the time for which it was full, which is the
//! greatest `s - A(s)` of all `s <= t`. A state owes `A(t) - t + V`, and the span is so that for every `s`
//! `V - (lost time after s) >= U(s)`. A refund of a charge of `a` that loses `l` changes `V` by `l`. `U(s)` stays for
//! `s < a`, and grows by at most `s - a` or the units of the charge for later `s`. So this holds again if the first part of
//! the time after `a` that was not lost, of the length `l`, is lost now.

use crate::base::time::Timestamp;

/// The lost time of one bucket: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostTime {
    from: Timestamp,
    /// Not before `from`.
    until: Timestamp,
    /// When units were given back without a receipt last.
    settled_at: Timestamp,
}

impl LostTime {
    /// The nanoseconds that the refund of a charge of `at` loses, at most `most_ns`. They are lost from now on.
    pub fn lose(&mut self, at: Timestamp, most_ns: u64, now: Timestamp) -> u64 {
        if at <= self.settled_at {
            return most_ns;
        }
        let known_ns = self.until.min(now).ns_since(self.from.max(at));
        let lost_ns = now.ns_since(at).saturating_sub(known_ns).min(most_ns);
        self.add(at, lost_ns);
        lost_ns
    }

    /// Adds time after `at`.
    fn add(&mut self, at: Timestamp, lost_ns: u64) {
        let gap_ns = self.from.ns_since(at);
        if lost_ns == 0 {
            return;
        }
        if at > self.until || self.from == self.until {
            (self.from, self.until) = (at, at.saturating_add_ns(lost_ns));
        } else if lost_ns >= gap_ns {
            self.from = self.from.min(at);
            self.until = self.until.saturating_add_ns(lost_ns - gap_ns);
        }
    }

    /// Notes that units were given back without a receipt.
    pub fn settled(&mut self, now: Timestamp) {
        self.settled_at = self.settled_at.max(now);
    }

    /// Forgets which time was lost. A refund may lose it again.
    pub fn forget(&mut self) {
        (self.from, self.until) = (Timestamp::ZERO, Timestamp::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(1_000 + ns)
    }

    /// Refunds one after another: the instant of the charge, the most that is lost, the present, and the time that is lost.
    #[test]
    fn time_is_lost_once() {
        let rows: &[&[(u64, u64, u64, u64)]] = &[
            &[(0, 100, 10, 10), (0, 100, 10, 0), (2, 100, 10, 0), (2, 100, 15, 5), (0, 100, 15, 0)],
            // A charge that is older than the span.
            &[(10, 100, 20, 10), (4, 100, 20, 6), (4, 100, 21, 1)],
            // The first part of the time is lost if that is enough.
            &[(0, 4, 10, 4), (0, 4, 10, 4), (0, 4, 10, 2), (0, 4, 10, 0)],
            // Too little to reach the span: it is lost again.
            &[(10, 100, 20, 10), (0, 4, 20, 4), (0, 100, 20, 10)],
            // A newer span replaces an older one.
            &[(0, 100, 10, 10), (20, 100, 25, 5), (0, 100, 25, 20)],
            // A thread whose present is a little earlier.
            &[(0, 100, 10, 10), (0, 100, 9, 0), (5, 100, 4, 0)],
        ];
        for row in rows {
            let mut lost = LostTime::default();
            for (charged, most_ns, now, expected) in *row {
                assert_eq!(lost.lose(at(*charged), *most_ns, at(*now)), *expected, "{charged} at {now} of {row:?}");
            }
        }
    }

    #[test]
    fn a_settlement_says_nothing_about_earlier_charges() {
        let mut lost = LostTime::default();
        lost.settled(at(5));
        lost.settled(at(4));
        assert_eq!([4, 5, 6].map(|charged| lost.lose(at(charged), 100, at(7))), [100, 100, 1]);
        lost.forget();
        assert_eq!([5, 6].map(|charged| lost.lose(at(charged), 100, at(7))), [100, 1]);
    }
}
