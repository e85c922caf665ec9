//! Limits that are enforced for a part of their keys.

use std::collections::BTreeSet;

use super::*;
use crate::base::telemetry::LimitDecision;

/// The keys of 1,000 that a limit refuses after one request, if it is enforced for so many percent.
fn refused(secret: u8, percent: u8, on_limit: OnLimit) -> BTreeSet<u32> {
    let gate = Box::leak(Box::new(Gate::new(Clock::start(), [secret; 16], metrics())));
    let partly = Limit { enforced_percent: percent, ..limit("a", 1, "1h", 1, on_limit) };
    let live = install(gate, [partly], CAPS);
    let is_refused = |key: &u32| {
        let text = format!("a=seller-{key}");
        let words = headers(&[&text]);
        let passes = || match ask(gate, live, &words) {
            Step::Pass(mut pass) => {
                pass.charged.commit(true);
                true
            }
            _ => false,
        };
        assert!(passes(), "{key}");
        !passes()
    };
    let refused: BTreeSet<u32> = (0..1000).filter(is_refused).collect();
    let counted = |decided| live.states[0].metrics.cells.counted(decided);
    let shadow = counted(LimitDecision::ShadowRefused) + counted(LimitDecision::ShadowHeld);
    assert_eq!(shadow, 1000 - refused.len() as u64);
    refused
}

/// The part does not depend on the secret of the process, and grows with its percentage.
#[tokio::test(start_paused = true)]
async fn the_part_is_stable_and_grows() {
    let all = [1, 25, 50, 100].map(|percent| refused(7, percent, OnLimit::Reject));
    assert_eq!(all.each_ref().map(BTreeSet::len), [5, 242, 523, 1000]);
    assert!(all.windows(2).all(|pair| pair[0].is_subset(&pair[1])));
    assert_eq!(refused(8, 25, OnLimit::Reject), all[1]);
    assert_eq!(refused(7, 25, hold(None)), all[1]);
}

/// A key that is left out neither waits, nor is it delayed or banned, and its answers have no numbers of the limit.
#[tokio::test(start_paused = true)]
async fn keys_that_are_left_out_pass() {
    let one = Limit { enforced_percent: 1, ..limit("a", 1, "1h", 1, OnLimit::Reject) };
    assert_eq!(one.percentile(&["k"], Prefixes::default(), &[]), 28);
    for action in ["hold=forever", "delay=1s,5s", "reject ban=1/1s,10s,1h", "reject"] {
        check(&format!(
            "
            limit a 1 1h 1 {action} enforce=28
            0s ask r1..r3 a=k > pass
            "
        ))
        .await;
    }
    let gate = new_gate();
    let listed =
        |percent| Limit { enforced_percent: percent, is_listed: true, ..limit("a", 1, "1h", 1, OnLimit::Reject) };
    for (percent, is_shown) in [(28, false), (29, true)] {
        let live = install(gate, [listed(percent)], CAPS);
        gate.sweep();
        let Step::Pass(pass) = ask(gate, live, &headers(&["a=k"])) else { panic!("refused") };
        assert_eq!((pass.standing.is_some(), pass.budgets().len()), (is_shown, usize::from(is_shown)), "{percent}");
    }
}

/// A reload leaves the key of waiting requests out. Without a part before, they keep their turn.
#[tokio::test(start_paused = true)]
async fn a_reload_leaves_waiters_out() {
    for (before, [r2, r3]) in [("enforce=29", ["500ms", "500ms"]), ("", ["1s", "2s"])] {
        check(&format!(
            "
            limit a 1 1s 1 hold=forever {before}
            0s    ask r1 a=k > pass
            0s    ask r2 a=k > {r2} pass
            0s    ask r3 a=k > {r3} pass
            500ms limit a 1 1s 1 hold=forever enforce=28
            "
        ))
        .await;
    }
}
