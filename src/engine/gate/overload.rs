//! Overload: the level of shedding, as it follows from the load of the process.
//!
//! A timer observes the load and sets the level: up to 1 it is the part of background requests that is shed, beyond 1 the
//! part of normal requests. Critical requests are never shed.
//!
//! Not here: the measurement of the load (app), and which request is shed (`shed`).

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
/// The requests in flight follow the admitted requests with a delay, so that their level is proportional to the excess: 1
/// at 9/8 of the bound, 2 at 10/8. It moves there by a part of the difference only. CPU time has no excess that shows how
/// much is too much, so its level grows as long as the bound is exceeded. For the wait see `DelayLevel`.
#[derive(Debug, Default)]
pub struct OverloadController {
    /// Smoothed CPU time in use, in thousandths.
    cpu_permille: u64,
    cpu_level: Level,
    load_level: Level,
    delay_level: DelayLevel,
    is_shedding: bool,
}

/// The level for the wait for a connection.
///
/// A queue sums up the excess of requests, so a level that is proportional to the wait, or only grows and shrinks with it,
/// swings. A controller with both parts settles, as PIE does (RFC 8033): the sum of past excesses finds the level, and the
/// present excess dampens its swings.
#[derive(Debug, Default)]
struct DelayLevel {
    smoothed_ns: u64,
    /// The sum of past excesses, in millionths.
    sum: i64,
}

/// The level in thousandths for an excess of the wait by its bound.
const DELAY_GAIN: i64 = 300;
/// The time in bounds in which the sum grows by as much as an excess adds at once.
const DELAY_SUM_TIME: i64 = 8;
/// The interval of observations, in milliseconds.
const INTERVAL_MS: i64 = 100;
/// The least wait in milliseconds by which an excess is measured: the controller sees none shorter than its intervals.
const DELAY_SCALE_MS_MIN: u64 = 200;
/// The level in thousandths by which the sum shrinks at each observation that finds no request in wait.
const IDLE_DECAY: i64 = 10;

impl DelayLevel {
    fn observe(&mut self, bound_ns: u64, delay_ns: u64) -> Level {
        let ms = |ns: u64| i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX);
        self.smoothed_ns = self.smoothed_ns / 2 + delay_ns / 2;
        let scale_ms = ms(bound_ns.max(DELAY_SCALE_MS_MIN * 1_000_000));
        let excess = (ms(self.smoothed_ns) - ms(bound_ns)).saturating_mul(1000) / scale_ms;
        let now = excess.clamp(-1000, 6000) * DELAY_GAIN;
        let idle = if delay_ns == 0 { IDLE_DECAY * 1000 } else { 0 };
        let most = LEVEL_MAX.cast_signed() * 1000;
        self.sum = (self.sum + now * INTERVAL_MS / DELAY_SUM_TIME / scale_ms - idle).clamp(0, most);
        Level::try_from((self.sum + now) / 1000).unwrap_or(0).min(LEVEL_MAX)
    }
}

impl OverloadController {
    /// The next level.
    pub fn observe(&mut self, bounds: &Overload, load: &Load) -> Level {
        if let Some((percent, used)) = bounds.cpu_percent.zip(load.cpu_permille) {
            self.cpu_permille = (self.cpu_permille * 7 + used * 3) / 10;
            let ratio = self.cpu_permille * 100 / u64::from(percent);
            self.cpu_level = match ratio {
                1001.. => (self.cpu_level + ((ratio - ONE) / 2).clamp(1, 100)).min(LEVEL_MAX),
                950.. => self.cpu_level.saturating_sub(1),
                _ => self.cpu_level.saturating_sub(((950 - ratio) / 5).clamp(1, 50)),
            };
        } else {
            self.cpu_level = 0;
        }
        let ratio = |bound: usize| (load.in_flight as u64).saturating_mul(ONE) / (bound as u64).max(1);
        let excess = bounds.in_flight.map_or(0, ratio).saturating_sub(ONE);
        let target = excess.saturating_mul(8).min(LEVEL_MAX);
        self.load_level = if target > self.load_level {
            self.load_level + ((target - self.load_level) * 3).div_ceil(20)
        } else {
            self.load_level - (self.load_level - target).div_ceil(20)
        };
        let delay_level = if let Some(bound_ns) = bounds.queue_delay_ns {
            self.delay_level.observe(bound_ns, load.queue_delay_ns)
        } else {
            self.delay_level = DelayLevel::default();
            0
        };
        let level = self.cpu_level.max(self.load_level).max(delay_level);
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::base::split_mix::mix;

    const BOUNDS: Overload =
        Overload { cpu_percent: Some(90), in_flight: Some(100), queue_delay_ns: Some(200 * MS_NS) };
    const MS_NS: u64 = 1_000_000;

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

    /// The waits and the levels of 600 observations of a queue for `connections`, after 600 others. Requests take
    /// `service_ms`, and there are `load_percent` of those that can be served; of these 10 % are critical, and 50 % normal.
    fn queue(connections: usize, service_ms: u64, bound_ms: u64, load_percent: u64) -> (Vec<u64>, Vec<Level>) {
        let bounds = Overload { queue_delay_ns: Some(bound_ms * MS_NS), ..Overload::default() };
        let (mut controller, mut level, mut bits) = (OverloadController::default(), 0, 1);
        let (mut waiting, mut busy) = (VecDeque::new(), VecDeque::new());
        let (mut due, mut seen) = (0, (Vec::new(), Vec::new()));
        for now in 0..120_000 {
            if now % 100 == 0 {
                let delay_ms = waiting.front().map_or(0, |since| now - since);
                level = controller.observe(&bounds, &Load { queue_delay_ns: delay_ms * MS_NS, ..Load::default() });
                seen.0.push(delay_ms);
                seen.1.push(level);
            }
            due += connections as u64 * load_percent;
            while due >= service_ms * 100 {
                due -= service_ms * 100;
                bits = mix(bits + 1);
                let priority = Priority::ALL[[0, 1, 1, 1, 1, 1, 2, 2, 2, 2][usize::try_from(bits % 10).unwrap()]];
                if bits / 10 % 1000 >= shed_permille(level, priority) {
                    waiting.push_back(now);
                }
            }
            while busy.front().is_some_and(|end| *end <= now) {
                busy.pop_front();
            }
            while busy.len() < connections && waiting.pop_front().is_some() {
                busy.push_back(now + service_ms);
            }
        }
        (seen.0.split_off(600), seen.1.split_off(600))
    }

    /// Rows: connections, the time of a request, the bound, the load, and the band of nine in ten levels and waits.
    #[test]
    fn the_wait_for_a_connection_settles_near_the_bound_without_swings() {
        for (connections, service_ms, bound_ms, load_percent, levels, waits) in
            [(100, 1000, 200, 120, [200, 700], [80, 350]), (20, 50, 200, 150, [650, 1050], [100, 350])]
        {
            let (mut delays, mut seen) = queue(connections, service_ms, bound_ms, load_percent);
            delays.sort_unstable();
            seen.sort_unstable();
            let row = format!(
                "{connections} of {service_ms} ms: {:?} {:?}",
                [0, 30, 300, 570, 599].map(|index| delays[index]),
                [0, 30, 300, 570, 599].map(|index| seen[index])
            );
            assert!(delays[30] >= waits[0] && delays[570] <= waits[1], "{row}");
            assert!(seen[30] >= levels[0] && seen[570] <= levels[1], "{row}");
        }
    }

    #[test]
    fn a_load_at_its_bound_sheds_nothing() {
        let mut controller = OverloadController::default();
        let load = Load { cpu_permille: Some(900), in_flight: 100, queue_delay_ns: 200 * MS_NS };
        assert!((0..100).all(|_| controller.observe(&BOUNDS, &load) == 0));
        let late = Load { queue_delay_ns: 300 * MS_NS, ..load };
        assert_eq!((0..300).map(|_| controller.observe(&BOUNDS, &late)).max(), Some(LEVEL_MAX));
        let idle = Load { queue_delay_ns: 0, ..load };
        let ticks = (0..200).position(|_| controller.observe(&BOUNDS, &idle) == 0);
        assert!(ticks.is_some_and(|ticks| ticks < 100), "{ticks:?}");
        assert!((0..100).any(|_| controller.observe(&BOUNDS, &late) > 0));
        let unbounded = Overload { queue_delay_ns: None, ..BOUNDS };
        assert_eq!(controller.observe(&unbounded, &late), 0, "a reload removes the bound");
    }

    /// CPU time that settles just below its bound sheds nothing in the end.
    #[test]
    fn cpu_time_at_its_bound_lets_the_level_decay() {
        for used in [860, 880, 900] {
            let mut controller = OverloadController::default();
            let mut observe = |used| controller.observe(&BOUNDS, &Load { cpu_permille: Some(used), ..Load::default() });
            let level = (0..40).map(|_| observe(1000)).max().unwrap();
            assert!(level > 500);
            let ticks = (0..3000).position(|_| observe(used) == 0);
            assert!(ticks.is_some_and(|ticks| ticks <= 2100), "{used}: {ticks:?}");
        }
    }
}
