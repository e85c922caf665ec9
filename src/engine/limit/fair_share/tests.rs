//! Sharers in virtual time that ask at constant rates, and are refused or wait.

use proptest::prelude::*;

use super::super::{Rate, State as _};
use super::pool::PATIENCE_NS;
use super::*;

const SECOND: u64 = 1_000_000_000;
const BEGIN: Timestamp = Timestamp::from_ns(1_000 * SECOND);

fn quota(per_second: u64, burst: u64) -> Quota {
    Quota::new(Rate { count: per_second, period_ns: SECOND }, burst).unwrap()
}

/// The sharers of one pool, with these weights.
fn sharers(quota: Quota, weights: &[u32]) -> Vec<(Rule, State)> {
    let pool = SharedPool::default();
    let sharer = |weight: &u32| {
        let rule = Rule::new(quota, *weight, pool.clone());
        let state = State::fresh(&rule);
        (rule, state)
    };
    weights.iter().map(sharer).collect()
}

/// How one sharer asks.
#[derive(Clone, Copy)]
struct Asks {
    per_second: f64,
    cost: u64,
    weight: u32,
    /// Whether a refused request is asked again when it may pass, before the next one.
    waits: bool,
}

const ASKS: Asks = Asks { per_second: 400.0, cost: 1, weight: 1, waits: false };

fn asks(per_second: f64) -> Asks {
    Asks { per_second, ..ASKS }
}

/// The units that each sharer got in `seconds`, and its refused requests.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds and counts
fn simulate(quota: Quota, all: &[Asks], seconds: u64) -> Vec<(f64, u64)> {
    let weights: Vec<_> = all.iter().map(|asks| asks.weight).collect();
    let mut sharers = sharers(quota, &weights);
    let period = |asks: &Asks| (SECOND as f64 / asks.per_second) as u64;
    let mut due: Vec<_> =
        all.iter().enumerate().map(|(index, asks)| BEGIN.saturating_add_ns(period(asks) * index as u64 / 16)).collect();
    let (mut got, mut is_waiting) = (vec![(0.0, 0); all.len()], vec![false; all.len()]);
    let end = BEGIN.saturating_add_ns(seconds * SECOND);
    while let Some((index, now)) =
        due.iter().copied().enumerate().min_by_key(|(_, due)| *due).filter(|(_, due)| *due < end)
    {
        let (asks, (rule, state)) = (&all[index], &mut sharers[index]);
        // As the gate does: a request that waits is charged only if it will be admitted.
        let mut decision = state.peek(rule, asks.cost, now);
        if decision.is_admitted() || !is_waiting[index] {
            let expected = std::mem::replace(&mut decision, state.admit(rule, asks.cost, now));
            assert_eq!(decision, expected, "sharer {index} at {now:?}");
        }
        is_waiting[index] = asks.waits && !decision.is_admitted();
        due[index] = now.saturating_add_ns(period(asks));
        match decision.denied {
            None => got[index].0 += asks.cost as f64,
            Some(Retry::AfterNs(ns)) if asks.waits => due[index] = now.saturating_add_ns(ns.max(1)),
            Some(_) => got[index].1 += 1,
        }
    }
    let units: f64 = got.iter().map(|(units, _)| units).sum();
    let bound = rule::Rule::bound(&sharers[0].0, seconds * SECOND);
    assert!(units <= bound as f64, "{units} units of at most {bound}");
    got
}

/// The units per second of each sharer over 20 seconds behind the burst, which lasts less than five.
fn rates(quota: Quota, all: &[Asks]) -> Vec<f64> {
    let [burst, whole] = [5, 25].map(|seconds| simulate(quota, all, seconds));
    burst.iter().zip(whole).map(|((burst, _), (whole, _))| (whole - burst) / 20.0).collect()
}

#[test]
fn a_flood_leaves_the_others_what_they_ask_for() {
    for (burst, per_second, cost) in [(100, 9.0, 1), (1000, 9.0, 1), (1000, 0.9, 10), (100, 0.7, 1)] {
        let modest = Asks { per_second, cost, ..ASKS };
        let mut all = vec![modest; 10];
        all[3] = asks(200.0);
        let got = simulate(quota(100, burst), &all, 60);
        let (mut asked, mut others) = (0.0, 0);
        for (index, (units, refused)) in got.iter().enumerate().filter(|(index, _)| *index != 3) {
            assert_eq!(*refused, 0, "sharer {index} with burst {burst}, {per_second} times {cost}");
            (asked, others) = (asked + units, others + 1);
        }
        // Nothing that the others leave is lost.
        let left = 100.0 * 60.0 - asked;
        assert!(others == 9 && got[3].0 >= left - 1.0, "{} of {left}", got[3].0);
    }
}

#[test]
fn the_rate_is_shared_by_max_min_fairness() {
    let weighs = |weight: u32| Asks { weight, ..asks(200.0) };
    for (all, expected) in [
        (&[asks(5.0), asks(20.0), asks(200.0), asks(100.0)][..], &[5.0, 20.0, 37.5, 37.5][..]),
        (&[asks(100.0); 5], &[20.0; 5]),
        (&[asks(200.0), asks(110.0)], &[50.0, 50.0]),
        (&[asks(200.0)], &[100.0]),
        // By units, not by requests.
        (&[Asks { cost: 5, ..asks(200.0) }, asks(200.0)], &[50.0, 50.0]),
        (&[weighs(3), weighs(1)], &[75.0, 25.0]),
        (&[weighs(7), weighs(2), asks(5.0)], &[95.0 * 7.0 / 9.0, 95.0 * 2.0 / 9.0, 5.0]),
    ] {
        for burst in [20, 50, 400] {
            for (got, expected) in rates(quota(100, burst), all).iter().zip(expected) {
                assert!((got - expected).abs() <= 1.0, "{got} in place of {expected}, burst {burst}");
            }
        }
    }
}

/// Also with a burst of one unit. Sharers that wait are served in turn, whatever they ask for.
#[test]
fn waiting_sharers_get_equal_parts() {
    for (burst, rate) in [(1, 50), (5, 50), (100, 50), (1, 1)] {
        let all = [1000.0, 40.0, 30.0, 20.0, 1000.0].map(|per_second| Asks { per_second, waits: true, ..ASKS });
        let seconds = 3000 / rate;
        for (got, _) in simulate(quota(rate, burst), &all, seconds) {
            let most = 610.0 + f64::from(u32::try_from(burst).unwrap());
            assert!((590.0..most).contains(&got), "{got} with burst {burst} and {rate}/s");
        }
    }
}

/// The bucket is full long before a large debt is paid, and that ends no debt.
#[test]
fn a_full_bucket_ends_no_debt_beyond_it() {
    let mut sharers = sharers(quota(10, 20), &[1]);
    let (rule, state) = &mut sharers[0];
    assert_eq!(state.settle(rule, 500, 1000, BEGIN), 500);
    let at = |seconds: u64| BEGIN.saturating_add_ns(seconds * SECOND);
    for seconds in 0..48 {
        assert!(!state.admit(rule, 1, at(seconds)).is_admitted(), "{seconds}");
    }
    assert!(state.admit(rule, 1, at(51)).is_admitted());
}

/// Each sharer owes the burst, and the bucket gave it once. Nobody passes before all but a part of each debt is paid.
#[test]
fn several_debts_are_paid_at_the_rate_of_the_bucket() {
    let mut sharers = sharers(quota(2, 20), &[1; 8]);
    for (rule, state) in &mut sharers {
        assert!(state.admit(rule, 1, BEGIN).is_admitted());
    }
    for (rule, state) in &mut sharers {
        assert_eq!(state.settle(rule, 19, 1000, BEGIN), 19);
    }
    // Each pays a unit in 4 s, and may owe an eighth of 18 units.
    let passes = BEGIN.saturating_add_ns(75 * SECOND);
    for tick in 0..300 {
        let now = BEGIN.saturating_add_ns(tick * SECOND / 4);
        for (index, (rule, state)) in sharers.iter_mut().enumerate() {
            let Some(Retry::AfterNs(ns)) = state.admit(rule, 1, now).denied else { panic!("{index} at {tick}") };
            assert!(now.saturating_add_ns(ns).ns_since(passes) < 10_000, "{index} at {tick}: {ns}");
        }
    }
    let now = passes.saturating_add_ns(10_000);
    assert!(sharers.iter_mut().all(|(rule, state)| state.admit(rule, 1, now).is_admitted()));
    // One without debt has what the bucket has.
    let rule = sharers[0].0.clone();
    assert!(State::fresh(&rule).admit(&rule, 2, now).is_admitted());
}

/// A sharer that is alone pays what is beyond the bucket too.
#[test]
fn a_full_bucket_is_not_spent_before_its_debt_is_paid() {
    let mut sharers = sharers(quota(2, 20), &[1]);
    let (rule, state) = &mut sharers[0];
    assert_eq!((state.settle(rule, 20, 0, BEGIN), state.settle(rule, 40, 20, BEGIN)), (20, 20));
    let Some(Retry::AfterNs(ns)) = state.peek(rule, 1, BEGIN).denied else { panic!("admitted") };
    let now = BEGIN.saturating_add_ns(ns);
    assert!(ns.abs_diff(23 * SECOND / 2) < 10_000, "{ns}");
    assert!(!state.peek(rule, 1, BEGIN.saturating_add_ns(ns - 10_000)).is_admitted());
    assert_eq!((0..20).filter(|_| state.admit(rule, 1, now).is_admitted()).count(), 1);
}

/// What others spent stays spent when a debt is given back. What a sharer took from the bucket returns to it.
#[test]
fn a_debt_that_is_given_back_fills_no_bucket() {
    let mut sharers = sharers(quota(10, 20), &[1; 4]);
    let [(rule, first), (_, second), (_, third), (_, other)] = &mut sharers[..] else { panic!() };
    assert_eq!((0..20).filter(|_| first.admit(rule, 1, BEGIN).is_admitted()).count(), 18);
    assert!(second.admit(rule, 2, BEGIN).is_admitted());
    for (given_back, over) in [(-30, 0), (i64::MIN, 0)] {
        assert_eq!((third.settle(rule, 50, 100, BEGIN), third.over(rule, BEGIN)), (50, 30));
        assert_eq!(third.settle(rule, given_back, 0, BEGIN), given_back.max(-50));
        assert_eq!(third.over(rule, BEGIN), over);
        assert!(!other.peek(rule, 1, BEGIN).is_admitted(), "{given_back}");
        third.settle(rule, i64::MIN, 0, BEGIN);
    }
    assert_eq!(third.settle(rule, 50, 100, BEGIN), 50);
    assert_eq!(second.settle(rule, i64::MIN, 0, BEGIN), -2);
    assert!(other.admit(rule, 2, BEGIN).is_admitted() && !second.peek(rule, 1, BEGIN).is_admitted());
}

/// Units that a stream was charged beyond the bucket come back to its sharer, and not to the bucket.
#[test]
fn growth_that_is_given_back_fills_no_bucket() {
    let mut sharers = sharers(quota(10, 20), &[1; 3]);
    let [(rule, first), (_, stream), (_, other)] = &mut sharers[..] else { panic!() };
    assert!(first.admit(rule, 10, BEGIN).is_admitted() && stream.admit(rule, 1, BEGIN).is_admitted());
    let receipt = stream.receipt(1, BEGIN);
    assert_eq!(stream.settle(rule, 50, 100, BEGIN), 50);
    let (part, rest) = state::Receipt::part(&receipt, 50, 50);
    assert_eq!((stream.refund(rule, &part, BEGIN), rest), (1, 49));
    assert_eq!(stream.settle(rule, -49, 0, BEGIN), -49);
    // The bucket lacks 10 units of the first and the one that is left of the stream, which may spend its part.
    assert_eq!(stream.look(rule, 0, BEGIN).reset_after_ns, 11 * SECOND / 10);
    assert!(stream.admit(rule, 4, BEGIN).is_admitted() && other.admit(rule, 5, BEGIN).is_admitted());
}

/// While a debt slows its payment, a sharer owes units that are back in the bucket. Others may have spent them.
#[test]
fn units_that_are_back_are_not_given_back() {
    let mut sharers = sharers(quota(10, 20), &[1; 4]);
    let [(rule, debtor), (_, first), (_, second), (_, other)] = &mut sharers[..] else { panic!() };
    assert_eq!(debtor.settle(rule, 500, 1000, BEGIN), 500);
    let full = BEGIN.saturating_add_ns(2 * SECOND);
    assert!(first.admit(rule, 8, full).is_admitted());
    let now = full.saturating_add_ns(4 * SECOND / 5);
    assert!(second.admit(rule, 6, now).is_admitted());
    assert_eq!(first.settle(rule, i64::MIN, 0, now), -4);
    assert!(other.peek(rule, 14, now).is_admitted() && !other.peek(rule, 15, now).is_admitted());
}

/// What happens to one of four sharers.
#[derive(Clone, Debug)]
enum Event {
    Ask(u64),
    Charge(i64, u64),
    GiveBack(i64),
    Refund,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1_u64..8).prop_map(Event::Ask),
        2 => (1_i64..60, 0_u64..60).prop_map(|(units, max_debt)| Event::Charge(units, max_debt)),
        1 => (-60_i64..0).prop_map(Event::GiveBack),
        1 => Just(Event::Refund),
    ]
}

proptest! {
    /// Whatever is settled: no units are forgiven that have not come back, no unit given back is one that others spent, and a
    /// refused request passes when it says. The first two sharers only ask.
    #[test]
    fn debts_stay_within_the_bound(
        events in prop::collection::vec((0_usize..4, event(), 0_u64..2500), 1..120),
        last in (0_usize..4, 1_u64..20),
    ) {
        let mut sharers = sharers(quota(10, 20), &[1, 2, 1, 1]);
        let (mut now, mut net, mut asked, mut receipts) = (BEGIN, 0, 0, [None; 4]);
        for (index, event, pause_ms) in events {
            now = now.saturating_add_ns(pause_ms * 1_000_000);
            let (rule, state) = &mut sharers[index];
            let is_settled = index >= 2;
            let charged = match event {
                Event::Ask(cost) => {
                    let is_admitted = state.admit(rule, cost, now).is_admitted();
                    receipts[index] = is_admitted.then(|| state.receipt(cost, now)).or(receipts[index]);
                    i64::try_from(if is_admitted { cost } else { 0 }).unwrap()
                }
                Event::Charge(units, max_debt) if is_settled => state.settle(rule, units, max_debt, now),
                Event::GiveBack(units) if is_settled => state.settle(rule, units, 0, now),
                Event::Refund if is_settled => {
                    let receipt = receipts[index].take();
                    -i64::try_from(receipt.map_or(0, |receipt| state.refund(rule, &receipt, now))).unwrap()
                }
                _ => 0,
            };
            net += charged;
            asked += if is_settled { 0 } else { charged };
            let returned = pool::units(now.ns_since(BEGIN)) / pool::units(SECOND) * 10.0;
            let owed: f64 = sharers.iter().map(|(rule, state)| rule.pool(now).owed(state.asker(rule))).sum();
            prop_assert!(f64::from(i32::try_from(net).unwrap()) <= returned + owed + 2.0, "{net} of {returned} and {owed}");
            prop_assert!(f64::from(i32::try_from(asked).unwrap()) <= returned + 20.0 + 2.0, "{asked} of {returned}");
        }
        // Others that were refused may leave earlier than an estimate has it.
        let (rule, state) = &mut sharers[last.0];
        let mut asks = (0..4).map(|_| {
            let decision = state.admit(rule, last.1, now);
            if let Some(Retry::AfterNs(ns)) = decision.denied {
                now = now.saturating_add_ns(ns);
            }
            decision.is_admitted()
        });
        prop_assert!(asks.any(|is_admitted| is_admitted));
    }
}

/// Costs of many units, of one that waits, next to sharers that take each unit at once.
#[test]
fn a_large_request_is_not_starved() {
    for (per_second, burst, cost, others) in [(10, 10, 5, 3), (10, 10, 5, 9), (10, 10, 10, 1), (10, 100, 5, 3)] {
        let flood = Asks { per_second: ASKS.per_second.min(10.0 * pool::units(per_second)), ..ASKS };
        let mut all = vec![flood; others + 1];
        all[0] = Asks { cost, waits: true, ..ASKS };
        let got = simulate(quota(per_second, burst), &all, 60);
        let fair = 60.0 * pool::units(per_second) / pool::units(others as u64 + 1);
        assert!(got[0].0 >= 0.85 * fair, "{} of {fair}: cost {cost}, burst {burst}", got[0].0);
    }
}

/// Sharers that have paid leave larger parts, and a full bucket ends all debts.
#[test]
fn a_wait_considers_those_who_leave() {
    let mut all = sharers(quota(100, 1000), &[1, 1]);
    let [(rule, first), (_, second)] = &mut all[..] else { panic!() };
    assert_eq!((0..2000).filter(|_| first.admit(rule, 1, BEGIN).is_admitted()).count(), 900);
    assert!(second.admit(rule, 1, BEGIN).is_admitted());
    let Some(Retry::AfterNs(ns)) = first.peek(rule, 1, BEGIN).denied else { panic!("admitted") };
    assert!(ns < SECOND / 10, "{ns}");
    // Others that were refused, and never return.
    for _ in 0..50 {
        let mut one = State::fresh(rule);
        assert!(!one.admit(rule, 1000, BEGIN).is_admitted());
    }
    let full = BEGIN.saturating_add_ns(10 * SECOND + PATIENCE_NS);
    assert!(first.idle_at() > full);
    assert!(first.admit(rule, 1, full).is_admitted() && first.peek(rule, 10, full).is_admitted());
}

#[test]
fn a_sharer_alone_has_all_but_a_tenth_of_the_burst() {
    for (burst, expected) in [(1, 1), (9, 9), (10, 9), (100, 90), (1000, 900)] {
        let mut sharers = sharers(quota(10, burst), &[1, 1]);
        let [(rule, first), (_, second)] = &mut sharers[..] else { panic!() };
        let admitted = (0..2000).filter(|_| first.admit(rule, 1, BEGIN).is_admitted()).count();
        assert_eq!(admitted, expected, "burst {burst}");
        // The rest is for another one.
        let rest = usize::try_from(burst).unwrap() - expected;
        let admitted = (0..2000).filter(|_| second.admit(rule, 1, BEGIN).is_admitted()).count();
        assert_eq!(admitted, rest, "burst {burst}");
    }
}

#[test]
fn a_wait_ends_when_it_says() {
    let mut sharers = sharers(quota(10, 20), &[1, 3]);
    for _ in 0..30 {
        for (rule, state) in &mut sharers {
            let _ = state.admit(rule, 1, BEGIN);
        }
    }
    for (rule, state) in &mut sharers {
        let Some(Retry::AfterNs(ns)) = state.peek(rule, 2, BEGIN).denied else { panic!("admitted") };
        let at = |ns: u64| BEGIN.saturating_add_ns(ns);
        // The clock counts by `f64`.
        assert!(!state.peek(rule, 2, at(ns - 10_000)).is_admitted(), "{ns}");
        assert!(state.clone().admit(rule, 2, at(ns)).is_admitted(), "{ns}");
        assert_eq!(state.wait(rule, 0, 21, BEGIN), Retry::Never);
        assert!(state.wait(rule, 3, 2, at(ns)) > Retry::AfterNs(0));
    }
}

#[test]
fn a_charge_is_given_back_once() {
    let mut sharers = sharers(quota(10, 20), &[1, 1]);
    let [(rule, first), (_, second)] = &mut sharers[..] else { panic!() };
    let later = BEGIN.saturating_add_ns(SECOND / 100);
    assert!(first.admit(rule, 5, BEGIN).is_admitted());
    let receipt = first.receipt(5, BEGIN);
    assert!(second.admit(rule, 5, BEGIN).is_admitted());
    let before = (first.peek(rule, 0, BEGIN).remaining, second.peek(rule, 0, BEGIN).remaining);
    assert_eq!(before, (4, 4));
    assert_eq!(first.refund(rule, &receipt, later), 5);
    assert_eq!(first.peek(rule, 0, later).remaining, 9);
    assert!(first.idle_at() <= later && second.idle_at() > later);
}

/// A sharer pays for what its answers cost beyond the burst, and a reset gives back only what it owes.
#[test]
fn answers_that_cost_much_are_paid_by_their_sharer() {
    let mut sharers = sharers(quota(10, 20), &[1, 1]);
    let [(rule, first), (_, second)] = &mut sharers[..] else { panic!() };
    assert!(second.admit(rule, 3, BEGIN).is_admitted());
    for (max_debt, charged, over) in [(0, 20, 0), (50, 50, 50), (u64::MAX, 500, 550)] {
        assert_eq!((first.settle(rule, 500, max_debt, BEGIN), first.over(rule, BEGIN)), (charged, over), "{max_debt}");
    }
    assert_eq!(second.over(rule, BEGIN), 0);
    // The bucket has no debt, so the other goes on as soon as it has paid.
    let later = BEGIN.saturating_add_ns(SECOND);
    assert!(second.peek(rule, 3, later).is_admitted() && !first.peek(rule, 1, later).is_admitted());
    assert_eq!(first.settle(rule, i64::MIN, 0, later), -563);
    assert_eq!(first.over(rule, later), 0);
}

#[test]
fn a_new_rule_goes_on_with_the_pool() {
    let known = OnceLock::new();
    let [old, new] = [quota(10, 20), quota(5, 20)].map(|quota| Rule::new(quota, 1, SharedPool::default()));
    old.join(&known);
    let mut state = State::fresh(&old);
    assert!(state.admit(&old, 9, BEGIN).is_admitted());
    new.join(&known);
    // One unit more than its part.
    let Some(Retry::AfterNs(ns)) = state.peek(&new, 10, BEGIN).denied else { panic!("admitted") };
    assert!(ns.abs_diff(SECOND / 5) < 10_000, "{ns}");
    // A larger weight pays faster; what is owed stays.
    let heavy = Rule::new(quota(5, 20), 9, new.0.pool.clone());
    let mut other = State::fresh(&new);
    assert!(other.admit(&new, 9, BEGIN).is_admitted());
    for (rule, idle_ms) in [(&new, 3600), (&heavy, 2000)] {
        state.settle(rule, 0, 0, BEGIN);
        let idle_ns = state.idle_at().ns_since(BEGIN);
        assert!(idle_ns.abs_diff(idle_ms * 1_000_000) < 10_000, "{idle_ns}");
    }
}

/// A higher rate applies at once, also if each sharer owes too much to be charged under it.
#[test]
fn a_new_rate_applies_to_sharers_that_are_refused() {
    let pool = SharedPool::default();
    let slow = Quota::new(Rate { count: 1, period_ns: 3600 * SECOND }, 10).unwrap();
    let [slow, fast] = [slow, quota(10, 10)].map(|quota| Rule::new(quota, 1, pool.clone()));
    let [mut state, mut other, mut left] = [(); 3].map(|()| State::fresh(&slow));
    assert!((0..9).all(|_| state.admit(&slow, 1, BEGIN).is_admitted()) && other.admit(&slow, 1, BEGIN).is_admitted());
    assert!(!left.admit(&slow, 1, BEGIN).is_admitted());
    let Some(Retry::AfterNs(ns)) = state.peek(&fast, 1, BEGIN).denied else { panic!("admitted") };
    assert!(ns <= SECOND, "{ns}");
    assert!(state.admit(&fast, 1, BEGIN.saturating_add_ns(ns)).is_admitted());
    for state in [state, other, left] {
        assert!(state.idle_at() <= BEGIN.saturating_add_ns(ns + 2 * SECOND));
    }
}

/// Refused sharers that never return do not slow the others for long.
#[test]
fn a_sharer_that_has_left_does_not_count() {
    let mut sharers = sharers(quota(10, 5), &[1; 9]);
    for (rule, state) in &mut sharers {
        let _ = state.admit(rule, 1, BEGIN);
    }
    let (rule, state) = &mut sharers[0];
    let from = BEGIN.saturating_add_ns(2 * SECOND);
    let at = |tick: u64| from.saturating_add_ns(tick * SECOND / 100);
    let admitted = (0..1000).filter(|tick| state.admit(rule, 1, at(*tick)).is_admitted()).count();
    assert!((99..=105).contains(&admitted), "{admitted}");
}

/// Asks again at the instant that each refusal names, and returns the seconds until it is admitted.
fn seconds_until_admitted(rule: &Rule, state: &mut State, cost: u64, from: Timestamp) -> u64 {
    let mut now = from;
    while let Some(Retry::AfterNs(ns)) = state.admit(rule, cost, now).denied {
        now = now.saturating_add_ns(ns);
    }
    now.ns_since(from) / SECOND
}

/// Sharers beyond those that an estimate considers leave too: those that pay, and those that never return.
#[test]
fn many_sharers_that_leave_delay_nobody_for_long() {
    for (cost, count) in [(1, 100), (1000, 1000)] {
        let mut all = sharers(quota(100, 1000), &[1; 1001]);
        let [(rule, first), others @ ..] = &mut all[..] else { panic!() };
        assert_eq!((0..2000).filter(|_| first.admit(rule, 1, BEGIN).is_admitted()).count(), 900);
        for (rule, state) in &mut others[..count] {
            assert_eq!(state.admit(rule, cost, BEGIN).is_admitted(), cost == 1);
        }
        let waited = seconds_until_admitted(rule, first, 1, BEGIN);
        assert!(waited <= 12, "{waited} seconds after {count} others");
    }
}
