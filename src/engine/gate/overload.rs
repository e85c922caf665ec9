//! Overload: the level of shedding, as it follows from the load of the process.
//!
//! A timer observes the load and sets the level: up to 1 it is the part of background requests that is shed, beyond 1 the
//! part of normal requests. Critical requests are never shed.
//!
//! Not here: the measurement of the load (app), and which request is shed (`shed`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::policy::{Overload, Priority};

/// The load of the process, as a timer measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// CPU time in use, in thousandths; `None` if it is unknown.
    pub cpu_permille: Option<u64>,
    /// Requests at services, or in wait for a connection to one.
    pub in_flight: usize,
    /// The longest wait for a connection to a service, in nanoseconds.
    pub queue_delay_ns: u64,
}

/// The level of shedding in thousandths, from 0 to [`LEVEL_MAX`].
pub type Level = u64;

/// The level at which all requests below critical are shed.
pub const LEVEL_MAX: Level = 2 * ONE;
const ONE: u64 = 1000;

/// Computes the level from one observation after another, at equal intervals of about 100 ms.
///
/// The requests in flight and the wait follow the admitted requests with a delay, so that their level is proportional to
/// the excess: 1 at 9/8 of a bound, 2 at 10/8. It moves there by a part of the difference only. CPU time has no excess
/// that shows how much is too much, so its level grows as long as the bound is exceeded.
#[derive(Debug, Default)]
pub struct OverloadController {
    /// Smoothed CPU time in use, in thousandths.
    cpu_permille: u64,
    cpu_level: Level,
    load_level: Level,
    is_shedding: bool,
}

impl OverloadController {
    /// The next level.
    pub fn observe(&mut self, bounds: &Overload, load: &Load) -> Level {
        if let Some((percent, used)) = bounds.cpu_percent.zip(load.cpu_permille) {
            self.cpu_permille = (self.cpu_permille * 7 + used * 3) / 10;
            let ratio = self.cpu_permille * 100 / u64::from(percent);
            self.cpu_level = match ratio {
                1001.. => (self.cpu_level + ((ratio - ONE) / 2).clamp(1, 100)).min(LEVEL_MAX),
                950.. => self.cpu_level,
                _ => self.cpu_level.saturating_sub(((950 - ratio) / 5).clamp(1, 50)),
            };
        } else {
            self.cpu_level = 0;
        }
        let ratio = |load: u64, bound: u64| load.saturating_mul(ONE) / bound.max(1);
        let in_flight = bounds.in_flight.map(|bound| ratio(load.in_flight as u64, bound as u64));
        let waiting = bounds.queue_delay_ns.map(|bound| ratio(load.queue_delay_ns, bound));
        let excess = in_flight.max(waiting).unwrap_or(0).saturating_sub(ONE);
        let target = excess.saturating_mul(8).min(LEVEL_MAX);
        self.load_level = if target > self.load_level {
            self.load_level + ((target - self.load_level) * 3).div_ceil(20)
        } else {
            self.load_level - (self.load_level - target).div_ceil(20)
        };
        let level = self.cpu_level.max(self.load_level);
        self.is_shedding = level >= if self.is_shedding { 10 } else { 50 };
        if self.is_shedding { level } else { 0 }
    }
}

/// The part of the requests of `priority` that is shed at `level`, in thousandths.
pub(super) fn shed_permille(level: Level, priority: Priority) -> u64 {
    match priority {
        Priority::Critical => 0,
        Priority::Normal => level.saturating_sub(ONE),
        Priority::Background => level.min(ONE),
    }
}

/// The level in force.
#[derive(Debug, Default)]
pub(super) struct OverloadLevel(AtomicU64);

impl OverloadLevel {
    /// Sets the level, and returns the level before.
    pub(super) fn set(&self, level: Level) -> Level {
        self.0.swap(level, Ordering::Relaxed)
    }

    /// The level.
    pub(super) fn current(&self) -> Level {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Overload = Overload { cpu_percent: Some(90), in_flight: Some(100), queue_delay_ns: Some(1000) };

    /// A service whose requests end at a rate in proportion to their number, and the offered load by priority.
    struct Plant {
        controller: OverloadController,
        level: Level,
        in_flight: f64,
    }

    /// The admitted part of an offered load: critical, normal, background.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn admitted(level: Level, offered: [f64; 3]) -> f64 {
        let part = |priority| 1.0 - shed_permille(level, priority) as f64 / 1000.0;
        Priority::ALL.into_iter().zip(offered).map(|(priority, offered)| offered * part(priority)).sum()
    }

    impl Plant {
        fn new() -> Self {
            Self { controller: OverloadController::default(), level: 0, in_flight: 0.0 }
        }

        /// Ten steps of 10 ms. `offered` is in requests per 10 ms; a request takes `steps` of them.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
        fn tick(&mut self, offered: [f64; 3], steps: f64) -> Level {
            for _ in 0..10 {
                self.in_flight += admitted(self.level, offered) - self.in_flight / steps;
            }
            let load = Load { in_flight: self.in_flight as usize, ..Load::default() };
            self.level = self.controller.observe(&Overload { cpu_percent: None, ..BOUNDS }, &load);
            self.level
        }
    }

    /// The lowest and the highest level of the last 100 observations of 300.
    fn settled(mut tick: impl FnMut() -> Level) -> (Level, Level) {
        let levels: Vec<_> = (0..300).map(|_| tick()).collect();
        let last = levels.iter().skip(200).copied();
        (last.clone().min().unwrap(), last.max().unwrap())
    }

    /// Services of 50 ms, 1 s and 10 s; loads from 1.5 times to 6 times what the bound allows.
    #[test]
    fn requests_in_flight_settle_near_the_bound_without_swings() {
        for steps in [5.0, 100.0, 1000.0] {
            for excess in [1.5, 3.0, 6.0] {
                let all = 100.0 / steps * excess;
                let mut plant = Plant::new();
                let offered = [all * 0.1, all * 0.5, all * 0.4];
                let (low, high) = settled(|| plant.tick(offered, steps));
                assert!(high - low <= 250, "{steps} {excess}: {low} to {high}");
                assert!(low > 0 && plant.in_flight < 130.0, "{steps} {excess}: {}", plant.in_flight);
            }
        }
    }

    #[test]
    fn the_lowest_priority_goes_first_and_all_come_back() {
        let mut plant = Plant::new();
        // Half of the load is background, and would fit without the other half.
        let offered = [5.0, 5.0, 10.0];
        let (low, high) = settled(|| plant.tick(offered, 10.0));
        assert!(low > 0 && high <= ONE, "{low} to {high}: only background requests are shed");
        let below = (0..100).position(|_| plant.tick([5.0, 2.0, 0.0], 10.0) == 0);
        assert!(below.is_some_and(|ticks| ticks < 100), "{below:?}: nothing is shed once the load is gone");
        assert_eq!(Priority::ALL.map(|priority| shed_permille(LEVEL_MAX, priority)), [0, 1000, 1000]);
        assert_eq!(Priority::ALL.map(|priority| shed_permille(1250, priority)), [0, 250, 1000]);
        assert_eq!(Priority::ALL.map(|priority| shed_permille(500, priority)), [0, 0, 500]);
    }

    /// CPU time follows the admitted requests at once, and is never above all of it. Rows: the offered load in thousandths.
    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
    fn cpu_time_settles_near_the_bound_without_swings() {
        for all in [1200.0, 2000.0, 4000.0] {
            let (mut controller, mut level, mut used) = (OverloadController::default(), 0, 0);
            let offered = [100.0, all * 0.5 - 100.0, all * 0.5];
            let (low, high) = settled(|| {
                used = admitted(level, offered).min(1000.0) as u64;
                level = controller.observe(&BOUNDS, &Load { cpu_permille: Some(used), ..Load::default() });
                level
            });
            assert!(high - low <= 250, "{all}: {low} to {high}");
            assert!((700..=950).contains(&used), "{all}: {used}");
            let ticks = (0..200)
                .position(|_| controller.observe(&BOUNDS, &Load { cpu_permille: Some(300), ..Load::default() }) == 0);
            assert!(ticks.is_some_and(|ticks| ticks < 100), "{all}: {ticks:?}");
        }
    }

    #[test]
    fn a_load_at_its_bound_sheds_nothing() {
        let mut controller = OverloadController::default();
        let load = Load { cpu_permille: Some(900), in_flight: 100, queue_delay_ns: 1000 };
        assert!((0..100).all(|_| controller.observe(&BOUNDS, &load) == 0));
        let late = Load { queue_delay_ns: 1300, ..load };
        assert_eq!((0..100).map(|_| controller.observe(&BOUNDS, &late)).max(), Some(LEVEL_MAX));
    }
}
