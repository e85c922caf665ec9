//! The keys that are refused most: which requests are counted, and which are not.

use super::*;
use crate::gate::HALF_LIFE_NS;

#[tokio::test(start_paused = true)]
async fn refusals_and_holds_are_counted_and_nothing_else() {
    let gate = new_gate();
    let shadow = Limit { mode: Mode::Shadow, ..limit("x-shadow", 1, "1h", 1, OnLimit::Reject) };
    let live = install(
        gate,
        [limit("x-no", 1, "1h", 2, OnLimit::Reject), limit("x-wait", 1, "1h", 1, hold(None)), shadow],
        CAPS,
    );
    let mut waiting = Vec::new();
    for (words, times) in [
        (&["x-no=aaaaaaaa"][..], 5),
        (&["x-no=bbbbbbbb"], 2),
        (&["x-no=cccccccc"], 3),
        (&["x-wait=dddddddd"], 3),
        (&["x-shadow=e"], 9),
    ] {
        for _ in 0..times {
            match ask(gate, live, &headers(words)) {
                Step::Pass(mut pass) => pass.charged.commit(true),
                Step::Wait(wait) => waiting.push(wait),
                Step::Refuse(_) | Step::Delay(_) | Step::Ask(_) => {}
            }
        }
    }
    assert_eq!(waiting.len(), 2);
    let told = |limit, n| {
        let row = |top: crate::gate::TopKeys| {
            let keys = top
                .keys
                .iter()
                .map(|key| format!("{} {} {}", key.key.split("..").next().unwrap_or(""), key.count, key.error));
            format!("{}: {} {} [{}]", top.limit, top.total, top.missed, keys.collect::<Vec<_>>().join(", "))
        };
        gate.top(live, limit, n).into_iter().map(row).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told(None, 9), @r#"
    x-no: 4 0 [aaaa 3 0, cccc 1 0]
    x-wait: 2 0 [dddd 2 0]
    x-shadow: 0 0 []
    "#);
    insta::assert_snapshot!(told(Some("x-no"), 1), @"x-no: 4 0 [aaaa 3 0]");
    assert_eq!(told(Some("x"), 1), "");
    drop(waiting);
    // Old requests count for less, and in the end for nothing.
    gate.sweep();
    tokio::time::advance(Duration::from_nanos(HALF_LIFE_NS - 1)).await;
    gate.sweep();
    assert_eq!(told(Some("x-no"), 9), "x-no: 4 0 [aaaa 3 0, cccc 1 0]");
    tokio::time::advance(Duration::from_nanos(1)).await;
    gate.sweep();
    assert_eq!(told(Some("x-no"), 9), "x-no: 1 0 [aaaa 1 0]");
    tokio::time::advance(Duration::from_nanos(HALF_LIFE_NS)).await;
    gate.sweep();
    assert_eq!(told(Some("x-no"), 9), "x-no: 0 0 []");
}
