//! Refusals that are kept: found by their ids and their keys, for a time, in bounded memory.

use super::*;
use crate::engine::gate::{BanTarget, LoggedRefusal, OperatorBan, RefusedState, Spend};
use crate::engine::policy::{AfterResponse, RefusalLogRules, Settle, SettleBy};

const HOUR: RefusalLogRules = RefusalLogRules { keep_ns: 3_600_000_000_000, max: 6400 };

fn keeping(gate: &Gate, keep: RefusalLogRules) -> &'static Live {
    let delays = OnLimit::Delay(DelayRule { slow_down: SlowDown { step_ns: 1, max_ns: MS_NS }, max_waiting: 0 });
    let settle = Some(Settle::only(SettleBy::ResponseBytes, 0));
    let after = Some(Arc::new(AfterResponse { counts: None, settle }));
    let limits = vec![
        limit("x-a", 1, "1h", 2, OnLimit::Reject),
        limit("x-b", 1, "1h", 1, OnLimit::Reject),
        limit("x-d", 1, "1h", 1, delays),
        Limit { after, ..limit("x-s", 1, "1h", 10, OnLimit::Reject) },
    ];
    let mut policy = policy(limits, Vec::new());
    policy.refusal_log = keep;
    Box::leak(Box::new(gate.install(policy, CAPS, 10)))
}

/// Refuses a request, and keeps the refusal under this id.
fn refuse(gate: &'static Gate, live: &'static Live, words: &[&str], id: &str) {
    loop {
        match ask(gate, live, &headers(words)) {
            Step::Pass(mut pass) => pass.charged.commit(true),
            Step::Refuse(mut refusal) => {
                let retry_after_s = refusal.retry_after_s();
                return refusal
                    .receipt
                    .take()
                    .into_iter()
                    .for_each(|logged| gate.keep_refusal(id, logged, retry_after_s));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn told(refusals: &[LoggedRefusal]) -> String {
    let row = |logged: &LoggedRefusal| {
        let LoggedRefusal { limit, cause, retry_after_s, state, .. } = logged;
        let shown = logged.shown.as_deref().map(|shown| shown.split("..").next().unwrap_or(""));
        let state = state.map(|RefusedState { capacity, remaining, reset_after_ns }| {
            format!("{remaining}/{capacity} {}s", reset_after_ns / 1_000_000_000)
        });
        format!("{limit} {cause} {shown:?} {state:?} {retry_after_s:?}")
    };
    refusals.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_found_by_its_id_for_an_hour() {
    let gate = new_gate();
    let live = keeping(gate, HOUR);
    let found = |id: &str| told(&gate.refusals_of_id(id, gate.clock.now()));
    refuse(gate, live, &["x-a=aaaaaaaa"], "1");
    insta::assert_snapshot!(found("1"), @r#"x-a limit Some("aaaa") Some("0/2 7200s") Some(3600)"#);
    // A limit that delays has no room; two limits refuse.
    refuse(gate, live, &["x-d=dddddddd"], "2");
    refuse(gate, live, &["x-a=aaaaaaaa", "x-b=bbbbbbbb"], "3");
    refuse(gate, live, &["x-b=bbbbbbbb"], "4");
    refuse(gate, live, &["x-a=aaaaaaaa", "x-b=bbbbbbbb"], "5");
    insta::assert_snapshot!(found("2"), @r#"x-d queue_full Some("dddd") Some("0/1 3600s") Some(1)"#);
    insta::assert_snapshot!(found("3"), @r#"x-a limit Some("aaaa") Some("0/2 7200s") Some(3600)"#);
    let (at, both) = (gate.clock.now(), gate.refusals_of_id("5", gate.clock.now()));
    assert_eq!((both.len(), found("6"), found("")), (2, String::new(), String::new()));
    let first = &gate.refusals_of_id("1", at)[0];
    let ids: Vec<_> = gate.refusals_of_key("x-a", first.key, at).into_iter().map(|logged| logged.id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(gate.refusals_of_key("x-b", first.key, at).is_empty());

    tokio::time::advance(Duration::from_secs(3599)).await;
    gate.sweep();
    assert_eq!(gate.refusals_of_id("1", gate.clock.now()).len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(found("1").is_empty(), "also without a sweep");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_charges_around_it() {
    let gate = new_gate();
    let live = keeping(gate, HOUR);
    let start = gate.clock.now();
    let advance = async || tokio::time::advance(Duration::from_mins(1)).await;
    let spend = |units: i64| {
        let key = &[("header:x-a".into(), "aaaaaaaa".into())];
        gate.spend(live, Spend { limit: "x-a", key, plan: None, units }, gate.clock.now()).unwrap();
    };
    let charges = |id: &str| -> Vec<(u64, i64)> {
        let found = gate.refusals_of_id(id, gate.clock.now());
        let minutes = |at: Timestamp| at.ns_since(start) / 60_000_000_000;
        found.iter().flat_map(|logged| &logged.charges).map(|charge| (minutes(charge.at), charge.units)).collect()
    };
    // The first of two units leaves half of them.
    refuse(gate, live, &["x-a=aaaaaaaa"], "1");
    assert_eq!(charges("1"), [(0, 1)]);
    advance().await;
    refuse(gate, live, &["x-a=aaaaaaaa"], "2");
    advance().await;
    // Other keys and limits, also with the same text, have their own charges; a request that is not forwarded pays none.
    refuse(gate, live, &["x-a=bbbbbbbb"], "3");
    refuse(gate, live, &["x-b=aaaaaaaa"], "4");
    spend(-1);
    advance().await;
    let Step::Pass(pass) = ask(gate, live, &headers(&["x-a=aaaaaaaa"])) else { panic!("refused") };
    drop(pass);
    refuse(gate, live, &["x-a=aaaaaaaa"], "5");
    let all = [(0, 1), (2, -1), (3, 1), (3, -1), (3, 1)];
    for (id, expected) in [("1", &all[..]), ("2", &all), ("3", &[(2, 1)]), ("4", &[(2, 1)]), ("5", &all)] {
        assert_eq!(charges(id), expected, "{id}");
    }
    // The last sixteen before it, and the last sixteen after it.
    for _ in 0..20 {
        advance().await;
        spend(-1);
        refuse(gate, live, &["x-a=aaaaaaaa"], "6");
    }
    assert_eq!(charges("1").len(), 1 + 16);
    assert_eq!(charges("1")[..3], [(0, 1), (16, -1), (16, 1)]);
    // A charge that is settled is there, although it leaves most units.
    let Step::Pass(mut pass) = ask(gate, live, &headers(&["x-s=ssssssss"])) else { panic!("refused") };
    pass.charged.commit(true);
    pass.charged.bill().unwrap().end(10, None, None);
    refuse(gate, live, &["x-s=ssssssss"], "settled");
    assert_eq!(charges("settled"), [(23, 1), (23, 9)]);
    tokio::time::advance(Duration::from_mins(59)).await;
    refuse(gate, live, &["x-b=cccccccc"], "7");
    assert!(charges("6").iter().all(|(minute, _)| *minute > 22), "{:?}", charges("6"));
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_kept_with_its_key() {
    let gate = new_gate();
    let live = keeping(gate, HOUR);
    let key = BanTarget::Key("x-a".into(), vec!["aaaaaaaa".into()]);
    for target in [key, BanTarget::Network("127.0.0.1/32".parse().unwrap())] {
        let (since, until, is_lifted, replaced_until, reason, token) =
            (gate.clock.now(), None, false, None, None, None);
        let ban = OperatorBan { target, until, since, replica: 0, is_lifted, replaced_until, reason, token };
        gate.change_operator_bans(live, [ban], since);
    }
    refuse(gate, live, &["x-a=aaaaaaaa"], "1");
    let local = std::net::Ipv4Addr::LOCALHOST.into();
    let refusal = gate.refuse_address(local, gate.clock.now()).unwrap();
    gate.keep_refusal("2", refusal.receipt.unwrap(), None);
    let found = |id: &str| told(&gate.refusals_of_id(id, gate.clock.now()));
    insta::assert_snapshot!(found("1"), @r#"x-a banned Some("aaaa") None None"#);
    insta::assert_snapshot!(found("2"), @r#" banned Some("127.0.0.1") None None"#);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_a_flood_on_one_key_displaces_few() {
    let gate = new_gate();
    let live = keeping(gate, HOUR);
    for index in 0..200 {
        refuse(gate, live, &[&format!("x-b=quiet{index}")], &format!("quiet{index}"));
    }
    for index in 0..10_000 {
        refuse(gate, live, &["x-a=aaaaaaaa"], &index.to_string());
    }
    let now = gate.clock.now();
    let key = gate.refusals_of_id("9999", now)[0].key;
    let flood = gate.refusals_of_key("x-a", key, now);
    let has_text = |logged: &LoggedRefusal| logged.shown.as_deref().is_some_and(|shown| shown.starts_with("aaaa.."));
    assert!(flood.len() == HOUR.max / 64 && flood.iter().all(has_text), "{}", flood.len());
    let quiet = (0..200).filter(|index| !gate.refusals_of_id(&format!("quiet{index}"), now).is_empty()).count();
    assert!(quiet >= 180, "{quiet}");
    for index in 0..20_000 {
        refuse(gate, live, &[&format!("x-b={index}")], "many");
    }
    let many = gate.refusals_of_id("many", now).len();
    assert!((HOUR.max * 9 / 10..=HOUR.max).contains(&many), "{many}");
    // A smaller bound, and none.
    keeping(gate, RefusalLogRules { max: 64, ..HOUR });
    gate.sweep();
    assert!(gate.refusals_of_id("many", now).len() <= 64);
    let off = keeping(gate, RefusalLogRules::default());
    assert!(gate.refusals_of_id("many", now).is_empty());
    let Step::Refuse(refusal) = ask(gate, off, &headers(&["x-a=aaaaaaaa"])) else { panic!("admitted") };
    assert!(refusal.receipt.is_none());
}
