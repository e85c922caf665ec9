//! Properties of every algorithm, for every rule and every trace.

use proptest::prelude::*;

use super::START_NS;
use crate::base::time::Timestamp;
use crate::engine::limit::AlgorithmName::{self, Concurrency, LeakyBucket, TokenBucket};
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, BACKDATE_NS_MAX, Calendar, Rate, Retry, Settings, Unit};

const SECOND_NS: u64 = 1_000_000_000;

fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![Just(SECOND_NS), Just(60 * SECOND_NS), 100_000_u64..10 * SECOND_NS]
}

fn calendars() -> impl Strategy<Value = Calendar> {
    let units = prop_oneof![
        Just((Unit::Millisecond, 250)),
        Just((Unit::Second, 1)),
        Just((Unit::Minute, 15)),
        Just((Unit::Hour, 1)),
        Just((Unit::Hour, 5)),
        Just((Unit::Day, 1)),
        Just((Unit::Week, 1)),
        Just((Unit::Month, 1)),
    ];
    (units, prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Australia/Lord_Howe")])
        .prop_map(|((unit, every), zone)| Calendar::new(unit, every, zone).unwrap())
}

/// Algorithms whose units come back with time.
fn timed() -> impl Strategy<Value = AlgorithmName> {
    prop::sample::select(&AlgorithmName::ALL)
        .prop_map(|(_, name)| name)
        .prop_filter("no time", |name| *name != Concurrency)
}

/// A limit of this algorithm.
fn of(name: AlgorithmName) -> impl Strategy<Value = Algorithm> {
    let rates = (1_u64..30, periods()).prop_map(|(count, period_ns)| Rate { count, period_ns });
    let parts = (rates, 1_u64..30, any::<bool>(), prop::option::of(calendars()), 1_u32..9);
    parts.prop_map(move |(rate, burst, shapes, calendar, sub_windows)| {
        name.rule(&Settings { rate, burst, shapes, calendar, sub_windows }).unwrap()
    })
}

/// One limit on time, of any algorithm.
pub(crate) fn singles() -> impl Strategy<Value = Algorithm> {
    timed().prop_flat_map(of)
}

/// One limit whose state is a bucket.
pub(super) fn buckets() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(TokenBucket), Just(LeakyBucket)].prop_flat_map(of)
}

/// Two limits of one algorithm.
fn pairs() -> impl Strategy<Value = (Algorithm, Algorithm)> {
    timed().prop_flat_map(|name| (of(name), of(name)))
}

/// One limit on time, or several at once.
pub(super) fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        7 => singles(),
        1 => prop::collection::vec(singles(), 2..4).prop_map(|rules| Algorithm::Several(rules.into())),
    ]
}

/// A length of time that matters to `rule`.
pub(super) fn tick_ns(rule: &Algorithm) -> u64 {
    let ticks = |rate: &Algorithm| match rate.interval_ns() {
        0 => rate.period_ns().unwrap() / 16,
        interval_ns => interval_ns / 8,
    };
    rule.rates().iter().map(ticks).min().unwrap()
}

/// Requests: ticks since the request before, and a cost.
pub(crate) type Trace = Vec<(u64, u64)>;

pub(crate) fn traces() -> impl Strategy<Value = Trace> {
    prop::collection::vec((prop_oneof![4 => Just(0_u64), 3 => 0_u64..8, 1 => 0_u64..80], 0_u64..6), 1..60)
}

/// The requests of a trace from `start` on.
pub(crate) fn instants(rule: &Algorithm, trace: &[(u64, u64)], start: Timestamp) -> Vec<(Timestamp, u64)> {
    let mut now = start;
    let each = |&(ticks, cost): &(u64, u64)| {
        now = now.saturating_add_ns(ticks * tick_ns(rule) + ticks % 3);
        (now, cost)
    };
    trace.iter().map(each).collect()
}

pub(super) fn start() -> Timestamp {
    Timestamp::from_ns(START_NS)
}

/// A state after a trace, and the instant of its end. Every seventh request is charged beyond the limit, if allowed.
pub(super) fn after(rule: &Algorithm, trace: &[(u64, u64)], may_owe: bool) -> (AnyState, Timestamp) {
    let mut state = AnyState::fresh(rule);
    let mut end = start();
    for (index, (now, cost)) in instants(rule, trace, start()).into_iter().enumerate() {
        state.admit(rule, cost, now);
        if may_owe && index % 7 == 6 {
            state.settle(rule, 5 - i64::try_from(cost * 2).unwrap(), 4, now);
        }
        end = now;
    }
    (state, end)
}

/// Fails if the admitted units of any span exceed the rule's bound.
pub(super) fn assert_bound(rule: &Algorithm, admitted: &[(Timestamp, u64)]) -> Result<(), TestCaseError> {
    for (first, (from, _)) in admitted.iter().enumerate() {
        let mut units = 0;
        for (to, cost) in &admitted[first..] {
            units += cost;
            prop_assert!(units <= rule.bound(to.ns_since(*from)), "{} in a span of {:?}", units, to.ns_since(*from));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_span_stays_within_the_bound(rule in algorithms(), trace in traces()) {
        let mut state = AnyState::fresh(&rule);
        let requests = instants(&rule, &trace, start()).into_iter();
        let admitted: Vec<_> = requests.filter(|(now, cost)| state.admit(&rule, *cost, *now).is_admitted()).collect();
        assert_bound(&rule, &admitted)?;
    }

    #[test]
    fn remaining_is_what_is_admitted_and_reset_is_when_it_is_full(
        rule in algorithms(), trace in traces(), may_owe in any::<bool>(),
    ) {
        let (mut state, now) = after(&rule, &trace, may_owe);
        for cost in [0, 1, 3] {
            let peeked = state.peek(&rule, cost, now);
            let decision = state.admit(&rule, cost, now);
            prop_assert_eq!(peeked, decision);
            prop_assert!(state.peek(&rule, decision.remaining, now).is_admitted());
            prop_assert!(!state.peek(&rule, decision.remaining + 1, now).is_admitted());
            let reset_at = now.saturating_add_ns(decision.reset_after_ns);
            let (before, reset) = (reset_at.saturating_sub_ns(1), state.peek(&rule, 0, reset_at));
            prop_assert_eq!((reset.remaining, reset.reset_after_ns), (rule.capacity(), 0));
            prop_assert!(before < now || state.peek(&rule, 0, before).reset_after_ns == 1);
            prop_assert!(state.idle_at().max(now) >= reset_at);
            prop_assert!(cost > 0 || decision.is_admitted());
        }
    }

    #[test]
    fn denied_until_retry_and_admitted_at_it(
        rule in algorithms(), trace in traces(), may_owe in any::<bool>(), cost in 1_u64..30, part in 1_u64..999,
    ) {
        let (state, now) = after(&rule, &trace, may_owe);
        match state.peek(&rule, cost, now).denied {
            Some(Retry::AfterNs(retry_ns)) => {
                let part_ns = retry_ns / 1000 * part;
                for sample_ns in [1, part_ns, retry_ns - 1].into_iter().filter(|ns| *ns < retry_ns) {
                    let mut state = state.clone();
                    let decision = state.admit(&rule, cost, now.saturating_add_ns(sample_ns));
                    prop_assert_eq!(decision.denied, Some(Retry::AfterNs(retry_ns - sample_ns)));
                }
                prop_assert!(state.peek(&rule, cost, now.saturating_add_ns(retry_ns)).is_admitted());
            }
            denied => prop_assert_eq!(denied, (cost > rule.capacity()).then_some(Retry::Never)),
        }
    }

    #[test]
    fn a_look_changes_no_decision_that_is_dated_back(
        rule in algorithms(), trace in traces(), cost in 1_u64..5, later_ns in 0_u64..2 * BACKDATE_NS_MAX,
        back_ns in 0..=BACKDATE_NS_MAX,
    ) {
        let (state, end) = after(&rule, &trace, true);
        let now = end.saturating_add_ns(later_ns);
        // As the gate backdates: never into a window that has ended.
        let as_of = rule.chargeable_from(now.saturating_sub_ns(back_ns), now).max(end);
        let mut looked = state.clone();
        looked.adopt(&rule, now);
        looked.peek(&rule, cost, now);
        prop_assert_eq!(looked.peek(&rule, cost, as_of), state.peek(&rule, cost, as_of));
        // Nor does a charge let more pass before it: no more than before the charge, or than after it if it began a window,
        // which all later charges fall into.
        if looked.admit(&rule, cost, now).is_admitted() {
            let dated_back = looked.peek(&rule, cost, as_of);
            let remaining = [state.peek(&rule, 0, as_of), looked.peek(&rule, 0, now)].map(|decision| decision.remaining);
            prop_assert!(Some(dated_back.remaining) <= remaining.into_iter().max());
            if let Some(Retry::AfterNs(ns)) = dated_back.denied {
                prop_assert!(looked.peek(&rule, cost, as_of.saturating_add_ns(ns)).is_admitted());
            }
        }
    }

    #[test]
    fn idle_equals_fresh_under_any_rule(
        was in algorithms(), rule in algorithms(), trace in traces(), next in traces(), later in 0_u64..1000,
    ) {
        let (mut idle, end) = after(&was, &trace, true);
        let mut fresh = AnyState::fresh(&rule);
        let from = idle.idle_at().max(end).saturating_add_ns(later);
        for (now, cost) in instants(&rule, &next, from) {
            prop_assert_eq!(idle.admit(&rule, cost, now), fresh.admit(&rule, cost, now));
        }
    }

    #[test]
    fn another_algorithm_starts_fresh(was in singles(), rule in singles(), trace in traces(), next in traces()) {
        prop_assume!(was.name() != rule.name());
        let (mut changed, end) = after(&was, &trace, true);
        let mut fresh = AnyState::fresh(&rule);
        for (now, cost) in instants(&rule, &next, end) {
            prop_assert_eq!(changed.peek(&rule, cost, now), fresh.peek(&rule, cost, now));
            prop_assert_eq!(changed.admit(&rule, cost, now), fresh.admit(&rule, cost, now));
        }
    }

    #[test]
    fn other_numbers_never_give_units((was, rule) in pairs(), trace in traces()) {
        let shapes = |rule: &Algorithm| matches!(rule, Algorithm::LeakyBucket(quota) if quota.shapes());
        // A bucket that shapes has no units between two requests. A log knows the units of a shorter period.
        let is_shorter_log = was.name() == "sliding_log" && was.period_ns() > rule.period_ns();
        if shapes(&was) || shapes(&rule) || is_shorter_log {
            return Ok(());
        }
        let (mut state, now) = after(&was, &trace, false);
        let used = was.capacity() - state.peek(&was, 0, now).remaining;
        let peeked = state.peek(&rule, 0, now);
        prop_assert!(peeked.remaining <= rule.capacity().saturating_sub(used));
        state.adopt(&rule, now);
        prop_assert_eq!(state.peek(&rule, 0, now), peeked);
        // It is paid under the new rule, whose retry is then right.
        if let Some(Retry::AfterNs(retry_ns)) = state.peek(&rule, 1, now).denied {
            prop_assert!(!state.peek(&rule, 1, now.saturating_add_ns(retry_ns - 1)).is_admitted());
            prop_assert!(state.peek(&rule, 1, now.saturating_add_ns(retry_ns)).is_admitted());
        }
    }

    #[test]
    fn wait_is_when_the_last_of_a_queue_is_admitted(
        rule in singles(), trace in traces(), cost in 1_u64..30, others in 0_u64..40,
    ) {
        let (mut state, start) = after(&rule, &trace, true);
        let cost = cost.min(rule.capacity());
        let expected = state.wait(&rule, others * cost, cost, start);
        let mut now = start;
        for _ in 0..=others {
            if let Some(Retry::AfterNs(ns)) = state.peek(&rule, cost, now).denied {
                now = now.saturating_add_ns(ns);
            }
            prop_assert!(state.admit(&rule, cost, now).is_admitted());
        }
        prop_assert_eq!(Retry::AfterNs(now.ns_since(start)), expected);
    }

    #[test]
    fn debt_is_bounded_and_paid_before_anything_passes(
        rule in singles(), trace in traces(), extra in 0_i64..100, max_debt in 0_u64..50,
    ) {
        let (mut state, now) = after(&rule, &trace, false);
        state.settle(&rule, extra, max_debt, now);
        let over = state.over(&rule, now);
        prop_assert!(over <= max_debt);
        let decision = state.peek(&rule, 1, now);
        if over > 0 {
            prop_assert!(decision.remaining == 0 && !decision.is_admitted());
            state.settle(&rule, -i64::try_from(over).unwrap(), max_debt, now);
            prop_assert_eq!(state.over(&rule, now), 0);
        }
        state.settle(&rule, i64::MIN, max_debt, now);
        let full = state.peek(&rule, 0, now);
        prop_assert_eq!((full.remaining, full.reset_after_ns), (rule.capacity(), 0), "never above full");
    }
}
