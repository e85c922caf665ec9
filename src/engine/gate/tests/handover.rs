//! Two gates, of which the second continues with the state of the first.

use super::{CAPS, ask, headers, install, limit, new_gate, ns};
use crate::engine::gate::{Gate, Step};
use crate::engine::limit::Rate;
use crate::engine::limit::ban::Rule as BanRule;
use crate::engine::policy::{Limit, OnLimit};
use crate::engine::store::snapshot::{Snapshot, restore};

fn of(name: &str, persist: bool) -> Limit {
    Limit { persist, ..limit(name, 3, "1day", 3, OnLimit::Reject) }
}

/// A new gate with the persistent state of `gate`.
fn next(gate: &Gate) -> &'static Gate {
    let now = gate.clock.now();
    let mut snapshot = Snapshot::begin(Vec::new(), &[7; 16], now, now).unwrap();
    gate.save(&mut snapshot).unwrap();
    let restored = restore(&snapshot.finish().unwrap()[..], now, |_| None).unwrap();
    let next = new_gate();
    next.restore(restored.limits);
    next
}

fn passes(gate: &'static Gate, limits: &[Limit], words: &str) -> bool {
    let live = install(gate, limits.iter().cloned(), CAPS);
    match ask(gate, live, &headers(&[words])) {
        Step::Pass(mut pass) => {
            pass.charged.commit(true);
            true
        }
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn only_persistent_state_is_restored() {
    let limits = [of("kept", true), of("other", false)];
    let gate = new_gate();
    for word in ["kept=a", "other=a"] {
        let passed = (0..4).filter(|_| passes(gate, &limits, word)).count();
        assert_eq!(passed, 3, "{word}");
    }
    let gate = next(gate);
    assert!(!passes(gate, &limits, "kept=a") && passes(gate, &limits, "kept=b"));
    assert!(passes(gate, &limits, "other=a"));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_no_policy_names_is_kept_until_it_is_idle() {
    let gate = new_gate();
    assert!((0..3).all(|_| passes(gate, &[of("a", true)], "a=x")));
    let gate = next(gate);
    install(gate, [of("b", true)], CAPS);
    gate.sweep();
    let gate = next(gate);
    assert!(!passes(gate, &[of("a", true)], "a=x"));

    let gate = next(gate);
    install(gate, [], CAPS);
    gate.sweep();
    assert_eq!(gate.states.lock().unwrap().len(), 1);
    tokio::time::advance(std::time::Duration::from_nanos(ns("1day") + crate::engine::limit::BACKDATE_NS_MAX)).await;
    gate.sweep();
    assert!(gate.states.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn bans_go_on_under_another_algorithm_too() {
    let rule = BanRule::new(Rate { count: 1, period_ns: ns("1min") }, ns("1h"), ns("1day")).unwrap();
    let banning = Limit { ban: Some(rule), ..of("a", true) };
    let gate = new_gate();
    let passed = (0..4).filter(|_| passes(gate, std::slice::from_ref(&banning), "a=x")).count();
    assert_eq!(passed, 3);
    let gate = next(gate);
    let log = crate::engine::limit::sliding_log::Rule::new(Rate { count: 3, period_ns: ns("1h") }).unwrap();
    let usual = crate::engine::limit::Algorithm::SlidingLog(log);
    let banning = Limit { allowed: crate::engine::policy::Allowed::to_all(usual), ..banning };
    assert!(!passes(gate, std::slice::from_ref(&banning), "a=x"), "banned, though the new algorithm begins anew");
    assert!(passes(gate, &[banning], "a=y"));
}
