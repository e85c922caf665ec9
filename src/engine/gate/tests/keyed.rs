//! Corrections that another Weir sends about keys of a limit.

use smallvec::smallvec;

use super::redis::NoStore;
use super::stream::{Fleet, Node, shared};
use super::*;
use crate::base::telemetry::LimitDecision;
use crate::engine::gate::{KeyedCharge, KeyedLimit};
use crate::engine::limit::late::LateUnits;
use crate::engine::store::backend::Handling;
use crate::engine::store::stream::Ledger as _;

/// Charges `units` of the key `x` of the limit `a`, or gives them back, as of now.
fn settle(gate: &Gate, live: &Live, units: i64, max_debt: u64) {
    let charge = gate.named_charge(live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap();
    let rule = live.policy.by_name("a").unwrap().limit.allowed.usual.digest();
    let of = KeyedLimit { limit: "a", key: charge.key, rule };
    gate.settle_keyed_late(live, &of, &smallvec![smallvec![LateUnits { units, age_ns: 0 }]], max_debt);
}

#[tokio::test(start_paused = true)]
async fn late_units_that_come_back_wake_a_request() {
    let gate = new_gate();
    let live = install(gate, [limit("a", 1, "1h", 1, hold(None))], CAPS);
    let headers = headers(&["a=x"]);
    let Step::Pass(mut pass) = ask(gate, live, &headers) else { panic!("it has a unit") };
    pass.charged.commit(true);
    let Step::Wait(waiting) = ask(gate, live, &headers) else { panic!("it has none") };
    let waiting = tokio::spawn(timeout(Duration::from_secs(1), async move { waiting.wait(&NoStore).await }));
    tokio::task::yield_now().await;
    settle(gate, live, -1, 0);
    assert!(waiting.await.unwrap().is_ok_and(|woken| woken.is_ok()));
}

/// A request that another Weir delays is admitted here, and in shadow mode no limit would refuse it.
#[tokio::test(start_paused = true)]
async fn charges_of_delayed_requests_are_admitted() {
    let gate = new_gate();
    let live = install(gate, [limit("a", 1, "1h", 1, OnLimit::Reject)], CAPS);
    let key = gate.named_charge(live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap().key;
    let of = KeyedLimit { limit: "a", key, rule: live.policy.by_name("a").unwrap().limit.allowed.usual.digest() };
    let counted = || {
        use LimitDecision::{Admitted, Refused, ShadowRefused};
        [Admitted, Refused, ShadowRefused].map(|decided| live.states[0].metrics.cells.counted(decided))
    };
    let delay = Handling::Delay { max_debt: 5 };
    // The units, what follows beyond the limit, whether they are within it, the charged units, and the counts.
    for (cost, handling, is_within, charged, expected) in [
        (1, delay, true, Some(1), [1, 0, 0]),
        (0, delay, true, None, [1, 0, 0]),
        (2, delay, false, Some(2), [2, 0, 0]),
        (4, delay, false, Some(3), [3, 0, 0]),
        (1, Handling::Shadow, false, None, [3, 0, 1]),
        (1, Handling::Enforce, false, None, [3, 1, 1]),
    ] {
        let verdict = gate.decide_keyed(live, &[KeyedCharge { of, cost, handling }]);
        let outcome = verdict.outcomes[0].as_ref().unwrap();
        let units = outcome.receipt.as_ref().map(|receipt| receipt.units);
        assert_eq!((outcome.is_admitted, units, counted()), (is_within, charged, expected), "{cost} {handling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn peers_hear_of_late_units_as_far_as_they_were_charged() {
    let mut fleet = Fleet::of(2, &[shared(limit("a", 1, "1h", 10, OnLimit::Reject))]);
    for (units, told, balance) in [(4, 4, 6), (100, 13, -7), (-2, -2, -5), (-100, -15, 10)] {
        let Node { gate, live, ledger, .. } = &mut fleet.0[0];
        settle(gate, live, units, 7);
        let heard: i64 = ledger.take(gate.clock.now()).limits.iter().flat_map(|of| of.units.clone()).sum();
        assert_eq!((heard, fleet.0[0].balance("x")), (told, balance), "{units}");
    }
}

/// While rates change, an asker may have another rule than the limiter. Its charges count all the same.
#[tokio::test(start_paused = true)]
async fn settlements_under_another_rule_count() {
    let gate = new_gate();
    let with = |burst| install(gate, [limit("a", 1, "1h", burst, OnLimit::Reject)], CAPS);
    let live = with(10);
    let key = gate.named_charge(live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap().key;
    let rule = live.policy.by_name("a").unwrap().limit.allowed.usual.digest();
    let live = with(20);
    let remaining =
        || live.states[0].table.peek(key, &live.policy.limits()[0].allowed.usual, 0, gate.clock.now()).remaining;
    let of = KeyedLimit { limit: "a", key, rule };
    gate.settle_keyed_late(live, &of, &smallvec![smallvec![LateUnits { units: 7, age_ns: 0 }]], 0);
    assert_eq!(remaining(), 13);
    gate.settle_keyed(live, &of, 3, 0);
    assert_eq!(remaining(), 10);
    gate.settle_keyed(live, &of, -4, 0);
    assert_eq!(remaining(), 14);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_charge_comes_back() {
    for (units, expected) in [(0, 2), (5, 7), (8, 10)] {
        let gate = new_gate();
        let live = install(gate, [limit("a", 1, "1h", 10, OnLimit::Reject)], CAPS);
        let key = gate.named_charge(live, "a", &pairs_of(&[("header:a", "x")]), None, 0).unwrap().key;
        let rule = &live.policy.limits()[0].allowed.usual;
        let of = KeyedLimit { limit: "a", key, rule: rule.digest() };
        let verdict = gate.decide_keyed(live, &[KeyedCharge { of, cost: 8, handling: Handling::Enforce }]);
        let outcome = verdict.outcomes.into_iter().next().unwrap().unwrap();
        Gate::give_back_keyed(&outcome.receipt.unwrap(), units);
        assert_eq!(live.states[0].table.peek(key, rule, 0, gate.clock.now()).remaining, expected, "{units}");
    }
}
