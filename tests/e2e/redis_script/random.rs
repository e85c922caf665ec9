//! Random rules and requests from a seed.

use weir::engine::limit::{Algorithm, AlgorithmName, Calendar, Rate, Settings, Unit};

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

/// A rule of one rate, of this algorithm.
pub fn rule(random: &mut Random, name: AlgorithmName, size: Size) -> Algorithm {
    let count = match size {
        Size::Small => 1 + random.below(29),
        Size::Many => 20 + random.below(180),
        Size::Large => 1 + (random.next() >> (12 + random.below(50))),
    };
    let some_us = 100 + random.below(10_000_000);
    let period_ns =
        random.pick(&[SECOND_NS, 60 * SECOND_NS, 86_400 * SECOND_NS, 30 * 86_400 * SECOND_NS, some_us * 1000]);
    let settings = Settings {
        rate: Rate { count, period_ns },
        burst: 1 + random.below(count.saturating_mul(2)),
        shapes: random.one_in(2),
        calendar: random.one_in(2).then(|| calendar(random)),
        sub_windows: u32::try_from(1 + random.below(if size == Size::Many { 200 } else { 8 })).unwrap(),
    };
    match name.rule(&settings).ok().and_then(|rule| rule.to_portable(64).ok()) {
        Some(portable) => portable,
        // Too many units for this algorithm.
        None => rule(random, name, size),
    }
}

fn calendar(random: &mut Random) -> Calendar {
    let zone = random.pick(&["UTC", "Europe/Berlin", "Australia/Lord_Howe"]);
    let units = [(Unit::Millisecond, 250), (Unit::Second, 1), (Unit::Hour, 5), (Unit::Day, 1), (Unit::Month, 1)];
    let (unit, every) = random.pick(&units);
    Calendar::new(unit, every, zone).unwrap()
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
