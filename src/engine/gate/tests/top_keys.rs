//! The keys that are refused most: which requests are counted, and which are not.

use super::*;
use crate::engine::gate::HALF_LIFE_NS;
use crate::engine::limit::top::TopKey;

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
        let row = |top: crate::engine::gate::TopKeys| {
            let keys = top
                .keys
                .iter()
                .map(|key| format!("{} {} {}", key.text.split("..").next().unwrap_or(""), key.count, key.error));
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

#[tokio::test(start_paused = true)]
async fn keys_with_refusals_in_the_last_minute_come_first() {
    let gate = new_gate();
    let live = install(gate, [limit("x-no", 1, "1h", 1, OnLimit::Reject)], CAPS);
    let refuse = |word: &str, times: usize| {
        for _ in 0..times {
            if let Step::Pass(mut pass) = ask(gate, live, &headers(&[&format!("x-no={word}")])) {
                pass.charged.commit(true);
            }
        }
    };
    let told = || {
        let row = |key: &TopKey| format!("{}:{}/{}", &key.text[..4], key.recent, key.count);
        gate.top(live, None, 9)[0].keys.iter().map(row).collect::<Vec<_>>().join(" ")
    };
    let networks = || gate.top_networks(9).keys.into_iter().map(|key| (key.recent, key.count)).collect::<Vec<_>>();
    let advance = async |seconds: u64| {
        for _ in 0..seconds {
            tokio::time::advance(Duration::from_secs(1)).await;
            gate.sweep();
        }
    };
    gate.sweep();
    refuse("aaaaaaaa", 11);
    assert_eq!((told(), networks()), ("aaaa:10/10".to_owned(), vec![(10, 10)]));
    advance(30).await;
    refuse("bbbbbbbb", 4);
    assert_eq!(told(), "aaaa:10/10 bbbb:3/3");
    advance(20).await;
    assert_eq!(told(), "aaaa:10/10 bbbb:3/3");
    // The oldest piece of ten seconds is forgotten.
    advance(11).await;
    assert_eq!(told(), "bbbb:3/3 aaaa:0/10");
    refuse("aaaaaaaa", 1);
    advance(30).await;
    assert_eq!((told(), networks()), ("aaaa:1/11 bbbb:0/3".to_owned(), vec![(1, 14)]));
    // Also after a pause that is longer than a minute.
    tokio::time::advance(Duration::from_mins(5)).await;
    gate.sweep();
    refuse("bbbbbbbb", 1);
    assert_eq!(told(), "bbbb:1/4 aaaa:0/11");
}
