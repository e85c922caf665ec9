//! Properties of every quota and every trace.

use proptest::prelude::*;

use super::{START_NS, State};
use crate::base::time::Timestamp;
use crate::engine::limit::lost_time::LostTime;
use crate::engine::limit::state::{self, State as _};
use crate::engine::limit::token_bucket::Receipt;
use crate::engine::limit::{Quota, Rate, Retry};

fn quotas() -> impl Strategy<Value = Quota> {
    let periods = prop_oneof![Just(1_000_000_000_u64), Just(60_000_000_000), 100_u64..10_000_000_000];
    (1_u64..1000, periods, 1_u64..50)
        .prop_filter_map("a quota", |(count, period_ns, burst)| Quota::new(Rate { count, period_ns }, burst).ok())
}

/// Requests: nanoseconds since the request before, in parts of `interval / 8`, and a cost.
fn traces() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![Just(0_u64), 0_u64..16, 0_u64..400], 0_u64..6), 1..60)
}

fn instants(quota: &Quota, trace: &[(u64, u64)]) -> Vec<(Timestamp, u64)> {
    let mut now_ns = START_NS;
    let each = |&(gap, cost): &(u64, u64)| {
        now_ns += gap * quota.interval_ns() / 8 + gap % 3;
        (Timestamp::from_ns(now_ns), cost)
    };
    trace.iter().map(each).collect()
}

fn after(trace: &[(u64, u64)], quota: &Quota) -> (State, Timestamp) {
    let mut state = State::fresh(quota);
    let mut end = Timestamp::from_ns(START_NS);
    for (now, cost) in instants(quota, trace) {
        state.admit(quota, cost, now);
        end = now;
    }
    (state, end)
}

proptest! {
    #[test]
    fn any_span_admits_at_most_burst_and_what_came_back(quota in quotas(), trace in traces()) {
        let mut state = State::fresh(&quota);
        let requests = instants(&quota, &trace).into_iter();
        let admitted: Vec<_> = requests.filter(|(now, cost)| state.admit(&quota, *cost, *now).is_admitted()).collect();
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut units = 0;
            for (to, cost) in &admitted[first..] {
                units += cost;
                prop_assert!(units <= quota.burst() + to.ns_since(*from) / quota.interval_ns());
            }
        }
    }

    #[test]
    fn denied_until_retry_and_admitted_at_it(
        was in quotas(), quota in quotas(), trace in traces(), cost in 1_u64..50, part in 0.0_f64..1.0,
    ) {
        let (mut state, now) = after(&trace, &was);
        if let Some(Retry::AfterNs(retry_ns)) = state.admit(&quota, cost, now).denied {
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let before_ns = (retry_ns as f64 * part) as u64;
            for sample_ns in [1, before_ns, retry_ns - 1].into_iter().filter(|ns| *ns < retry_ns) {
                let decision = state.admit(&quota, cost, now.saturating_add_ns(sample_ns));
                prop_assert_eq!(decision.denied, Some(Retry::AfterNs(retry_ns - sample_ns)));
            }
            prop_assert!(state.admit(&quota, cost, now.saturating_add_ns(retry_ns)).is_admitted());
        }
    }

    #[test]
    fn idle_equals_fresh(was in quotas(), quota in quotas(), trace in traces(), next in traces(), later in 0_u64..1000) {
        let (mut idle, end) = after(&trace, &was);
        let mut fresh = State::fresh(&quota);
        let from = idle.idle_at().max(end).saturating_add_ns(later);
        for (now, cost) in instants(&quota, &next) {
            let now = from.saturating_add_ns(now.as_ns() - START_NS);
            prop_assert_eq!(idle.admit(&quota, cost, now), fresh.admit(&quota, cost, now));
        }
    }

    #[test]
    fn refund_at_once_restores_every_decision(quota in quotas(), trace in traces(), cost in 0_u64..50, next in traces()) {
        let (mut untouched, now) = after(&trace, &quota);
        let mut refunded = untouched;
        let decision = refunded.admit(&quota, cost, now);
        if decision.is_admitted() {
            let receipt = refunded.receipt(cost, now);
            state::State::refund(&mut refunded, &quota, &receipt, now);
        }
        for (later, cost) in instants(&quota, &next) {
            let now = now.saturating_add_ns(later.as_ns() - START_NS);
            prop_assert_eq!(refunded.admit(&quota, cost, now), untouched.admit(&quota, cost, now));
        }
    }

    /// One request is given back at a later moment: all others together stay within the bound.
    #[test]
    fn refund_at_any_time_never_admits_more(
        quota in quotas(), trace in traces(), which in any::<prop::sample::Index>(), hold in 0_usize..20,
    ) {
        let mut state = State::fresh(&quota);
        let requests = instants(&quota, &trace);
        let which = which.index(requests.len());
        let mut charge = None;
        let mut kept = Vec::new();
        for (index, (now, cost)) in requests.iter().copied().enumerate() {
            if index == which + hold && let Some((cost, full_at)) = charge {
                state.refund(cost, full_at, now);
            }
            let decision = state.admit(&quota, cost, now);
            match decision.is_admitted() {
                true if index == which => charge = Some((cost, decision.full_at(now))),
                true => kept.push((now, cost)),
                false => {}
            }
        }
        for (first, (from, _)) in kept.iter().enumerate() {
            let mut units = 0;
            for (to, cost) in &kept[first..] {
                units += cost;
                prop_assert!(units <= quota.burst() + to.ns_since(*from) / quota.interval_ns());
            }
        }
    }

    #[test]
    fn wait_is_when_the_last_of_a_queue_is_admitted(
        quota in quotas(), trace in traces(), costs in prop::collection::vec(1_u64..50, 1..20),
    ) {
        let (mut state, start) = after(&trace, &quota);
        let costs: Vec<u64> = costs.into_iter().map(|cost| cost.min(quota.burst())).collect();
        let expected_ns = state.wait_ns(&quota, costs.iter().sum(), start);
        let mut now = start;
        for cost in costs {
            if let Some(Retry::AfterNs(ns)) = state.peek(&quota, cost, now).denied {
                now = now.saturating_add_ns(ns);
            }
            prop_assert!(state.admit(&quota, cost, now).is_admitted());
        }
        prop_assert_eq!(now.ns_since(start), expected_ns);
    }

    #[test]
    fn another_rate_never_gives_units(
        was in quotas(), count in 1_u64..1000, period_ns in 100_u64..60_000_000_000, trace in traces(),
    ) {
        let (mut state, now) = after(&trace, &was);
        let Ok(quota) = Quota::new(Rate { count, period_ns }, was.burst()) else { return Ok(()) };
        let before = state.peek(&was, 0, now).remaining;
        let converted = state.peek(&quota, 0, now).remaining;
        prop_assert!(converted <= before);
        prop_assert!(before - converted <= 1, "rounding costs at most a unit");
        state.adopt(&quota, now);
        prop_assert_eq!(state.peek(&quota, 0, now).remaining, converted);
    }

    /// Requests are given back late and in any order: a bucket that never saw them is never emptier, not even if the state
    /// is forgotten whenever it may be, while the lost time is known.
    #[test]
    fn refunds_in_any_order_never_give_too_much(
        burst in 1_u64..6,
        requests in prop::collection::vec(
            (
                prop_oneof![Just(0_u64), 0_u64..12],
                1_u64..4,
                prop::option::weighted(0.7, prop_oneof![Just(0_u64), 0_u64..16]),
            ),
            1..40,
        ),
        order in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let quota = Quota::new(Rate { count: 1, period_ns: 1_000_000_000 }, burst).unwrap();
        let eighths = |eighths: u64| eighths * quota.interval_ns() / 8;
        let mut state = State::fresh(&quota);
        let mut lost = LostTime::default();
        let mut charges: Vec<Charge> = Vec::new();
        let mut now = Timestamp::from_ns(START_NS);
        for ((gap, cost, undone_after), order) in requests.into_iter().zip(order) {
            now = now.saturating_add_ns(eighths(gap));
            loop {
                let is_due = |charge: &Charge| charge.undone_at.is_some_and(|at| at <= now);
                let due: Vec<usize> = (0..charges.len()).filter(|&which| is_due(&charges[which])).collect();
                if due.is_empty() {
                    break;
                }
                let charge = charges.remove(due[order.index(due.len())]);
                let lose = |at, most_ns| lost.lose(at, most_ns, now);
                state.give_back(&charge.receipt, quota.interval_ns(), lose, now);
                let mut exact = State::fresh(&quota);
                for charge in &charges {
                    exact.fill_until(charge.replay(&exact, &quota), now);
                }
                prop_assert!(state.tat.max(now) >= exact.tat.max(now));
            }
            if state.idle_at() <= now {
                state = State::fresh(&quota);
            }
            if state.admit(&quota, cost, now).is_admitted() {
                let undone_at = undone_after.map(|later| now.saturating_add_ns(eighths(later)));
                charges.push(Charge { at: now, cost, receipt: state.receipt(cost, now), undone_at });
            }
        }
    }
}

proptest! {
    /// As the property above, while the interval changes. The map knows when, and the shortest interval.
    #[test]
    fn refunds_after_changes_never_give_too_much(
        burst in 1_u64..20,
        requests in prop::collection::vec(
            (0_u64..12, 1_u64..4, prop::option::weighted(0.7, 0_u64..16), prop::option::weighted(0.2, 0_usize..4)), 1..40,
        ),
        order in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let quotas = [1, 2, 3, 10].map(|count| Quota::new(Rate { count, period_ns: 1_000_000_000 }, burst).unwrap());
        let (mut quota, mut state) = (&quotas[1], State::fresh(&quotas[1]));
        let (mut changed_at, mut shortest_ns) = (Timestamp::ZERO, u64::MAX);
        // The charges that are not given back, and the changes.
        let mut history: Vec<(Timestamp, Quota, u64)> = Vec::new();
        let mut due: Vec<(Timestamp, Receipt)> = Vec::new();
        let mut now = Timestamp::from_ns(START_NS);
        for ((gap, cost, undone_after, change), order) in requests.into_iter().zip(order) {
            now = now.saturating_add_ns(gap * 62_500_000);
            quota = change.map_or(quota, |index| &quotas[index]);
            if !state.is_under(quota) {
                (changed_at, shortest_ns) = (now, shortest_ns.min(state.shorter_interval_ns(quota)));
                state.adopt(quota, now);
            }
            history.push((now, *quota, 0));
            let mut ready: Vec<_> = due.extract_if(.., |(at, _)| *at <= now).collect();
            while !ready.is_empty() {
                let (_, receipt) = ready.remove(order.index(ready.len()));
                if receipt.at < changed_at {
                    state.give_back_changed(&receipt, shortest_ns, now);
                } else {
                    state.give_back(&receipt, quota.interval_ns(), |_, most_ns| most_ns, now);
                }
            }
            if state.idle_at() <= now {
                state = State::fresh(quota);
            }
            if state.admit(quota, cost, now).is_admitted() {
                let undone = undone_after.map(|later| now.saturating_add_ns(later * 62_500_000));
                due.extend(undone.map(|at| (at, state.receipt(cost, now))));
                history.push((now, *quota, if undone.is_some() { 0 } else { cost }));
            }
            let mut exact = State::fresh(&quotas[1]);
            for (at, quota, kept) in &history {
                exact.adopt(quota, *at);
                exact.fill_until(exact.tat.max(*at).saturating_add_ns(kept * quota.interval_ns()), *at);
            }
            // A conversion rounds up.
            prop_assert!(state.tat.max(now).saturating_add_ns(1000) >= exact.tat.max(now));
        }
    }
}

#[derive(Debug)]
struct Charge {
    at: Timestamp,
    cost: u64,
    receipt: Receipt,
    undone_at: Option<Timestamp>,
}

impl Charge {
    /// The instant at which `bucket` would be full again after this charge, whether it fits or not.
    fn replay(&self, bucket: &State, quota: &Quota) -> Timestamp {
        bucket.tat.max(self.at).saturating_add_ns(self.cost * quota.interval_ns())
    }
}
