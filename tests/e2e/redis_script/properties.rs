//! Random requests and a random clock: the server and `limit` give equal answers.

use std::time::Duration;

use smallvec::SmallVec;
use weir::base::time::Timestamp;
use weir::engine::limit::late::{LateByRate, LateUnits};
use weir::engine::limit::state::State as _;
use weir::engine::limit::{Algorithm, AlgorithmName};
use weir::engine::store::backend::{Handling, Units};

use super::model::{self, Limit};
use super::random::{Random, Size, rule, tick_us};
use super::server::Server;

const CASES: u64 = 200;
/// The seed of the first case; the next ones follow. With the environment variable [`ONE`] this case alone runs, and each
/// of its events is printed.
const SEED: u64 = 14;
const ONE: &str = "WEIR_SEED";

/// 2023-11-14 in microseconds.
const START_US: u64 = 1_699_920_000_000_000;

#[test]
fn the_server_decides_as_the_library() {
    let given = std::env::var(ONE).ok().map(|seed| seed.parse().expect("a number"));
    let (first, cases) = given.map_or((SEED, CASES), |seed: u64| (seed, 1));
    let mut server = Server::start();
    // Nothing expires: `limit` has no replicas that die.
    server.caller.flight = Duration::from_hours(24 * 365 * 100);
    for seed in first..first + cases {
        // Printed if the test fails.
        println!("{ONE}={seed}");
        server.send::<()>(&["FLUSHALL"]);
        case(&mut server, &mut Random(seed));
    }
}

fn note(event: impl Fn() -> String) {
    if std::env::var_os(ONE).is_some() {
        println!("{}", event());
    }
}

fn case(server: &mut Server, random: &mut Random) {
    let size = random.pick(&[Size::Small, Size::Small, Size::Many, Size::Large]);
    let names = ["a", "b{1}", "c"];
    let count = if random.one_in(3) { 3 } else { 1 };
    let mut limits: Vec<Limit> = names[..count].iter().map(|name| limit(random, name, size)).collect();
    let mut now_us = START_US + random.below(100_000_000_000);
    let requests = if size == Size::Many { 300 } else { 60 };
    for number in 1..=requests {
        let tick_us = tick_us(&random.pick(&limits.iter().map(|limit| limit.rule.clone()).collect::<Vec<_>>()));
        now_us += match random.below(10) {
            0..=4 => 0,
            5 => random.below(3),
            6..=8 => random.below(tick_us * if size == Size::Many { 2 } else { 8 }),
            _ if size == Size::Many => random.below(tick_us * 16),
            _ => random.below(tick_us * 80),
        };
        server.caller.server_us = Some(now_us);
        let now = Timestamp::from_ns(now_us * 1000);
        let states: Vec<_> = limits.iter().map(|limit| &limit.state).collect();
        note(|| format!("at {now_us}: {states:?}"));
        step(server, random, &mut limits, size, (number * model::NUMBERS, now));
    }
}

fn limit(random: &mut Random, name: &str, size: Size) -> Limit {
    let (_, algorithm) = random.pick(&AlgorithmName::ALL);
    let rates = if random.one_in(5) { 2 + random.below(2) } else { 1 };
    let rules: Vec<Algorithm> = (0..rates).map(|_| rule(random, algorithm, size)).collect();
    let rule = if rates == 1 { rules[0].clone() } else { Algorithm::Several(rules.into()) };
    let handling = match random.below(5) {
        0 => Handling::Shadow,
        1 => Handling::Delay { max_debt: random.below(20) },
        _ => Handling::Enforce,
    };
    note(|| format!("{name}: {handling:?} {rule:?}"));
    Limit::new(name, rule, handling)
}

/// One event: a request, a charge that is given back, a settlement, or another rule.
fn step(server: &mut Server, random: &mut Random, limits: &mut [Limit], size: Size, (number, now): (u64, Timestamp)) {
    let index = usize::try_from(random.below(limits.len() as u64)).unwrap();
    match random.below(14) {
        0 | 1 if !limits[index].charges.is_empty() => {
            let charges = limits[index].charges.len() as u64;
            // Often the newest.
            let charge = if random.one_in(2) { charges - 1 } else { random.below(charges) };
            note(|| format!("give back {charge} of {}", limits[index].name));
            model::give_back(server, &mut limits[index], usize::try_from(charge).unwrap(), number, now);
        }
        2 if random.one_in(2) => {
            let late = late(random, &limits[index].rule, now);
            let max_debt = random.below(20);
            note(|| format!("settle {late:?} {max_debt} of {}", limits[index].name));
            model::settle_late(server, &mut limits[index], (late, max_debt), number, now);
        }
        2 => {
            let extra = i64::try_from(random.below(12)).unwrap() - 5;
            let max_debt = random.below(20);
            note(|| format!("settle {extra} {max_debt} of {}", limits[index].name));
            model::settle(server, &mut limits[index], (extra, max_debt), number, now);
        }
        // A debt of large numbers would exceed what a store counts under another rule.
        3 if size != Size::Large && random.one_in(3) => {
            let rule = other_rule(random, &limits[index].rule, size);
            // A store cuts longer debts.
            let is_short = limits[index].state.peek(&rule, 0, now).reset_after_ns < 1 << 53;
            if is_short && limits[index].keeps_positions(&rule) {
                note(|| format!("{} now {rule:?}", limits[index].name));
                limits[index].rule = rule;
            }
        }
        _ => {
            let units: Vec<Units> = limits.iter().map(|limit| units(random, limit)).collect();
            note(|| format!("decide {units:?}"));
            model::decide(server, limits, &units, number, now);
        }
    }
}

/// Units that were charged before `now` under each rate, the oldest first, and perhaps some that are given back.
fn late(random: &mut Random, rule: &Algorithm, now: Timestamp) -> LateByRate {
    let of_rate = |rate: &Algorithm| {
        let span_us = (rate.memory_ns() / 1000).saturating_mul(3).clamp(1, START_US);
        let mut ages_us: Vec<u64> = (0..random.below(9)).map(|_| random.below(span_us)).collect();
        ages_us.sort_unstable_by(|one, other| other.cmp(one));
        ages_us.dedup();
        let mut units = || 1 + i64::try_from(random.below(5)).unwrap();
        let mut late: SmallVec<[LateUnits; 1]> =
            ages_us.into_iter().map(|age_us| LateUnits { units: units(), age_ns: age_us * 1000 }).collect();
        // A server does not know when the window of a calendar began.
        late.retain(|late| match rate {
            Algorithm::FixedWindow(_) => {
                let at = now.saturating_sub_ns(late.age_ns);
                rate.chargeable_from(at, now) <= at
            }
            _ => true,
        });
        if random.one_in(4) {
            late.push(LateUnits { units: -1 - i64::try_from(random.below(5)).unwrap(), age_ns: 0 });
        }
        late
    };
    rule.rates().iter().map(of_rate).collect()
}

/// A rule of the same algorithms.
fn other_rule(random: &mut Random, was: &Algorithm, size: Size) -> Algorithm {
    let mut other = |was: &Algorithm| {
        let name = AlgorithmName::ALL.into_iter().find(|(name, _)| *name == was.name()).unwrap().1;
        rule(random, name, size)
    };
    match was {
        Algorithm::Several(rules) => Algorithm::Several(rules.iter().map(other).collect()),
        one => other(one),
    }
}

fn units(random: &mut Random, limit: &Limit) -> Units {
    let capacity = limit.rule.capacity();
    let cost = match random.below(12) {
        0 => 0,
        1 => random.below(capacity.saturating_add(3)),
        2 => capacity,
        _ => 1 + random.below((capacity / 8).clamp(1, 1 << 40)),
    };
    if limit.handling == Handling::Enforce && random.one_in(4) {
        return Units { cost, want: cost + random.below(capacity), divisor: 1 + random.below(4), at_hand: 0 };
    }
    Units::exactly(cost)
}
