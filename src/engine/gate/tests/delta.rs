//! A gate that applies the charges of another gate.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::{CAPS, ask, headers, install, limit, new_gate};
use crate::engine::gate::{Delta, Gate, Live, Spend, Step};
use crate::engine::limit::concurrency;
use crate::engine::limit::tests::algorithm;
use crate::engine::limit::{Algorithm, OnFull, Rate, Retry};
use crate::engine::policy::{AfterResponse, Allowed, Cost, Limit, OnLimit, Settle, SettleBy};
use crate::engine::store::snapshot::{Snapshot, restore};

/// Another gate with the state of `gate`.
fn given(gate: &Gate) -> &'static Gate {
    let now = gate.clock.now();
    let mut snapshot = Snapshot::begin(Vec::new(), &[7; 16], now, now).unwrap();
    gate.save_all(&mut snapshot).unwrap();
    let restored = restore(&snapshot.finish().unwrap()[..], now, |_| None).unwrap();
    let next = new_gate();
    next.restore(restored.limits);
    next
}

/// Sends a request and commits its charges. Returns the remaining units, if it passes.
fn left(gate: &'static Gate, live: &'static Live, words: &str) -> Option<u64> {
    match ask(gate, live, &headers(&[words])) {
        Step::Pass(mut pass) => {
            pass.charged.commit(true);
            pass.standing.map(|standing| standing.remaining)
        }
        _ => None,
    }
}

fn hear(gate: &Gate, live: &Live, told: &Receiver<Delta>) -> usize {
    told.try_iter().inspect(|told| gate.apply_delta(live, told)).count()
}

#[tokio::test(start_paused = true)]
async fn what_one_charges_the_other_charges_too() {
    let brief = || Limit { persist: false, ..limit("a", 5, "1min", 5, OnLimit::Reject) };
    let (old, old_live) = {
        let gate = new_gate();
        (gate, install(gate, [brief()], CAPS))
    };
    assert_eq!(left(old, old_live, "a=x"), Some(4));
    let told = old.subscribe_deltas();
    let new = given(old);
    let live = install(new, [brief()], CAPS);
    // Also limits that a snapshot on disk leaves out.
    assert_eq!((left(old, old_live, "a=x"), left(old, old_live, "a=y")), (Some(3), Some(4)));
    assert_eq!(hear(new, live, &told), 2);
    assert_eq!((left(new, live, "a=x"), left(new, live, "a=y")), (Some(2), Some(3)));
    let spend = Spend { limit: "a", key: &[("header:a".to_owned(), "x".to_owned())], plan: None, units: 2 };
    old.spend(old_live, spend, old.clock.now()).unwrap();
    assert_eq!(hear(new, live, &told), 1);
    assert_eq!(left(new, live, "a=x"), None, "nothing is left");
    assert_eq!(old.unsubscribe_deltas(), 0);
    left(old, old_live, "a=z");
    assert_eq!(hear(new, live, &told), 0);
}

/// A settlement may charge more than the limit admits at once.
#[tokio::test(start_paused = true)]
async fn a_debt_is_told_whole() {
    for (max_debt, waits_s) in [(u64::MAX, 1000), (7, 8), (1, 2)] {
        let settle = Settle::only(SettleBy::ElapsedMs, max_debt);
        let after = Some(Arc::new(AfterResponse { counts: None, settle: Some(settle) }));
        let all = || Limit { after: after.clone(), ..limit("a", 2, "2s", 2, OnLimit::Reject) };
        let (old, new) = (new_gate(), new_gate());
        let old_live = install(old, [all()], CAPS);
        let told = old.subscribe_deltas();
        let live = install(new, [all()], CAPS);
        let spend = Spend { limit: "a", key: &[("header:a".to_owned(), "x".to_owned())], plan: None, units: 1001 };
        old.spend(old_live, spend, old.clock.now()).unwrap();
        assert_eq!(hear(new, live, &told), 1);
        let Step::Refuse(refusal) = ask(new, live, &headers(&["a=x"])) else { panic!("{max_debt}") };
        assert_eq!(refusal.retry, Retry::AfterNs(waits_s * 1_000_000_000), "{max_debt}");
    }
}

/// A report of work that costs more than the limit ever admits, which has no `settle`.
#[tokio::test(start_paused = true)]
async fn a_reported_debt_is_told_whole() {
    let all = || limit("a", 2, "2s", 2, OnLimit::Reject);
    let (old, new) = (new_gate(), new_gate());
    let (old_live, live) = (install(old, [all()], CAPS), install(new, [all()], CAPS));
    let told = old.subscribe_deltas();
    let key = [("header:a".to_owned(), "x".to_owned())];
    let charge = old.named_charge(old_live, "a", &key, None, 0).unwrap();
    assert_eq!(old.report(old_live, &charge, 0, 20, old.clock.now()).debt, 18);
    assert_eq!(hear(new, live, &told), 1);
    let spend = Spend { limit: "a", key: &key, plan: None, units: 0 };
    assert_eq!(new.spend(live, spend, new.clock.now()).unwrap().debt, 18);
}

#[tokio::test(start_paused = true)]
async fn what_both_admit_is_owed() {
    let all = || limit("a", 2, "2s", 2, OnLimit::Reject);
    let old = new_gate();
    let old_live = install(old, [all()], CAPS);
    let told = old.subscribe_deltas();
    let new = given(old);
    let live = install(new, [all()], CAPS);
    for (gate, live) in [(new, live), (old, old_live)] {
        assert_eq!((left(gate, live, "a=x"), left(gate, live, "a=x")), (Some(1), Some(0)));
    }
    assert_eq!(hear(new, live, &told), 2);
    // Two units beyond the limit: it takes as long again until a request passes.
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(left(new, live, "a=x"), None);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(left(new, live, "a=x"), Some(0));
}

/// A delta has the plan of its charge, so that the other gate charges by the same rule.
#[tokio::test(start_paused = true)]
async fn a_charge_is_told_with_its_plan() {
    let with_plans = || {
        let usual = Limit { cost: Cost::Units(2), ..limit("a", 9, "1min", 9, OnLimit::Reject) };
        let of = |burst| limit("a", 1, "1h", burst, OnLimit::Reject).allowed.usual;
        let plans = vec![("free".into(), Some(of(7))), ("premium".into(), Some(of(50))), ("all".into(), None)];
        Limit { allowed: Allowed { plans, ..usual.allowed.clone() }, ..usual }
    };
    let (old, new) = (new_gate(), new_gate());
    let (old_live, live) = (install(old, [with_plans()], CAPS), install(new, [with_plans()], CAPS));
    let told = old.subscribe_deltas();
    for (words, plan, is_left) in [
        (&["a=1"][..], None, 7),
        (&["a=2", "x-plan=premium"], Some("premium"), 48),
        (&["a=3", "x-plan=free"], Some("free"), 5),
        (&["a=4", "x-plan=unknown"], None, 7),
    ] {
        let ask = |gate, live| match ask(gate, live, &headers(words)) {
            Step::Pass(mut pass) => {
                pass.charged.commit(true);
                pass.standing.map(|standing| standing.remaining)
            }
            _ => None,
        };
        assert_eq!(ask(old, old_live), Some(is_left), "{words:?}");
        let charge = told.try_recv().unwrap();
        assert_eq!((charge.plan.as_deref(), charge.units), (plan, 2), "{words:?}");
        new.apply_delta(live, &charge);
        assert_eq!(ask(new, live), Some(is_left - 2), "{words:?}");
    }
    left(old, old_live, "a=x");
    assert_eq!(told.try_iter().count(), 1);
}

/// The successor does not hear which rate a caller requested. It finds the length of the window in the state.
#[tokio::test(start_paused = true)]
async fn a_charge_by_a_requested_rate_ends_no_window() {
    for rule in ["fixed_window 2/1min from first", "sliding_window 2/1min"] {
        let windows = || Limit {
            allowed: Allowed::to_all(algorithm(rule)),
            on_full: OnFull::Reject,
            ..limit("a", 1, "1s", 1, OnLimit::Reject)
        };
        let day = |gate: &Gate, live: &Live| {
            let key = [("header:a".to_owned(), "x".to_owned())];
            let charge = gate.named_charge(live, "a", &key, None, 4).unwrap();
            let rate = Rate { count: 10, period_ns: 86_400_000_000_000 };
            let charges = [gate.with_rate(live, charge, rate).unwrap()];
            gate.decide_named(live, &charges).unwrap().is_admitted
        };
        let old = new_gate();
        let old_live = install(old, [windows()], CAPS);
        assert!(day(old, old_live), "{rule}");
        let told = old.subscribe_deltas();
        let new = given(old);
        let live = install(new, [windows()], CAPS);
        assert!(day(old, old_live), "{rule}");
        assert_eq!(hear(new, live, &told), 1);
        tokio::time::advance(std::time::Duration::from_mins(2)).await;
        assert!(!day(new, live), "{rule}: 8 of 10 are spent today");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_or_in_flight_is_not_charged() {
    let in_flight = || {
        let rule = Algorithm::Concurrency(concurrency::Rule::new(1).unwrap());
        Limit { allowed: Allowed::to_all(rule), ..limit("a", 1, "1s", 1, OnLimit::Reject) }
    };
    let old = new_gate();
    let old_live = install(old, [in_flight()], CAPS);
    let told = old.subscribe_deltas();
    let held = ask(old, old_live, &headers(&["a=x"]));
    assert!(matches!(held, Step::Pass(_)));
    assert_eq!(told.try_iter().count(), 0);
    let new = given(old);
    let live = install(new, [in_flight()], CAPS);
    assert!(left(new, live, "a=x").is_some(), "each counts its own");
    let key = crate::engine::limit::Key { first: 1, second: 2 };
    new.apply_delta(live, &Delta { limit: "gone".into(), key, plan: None, units: 1 });
}
