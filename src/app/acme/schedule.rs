//! When the next order is due: a pure function of the certificate and of the failures.

use std::time::Duration;

use crate::base::time::{Timestamp, saturating_ns};

const SECOND_NS: u64 = 1_000_000_000;
/// Delay after the first failure. It doubles with each failure, up to `AGAIN_MAX_NS`.
const AGAIN_NS: u64 = 60 * SECOND_NS;
const AGAIN_MAX_NS: u64 = 12 * 3600 * SECOND_NS;
/// The longest delay that an authority can ask for: the window of the limits of Let's Encrypt.
const ASKED_MAX_NS: u64 = 7 * 24 * 3600 * SECOND_NS;

/// Decides when the next order is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RenewalSchedule {
    /// Consecutive failures.
    failures: u32,
    /// No order before this by the clock of the process, which goes on evenly when the date of the system is set.
    not_before: Timestamp,
}

impl RenewalSchedule {
    /// Nanoseconds until the next order. A certificate is renewed after two thirds of its life, less a random part of up to
    /// a twentieth, so that replicas differ; `random` is a random number. Without a certificate an order is due at once.
    /// `date` is that of the system, and `now` the time of the clock of the process.
    pub(super) fn until_due(
        &self,
        valid: Option<[Timestamp; 2]>,
        random: u64,
        (date, now): (Timestamp, Timestamp),
    ) -> u64 {
        let renewal = valid.map_or(Timestamp::ZERO, |[from, to]| {
            let life = to.ns_since(from);
            from.saturating_add_ns(life / 3 * 2).saturating_sub_ns(part(life / 20, random))
        });
        renewal.ns_since(date).max(self.not_before.ns_since(now))
    }

    /// Records a certificate at `now`. The next order is not before a third of its life, so that a wrong date of this
    /// machine, on which each certificate seems to be due, does not order again and again.
    pub(super) fn succeeded(&mut self, now: Timestamp, [from, to]: [Timestamp; 2]) {
        let pause = (to.ns_since(from) / 3).max(SECOND_NS);
        *self = Self { failures: 0, not_before: now.saturating_add_ns(pause) };
    }

    /// Records a failure at `now`. `asked` is the delay that the authority asks for. A random part of up to a quarter is
    /// added to the delay.
    pub(super) fn failed(&mut self, now: Timestamp, asked: Option<Duration>, random: u64) {
        let delay = AGAIN_NS.saturating_mul(1 << self.failures.min(10)).min(AGAIN_MAX_NS);
        let asked = asked.map_or(0, saturating_ns).min(ASKED_MAX_NS);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add_ns(delay.max(asked)).saturating_add_ns(part(delay / 4, random));
    }

    /// Waits for another process that has the folder, which is no failure.
    pub(super) fn wait(&mut self, now: Timestamp) {
        self.not_before = now.saturating_add_ns(AGAIN_NS);
    }
}

/// The part of `whole` that a random number stands for.
fn part(whole: u64, random: u64) -> u64 {
    u64::try_from((u128::from(whole) * u128::from(random)) >> 64).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    fn at(s: u64) -> Timestamp {
        Timestamp::from_ns(s * SECOND_NS)
    }

    /// Nanoseconds until the next order, while the date of the system and the clock of the process agree.
    fn until_due(schedule: &RenewalSchedule, valid: Option<[Timestamp; 2]>, random: u64, now: Timestamp) -> u64 {
        schedule.until_due(valid, random, (now, now))
    }

    #[test]
    fn certificates_are_renewed_after_two_thirds_of_their_life() {
        // valid from, to, random, due
        for (from, to, random, due) in [
            (0, 90 * 24 * HOUR, 0, 60 * 24 * HOUR),
            (0, 90 * 24 * HOUR, u64::MAX, 60 * 24 * HOUR - 108 * HOUR),
            (0, 90 * 24 * HOUR, 1 << 63, 60 * 24 * HOUR - 54 * HOUR),
            (1000, 1060, 0, 1040),
            // Never valid.
            (1000, 900, 0, 1000),
        ] {
            let due_ns = until_due(&RenewalSchedule::default(), Some([at(from), at(to)]), random, at(0));
            assert!(due_ns.abs_diff(at(due).as_ns()) <= 2, "{from} {to} {random}: {due_ns}");
        }
        assert_eq!(until_due(&RenewalSchedule::default(), None, u64::MAX, at(0)), 0);
    }

    /// Follows a schedule through failures in virtual time: each at the time that the one before made due.
    #[test]
    fn failures_wait_ever_longer() {
        let (mut schedule, mut now, mut delays) = (RenewalSchedule::default(), at(1_000_000), Vec::new());
        for _ in 0..12 {
            schedule.failed(now, None, 0);
            let delay_ns = until_due(&schedule, None, 0, now);
            delays.push(delay_ns / SECOND_NS / 60);
            now = now.saturating_add_ns(delay_ns);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720]);
        schedule.succeeded(now, [now, now]);
        schedule.failed(now, None, 0);
        assert_eq!(until_due(&schedule, None, 0, now), AGAIN_NS);
    }

    /// By a date that is a year late or early, each new certificate seems to be due, or due much later.
    #[test]
    fn a_wrong_date_orders_once_in_a_third_of_a_life() {
        let (life, year) = (90 * 24 * HOUR, 365 * 24 * HOUR);
        // issued, date of this machine, due
        for (issued, now, due) in [
            (year, year, year + life / 3 * 2),
            (year, 2 * year, 2 * year + life / 3),
            (2 * year, year, 2 * year + life / 3 * 2),
        ] {
            let (mut schedule, valid) = (RenewalSchedule::default(), [at(issued), at(issued + life)]);
            schedule.succeeded(at(now), valid);
            assert_eq!(until_due(&schedule, Some(valid), 0, at(now)), at(due - now).as_ns(), "{issued} {now}");
        }
        let mut schedule = RenewalSchedule::default();
        schedule.succeeded(at(year), [at(year), at(0)]);
        assert_eq!(until_due(&schedule, Some([at(year), at(0)]), 0, at(year)), SECOND_NS, "one that is never valid");
    }

    /// The date of the system was ahead at an order, and is right again when the pause after it has passed.
    #[test]
    fn a_date_that_goes_back_delays_no_order() {
        let (life, year) = (90 * 24 * HOUR, 365 * 24 * HOUR);
        for ahead in [8 * HOUR, 10 * year] {
            // The dates of the system at the order and a minute later. The clock of the process follows the first.
            let (wrong, right) = (at(year + ahead), at(year + 60));
            let minute_later = at(year + ahead + 60);
            let mut schedule = RenewalSchedule::default();
            schedule.failed(wrong, None, 0);
            assert_eq!(schedule.until_due(None, 0, (right, minute_later)), 0, "failed, {ahead}");
            schedule.wait(wrong);
            assert_eq!(schedule.until_due(None, 0, (right, minute_later)), 0, "waited, {ahead}");
            let valid = [at(year), at(year + life)];
            schedule.succeeded(wrong, valid);
            let third_later = at(year + ahead + life / 3);
            let until_ns = schedule.until_due(Some(valid), 0, (at(year + life / 3), third_later));
            assert_eq!(until_ns, life / 3 * SECOND_NS, "succeeded, {ahead}");
        }
    }

    #[test]
    fn an_authority_can_ask_for_a_longer_delay() {
        // asked, random, delay
        for (asked, random, delay) in [
            (0, 0, 60),
            (59, 0, 60),
            (3600, 0, 3600),
            (3600, u64::MAX, 3615),
            (0, u64::MAX, 75),
            (30 * 24 * HOUR, 0, 7 * 24 * HOUR),
        ] {
            let mut schedule = RenewalSchedule::default();
            schedule.failed(at(1000), Some(Duration::from_secs(asked)), random);
            let delay_ns = until_due(&schedule, None, 0, at(1000));
            assert!(delay_ns.abs_diff(delay * SECOND_NS) <= 1, "{asked} {random}: {delay_ns}");
        }
    }

    /// A failure delays the renewal of a certificate, but a renewal that is due later stays later.
    #[test]
    fn a_failure_delays_only_what_is_due() {
        let mut schedule = RenewalSchedule::default();
        schedule.failed(at(1000), None, 0);
        assert_eq!(until_due(&schedule, Some([at(0), at(300)]), 0, at(1000)), 60 * SECOND_NS);
        assert_eq!(until_due(&schedule, Some([at(1000), at(4000)]), 0, at(1000)), 2000 * SECOND_NS);
        schedule.wait(at(2000));
        assert_eq!(until_due(&schedule, None, 0, at(2000)), 60 * SECOND_NS);
    }
}
