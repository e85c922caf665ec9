//! When an endpoint that keeps failing is passed by, and how it comes back; a function of its arguments.
//!
//! All of it is one word, so that every worker may change it without a lock: until when the endpoint is out, in
//! milliseconds, and how often in a row it has failed.

use std::time::Duration;

/// `eject` of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row after which an endpoint is out.
    pub after: u16,
    /// How long it is out, and then how long until it gets its whole share again.
    pub duration: Duration,
}

/// How an endpoint fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ejection {
    /// When it may come back, in milliseconds; 0 if it was never out.
    until_ms: u64,
    /// Failures in a row.
    failures: u16,
}

/// What share of its requests an endpoint gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    /// So many of 256.
    Of256(u64),
    Nothing,
}

impl Eject {
    fn duration_ms(self) -> u64 {
        u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX >> 16).clamp(1, u64::MAX >> 18)
    }
}

impl Ejection {
    /// From its word.
    pub(super) fn of(word: u64) -> Self {
        Self { until_ms: word >> 16, failures: (word & 0xffff) as u16 }
    }

    /// Its word.
    pub(super) fn word(self) -> u64 {
        self.until_ms << 16 | u64::from(self.failures)
    }

    /// Whether it was ever out.
    pub(super) fn was_out(self) -> bool {
        self.until_ms > 0
    }

    /// After an answer.
    pub(super) fn answered(self) -> Self {
        Self { failures: 0, ..self }
    }

    /// After a failure at `now_ms`; `true` if it is out from now on. One that has come back lately is out again at
    /// once. Failures of one that is out are those of requests that went to it before.
    pub(super) fn failed(self, rule: Eject, now_ms: u64) -> (Self, bool) {
        let failures = self.failures.saturating_add(1);
        match self.share(rule, now_ms) {
            Share::Nothing => (self, false),
            Share::All if failures < rule.after => (Self { failures, ..self }, false),
            _ => (Self { until_ms: now_ms.saturating_add(rule.duration_ms()), failures: 0 }, true),
        }
    }

    /// What it gets at `now_ms`.
    pub(super) fn share(self, rule: Eject, now_ms: u64) -> Share {
        let (duration_ms, until_ms) = (rule.duration_ms(), self.until_ms);
        if !self.was_out() {
            return Share::All;
        }
        // A reload may have made it shorter.
        let until_ms = until_ms.min(now_ms.saturating_add(duration_ms));
        match now_ms.checked_sub(until_ms) {
            None => Share::Nothing,
            // The first part of its share at once, so that it is tried at all.
            Some(back_ms) if back_ms < duration_ms => Share::Of256(16 + back_ms * 240 / duration_ms),
            Some(_) => Share::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Eject = Eject { after: 3, duration: Duration::from_secs(10) };

    /// Rows: at, what happens, its share afterwards. `F` fails, `f` fails and is not ejected by it, `a` answers.
    #[test]
    fn an_endpoint_goes_and_comes_back_slowly() {
        let mut ejection = Ejection::default();
        for (now_ms, what, share) in [
            (1000, "f", Share::All),
            (1001, "f", Share::All),
            (1002, "a", Share::All),
            (1003, "f", Share::All),
            (1004, "f", Share::All),
            (2000, "F", Share::Nothing),
            (2001, "f", Share::Nothing),
            (2002, "a", Share::Nothing),
            (11_999, "", Share::Nothing),
            (12_000, "", Share::Of256(16)),
            (17_000, "a", Share::Of256(136)),
            (21_999, "", Share::Of256(255)),
            (22_000, "", Share::All),
            (22_001, "f", Share::All),
            (22_002, "f", Share::All),
            (22_003, "F", Share::Nothing),
            (32_003, "a", Share::Of256(16)),
            // It has not got well.
            (32_004, "F", Share::Nothing),
            (42_003, "", Share::Nothing),
            (42_004, "", Share::Of256(16)),
        ] {
            let is_ejected = match what {
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
            assert_eq!((is_ejected, ejection.share(RULE, now_ms)), (what == "F", share), "{now_ms}");
            assert_eq!(Ejection::of(ejection.word()), ejection);
        }
    }

    #[test]
    fn one_failure_can_be_enough_and_time_does_not_overflow() {
        let rule = Eject { after: 1, duration: Duration::MAX };
        let (ejection, is_ejected) = Ejection::default().failed(rule, 5);
        assert!(is_ejected);
        let ejection = Ejection::of(ejection.word());
        assert_eq!(ejection.share(rule, u64::MAX >> 20), Share::Nothing);
        let shorter = Eject { after: 1, duration: Duration::from_secs(1) };
        assert_eq!(ejection.share(shorter, 6), Share::Nothing);
    }
}
