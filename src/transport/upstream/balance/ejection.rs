//! When an endpoint that keeps failing is ejected, and how it returns: pure functions.
//!
//! The state is one word, so that every worker can change it without a lock: the end of the ejection in milliseconds,
//! and the number of failures in a row.

use std::time::Duration;

/// `eject` of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row after which an endpoint is ejected.
    pub after: u16,
    /// How long the ejection lasts, and also how long the traffic takes to return to its full amount after it.
    pub duration: Duration,
}

/// The failures and the ejection of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ejection {
    /// The end of the ejection, in milliseconds; 0 if it was never ejected.
    until_ms: u64,
    /// Failures in a row.
    failures: u16,
}

/// The part of its usual traffic that an endpoint gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficFraction {
    Full,
    /// This many of 256 requests.
    Of256(u64),
    Nothing,
}

impl Eject {
    fn duration_ms(self) -> u64 {
        u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX >> 16).clamp(1, u64::MAX >> 18)
    }
}

impl Ejection {
    /// The inverse of [`Ejection::to_word`].
    pub(crate) fn from_word(word: u64) -> Self {
        Self { until_ms: word >> 16, failures: (word & 0xffff) as u16 }
    }

    /// Both numbers in one word.
    pub(crate) fn to_word(self) -> u64 {
        self.until_ms << 16 | u64::from(self.failures)
    }

    /// Whether it was ever ejected.
    pub(crate) fn was_ejected(self) -> bool {
        self.until_ms > 0
    }

    /// The end of the last ejection; none if it was never ejected.
    pub(crate) fn until(self) -> Option<Duration> {
        self.was_ejected().then(|| Duration::from_millis(self.until_ms))
    }

    /// The state after an answer.
    pub(crate) fn answered(self) -> Self {
        Self { failures: 0, ..self }
    }

    /// The state after a failure at `now_ms`, and whether that failure ejects the endpoint. While the traffic returns, one
    /// failure is enough. Failures during an ejection belong to earlier requests and do not count.
    pub(crate) fn failed(self, rule: Eject, now_ms: u64) -> (Self, bool) {
        let failures = self.failures.saturating_add(1);
        match self.traffic(rule, now_ms) {
            TrafficFraction::Nothing => (self, false),
            TrafficFraction::Full if failures < rule.after => (Self { failures, ..self }, false),
            _ => (Self { until_ms: now_ms.saturating_add(rule.duration_ms()), failures: 0 }, true),
        }
    }

    /// The state from `now_ms` under a changed `rule`: a running ejection lasts no longer than a new one.
    pub(crate) fn limited(self, rule: Eject, now_ms: u64) -> Self {
        Self { until_ms: self.until_ms.min(now_ms.saturating_add(rule.duration_ms())), ..self }
    }

    /// The traffic that it gets at `now_ms`.
    pub(crate) fn traffic(self, rule: Eject, now_ms: u64) -> TrafficFraction {
        let (duration_ms, until_ms) = (rule.duration_ms(), self.until_ms);
        if !self.was_ejected() {
            return TrafficFraction::Full;
        }
        match now_ms.checked_sub(until_ms) {
            None => TrafficFraction::Nothing,
            // It begins at 16 of 256, so that the endpoint is tried at all.
            Some(back_ms) if back_ms < duration_ms => TrafficFraction::Of256(16 + back_ms * 240 / duration_ms),
            Some(_) => TrafficFraction::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Eject = Eject { after: 3, duration: Duration::from_secs(10) };

    /// Rows: time, event, traffic afterwards. `F`: a failure that ejects; `f`: a failure that does not; `a`: an answer.
    #[test]
    fn an_ejected_endpoint_returns_gradually() {
        let mut ejection = Ejection::default();
        for (now_ms, event, traffic) in [
            (1000, "f", TrafficFraction::Full),
            (1001, "f", TrafficFraction::Full),
            (1002, "a", TrafficFraction::Full),
            (1003, "f", TrafficFraction::Full),
            (1004, "f", TrafficFraction::Full),
            (2000, "F", TrafficFraction::Nothing),
            (2001, "f", TrafficFraction::Nothing),
            (2002, "a", TrafficFraction::Nothing),
            (11_999, "", TrafficFraction::Nothing),
            (12_000, "", TrafficFraction::Of256(16)),
            (17_000, "a", TrafficFraction::Of256(136)),
            (21_999, "", TrafficFraction::Of256(255)),
            (22_000, "", TrafficFraction::Full),
            (22_001, "f", TrafficFraction::Full),
            (22_002, "f", TrafficFraction::Full),
            (22_003, "F", TrafficFraction::Nothing),
            (32_003, "a", TrafficFraction::Of256(16)),
            // It still fails.
            (32_004, "F", TrafficFraction::Nothing),
            (42_003, "", TrafficFraction::Nothing),
            (42_004, "", TrafficFraction::Of256(16)),
        ] {
            let is_ejected = match event {
                "a" => {
                    ejection = ejection.answered();
                    false
                }
                "" => false,
                _ => {
                    let (next, is_ejected) = ejection.failed(RULE, now_ms);
                    ejection = next;
                    is_ejected
                }
            };
            assert_eq!((is_ejected, ejection.traffic(RULE, now_ms)), (event == "F", traffic), "{now_ms}");
            assert_eq!(Ejection::from_word(ejection.to_word()), ejection);
        }
    }

    #[test]
    fn one_failure_can_be_enough_and_time_does_not_overflow() {
        let rule = Eject { after: 1, duration: Duration::MAX };
        let (ejection, is_ejected) = Ejection::default().failed(rule, 5);
        assert!(is_ejected);
        let ejection = Ejection::from_word(ejection.to_word());
        assert_eq!(ejection.traffic(rule, u64::MAX >> 20), TrafficFraction::Nothing);
        let shorter = Eject { after: 1, duration: Duration::from_secs(1) };
        let ejection = ejection.limited(shorter, 6);
        let traffic = [6, 1005, 1006].map(|now_ms| ejection.traffic(shorter, now_ms));
        assert_eq!(traffic, [TrafficFraction::Nothing, TrafficFraction::Nothing, TrafficFraction::Of256(16)]);
        assert_eq!(ejection.limited(rule, 7), ejection, "a longer duration is for later ejections");
        assert_eq!(Ejection::default().limited(rule, 7), Ejection::default());
    }
}
