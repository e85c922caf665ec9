//! Random rules and requests from a seed.

use weir::engine::limit::{Algorithm, Allowance, Calendar, Quota, Rate, Unit};
use weir::engine::limit::{concurrency, fixed_window, leaky_bucket, sliding_log, sub_window};

const SECOND_NS: u64 = 1_000_000_000;

/// `SplitMix64` (Steele, Lea and Flood, 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether one of so many chances is taken.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()].clone()
    }
}

/// The size of the numbers of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Up to 30 units.
    Small,
    /// Up to 200 units, of requests that come fast.
    Many,
    /// Up to the largest numbers that a store can count.
    Large,
}

/// The number of algorithms.
pub const KINDS: u64 = 8;

/// A rule of one rate, of the algorithm with this number.
pub fn rule(random: &mut Random, kind: u64, size: Size) -> Algorithm {
    let count = match size {
        Size::Small => 1 + random.below(29),
        Size::Many => 20 + random.below(180),
        Size::Large => 1 + (random.next() >> (12 + random.below(50))),
    };
    let some_us = 100 + random.below(10_000_000);
    let period_ns =
        random.pick(&[SECOND_NS, 60 * SECOND_NS, 86_400 * SECOND_NS, 30 * 86_400 * SECOND_NS, some_us * 1000]);
    let rate = Rate { count, period_ns };
    let made = match kind {
        0 => quota(random, rate).map(Algorithm::TokenBucket),
        1 => {
            let shapes = random.one_in(2);
            quota(random, rate).map(|quota| Algorithm::LeakyBucket(leaky_bucket::Rule { quota, shapes }))
        }
        2 => fixed_window::Rule::from_first(rate).ok().map(Algorithm::FixedWindow),
        3 => {
            let zone = random.pick(&["UTC", "Europe/Berlin", "Australia/Lord_Howe"]);
            let units =
                [(Unit::Millisecond, 250), (Unit::Second, 1), (Unit::Hour, 5), (Unit::Day, 1), (Unit::Month, 1)];
            let (unit, every) = random.pick(&units);
            let calendar = Calendar::new(unit, every, zone).unwrap();
            fixed_window::Rule::in_calendar(count, calendar).ok().map(Algorithm::FixedWindow)
        }
        4 => sliding_log::Rule::new(Rate { count: count.min(sliding_log::COUNT_MAX), ..rate })
            .ok()
            .map(Algorithm::SlidingLog),
        5 => Allowance::new(rate).ok().map(Algorithm::SlidingWindow),
        6 => {
            let n = u32::try_from(1 + random.below(if size == Size::Many { 200 } else { 8 })).unwrap();
            sub_window::Rule::new(rate, n).ok().map(Algorithm::SubWindow)
        }
        _ => concurrency::Rule::new(count).ok().map(Algorithm::Concurrency),
    };
    match made.and_then(|rule| rule.to_portable(64).ok()) {
        Some(portable) => portable,
        // Too many units for this algorithm.
        None => rule(random, kind, size),
    }
}

fn quota(random: &mut Random, rate: Rate) -> Option<Quota> {
    let burst = 1 + random.below(rate.count.saturating_mul(2));
    Quota::new(rate, burst).ok()
}

/// A length of time in microseconds that matters to a rule.
pub fn tick_us(rule: &Algorithm) -> u64 {
    let ns = match rule.rates() {
        [] => 1000,
        [Algorithm::Concurrency(_)] => SECOND_NS,
        [rate] if rate.interval_ns() > 0 => rate.interval_ns() / 4,
        [rate] => rate.period_ns().unwrap_or(0) / 16,
        rates => return rates.iter().map(tick_us).min().unwrap_or(1),
    };
    (ns / 1000).max(1)
}
