//! The numbers of a limit as a function of the wall clock: a ramp lowers or raises them step by step.
//!
//! Not here: the rules that follow (`shares`), instants of civil time (config), and the timer (app).

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::engine::limit::Scale;

/// The numbers of a limit over time, as parts of the numbers that are written.
#[derive(Clone, Debug)]
pub struct Ramp {
    /// The begin of the ramp, followed by its steps. The last one is its end.
    begins: Box<[Timestamp]>,
    /// The part of the written numbers at the end.
    target: Scale,
    /// What clients are told of a limit that ends at zero.
    pub retirement: Option<Arc<Retirement>>,
}

/// What clients are told of requests that a limit refuses in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// The field `Deprecation`: the begin of the ramp (RFC 9745, section 2.1).
    pub deprecation: Box<str>,
    /// The field `Sunset`: the end of the ramp (RFC 8594, section 3).
    pub sunset: Box<str>,
    /// The field `Link` with the relation `successor-version` (RFC 5829, section 3.5); `None` without a successor.
    pub link: Option<Box<str>>,
    /// Whether requests get 410 in the end, and not 429.
    pub is_gone: bool,
}

impl Ramp {
    /// A ramp that begins at the first instant of `begins` and makes a step of equal size at each other one. `None` without
    /// a step.
    pub fn new(begins: Vec<Timestamp>, target: Scale, retirement: Option<Retirement>) -> Option<Self> {
        let has_step = begins.len() > 1;
        has_step.then(|| Self { begins: begins.into(), target, retirement: retirement.map(Arc::new) })
    }

    /// The number of instants that are reached at `now`: 0 before the begin.
    pub fn reached(&self, now: Timestamp) -> usize {
        self.begins.partition_point(|begin| *begin <= now)
    }

    /// The next instant after `now`.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.begins.get(self.reached(now)).copied()
    }

    /// The part of the written numbers after so many instants.
    pub fn scale(&self, reached: usize) -> Scale {
        let count = |steps: usize| u64::try_from(steps).unwrap_or(u64::MAX);
        let Scale { numerator, denominator } = self.target;
        let steps = count(self.begins.len() - 1);
        let made = count(reached.saturating_sub(1)).min(steps);
        Scale { numerator: (steps - made) * denominator + made * numerator, denominator: steps * denominator }
    }

    /// The begin and the steps, with the part of the written numbers from then on.
    pub fn schedule(&self) -> impl ExactSizeIterator<Item = (Timestamp, Scale)> {
        self.begins.iter().enumerate().map(|(index, begin)| (*begin, self.scale(index + 1)))
    }

    /// What clients are told once so many instants are reached.
    pub(super) fn retirement_after(&self, reached: usize) -> Option<&Arc<Retirement>> {
        self.retirement.as_ref().filter(|_| reached > 0)
    }

    /// Whether requests are gone once so many instants are reached.
    pub(super) fn is_gone(&self, reached: usize) -> bool {
        reached == self.begins.len() && self.retirement.as_ref().is_some_and(|retirement| retirement.is_gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::picture::{self, Line};

    fn at(s: u64) -> Timestamp {
        Timestamp::from_ns(s * 1_000_000_000)
    }

    /// A ramp that begins at 10 s and has a step every 10 s.
    fn ramp(steps: u64, (numerator, denominator): (u64, u64)) -> Ramp {
        let begins = (1..=steps + 1).map(|step| at(10 * step)).collect();
        Ramp::new(begins, Scale { numerator, denominator }, None).unwrap()
    }

    #[test]
    fn steps_are_of_equal_size() {
        let down = ramp(4, (0, 1));
        for (s, reached, percent, next) in [
            (0, 0, 100, Some(10)),
            (10, 1, 100, Some(20)),
            (19, 1, 100, Some(20)),
            (20, 2, 75, Some(30)),
            (49, 4, 25, Some(50)),
            (50, 5, 0, None),
            (1_000_000, 5, 0, None),
        ] {
            assert_eq!(down.reached(at(s)), reached, "{s}");
            let Scale { numerator, denominator } = down.scale(reached);
            assert_eq!((numerator * 100 / denominator, down.next(at(s))), (percent, next.map(at)), "{s}");
        }
        let thirds: Vec<_> = ramp(2, (1, 3)).schedule().map(|(_, scale)| scale.units(90)).collect();
        assert_eq!(thirds, [90, 60, 30]);
        let up: Vec<_> = ramp(2, (5, 2)).schedule().map(|(_, scale)| scale.units(10)).collect();
        assert_eq!(up, [10, 17, 25]);
        assert!(Ramp::new(vec![at(1)], Scale { numerator: 0, denominator: 1 }, None).is_none());
    }

    /// The ramp of the guide: 600/min for a day, then a step a day.
    #[test]
    fn the_guide_has_the_curve() {
        let month = ramp(31, (0, 1));
        let rate = |s: u64| f64::from(u32::try_from(month.scale(month.reached(at(s))).units(600)).unwrap());
        let values = (10..=325).step_by(2).map(rate).collect();
        picture::shows("ramp", ("2027-01-01", "2027-02-01"), &[Line { name: "requests per minute", values }]);
    }

    /// Clients hear of the end from the begin on, and of 410 at the end only.
    #[test]
    fn a_retirement_is_announced_from_the_begin_on() {
        let [deprecation, sunset] = ["@10", "then"].map(Into::into);
        let retirement = Retirement { deprecation, sunset, link: None, is_gone: true };
        let down = Ramp { retirement: Some(Arc::new(retirement)), ..ramp(2, (0, 1)) };
        for (s, is_announced, is_gone) in [(9, false, false), (10, true, false), (29, true, false), (30, true, true)] {
            let reached = down.reached(at(s));
            assert_eq!(
                (down.retirement_after(reached).is_some(), down.is_gone(reached)),
                (is_announced, is_gone),
                "{s}"
            );
        }
    }
}
