//! An explanation agrees with the decision of the request, and changes nothing.

use proptest::prelude::*;

use super::*;
use crate::engine::gate::{Explanation, Question, Routing, Verdict};

pub(super) fn explain<'l>(gate: &Gate, live: &'l Live, words: &[&str]) -> Explanation<'l> {
    let headers = words.iter().filter_map(|word| word.split_once('='));
    let question = Question {
        method: "GET".into(),
        path: "/?q=1".into(),
        host: "h".into(),
        ip: std::net::Ipv4Addr::LOCALHOST.into(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        identities: Vec::new(),
        plan: None,
    };
    gate.explain(live, &question, &Routing::default(), gate.clock.now()).unwrap()
}

/// The name of a verdict of limits.
fn name(verdict: &Verdict<'_>) -> &'static str {
    match verdict {
        Verdict::Admitted => "admitted",
        Verdict::Held => "held",
        Verdict::Delayed => "delayed",
        Verdict::Rejected(_) => "rejected",
        other => panic!("{other:?}"),
    }
}

/// The verdict, the denying limits and the retry in milliseconds of a decision.
fn summary(step: &Step<'_>) -> (&'static str, Vec<String>, Option<u64>) {
    match step {
        Step::Pass(_) => ("admitted", Vec::new(), None),
        Step::Ask(_) => panic!("no store is asked"),
        Step::Wait(_) => ("held", Vec::new(), None),
        Step::Delay(delayed) => ("delayed", vec![delayed.held_by().to_owned()], None),
        Step::Refuse(refusal) => {
            let retry_ms = match refusal.retry {
                Retry::AfterNs(ns) => Some(ns.div_ceil(MS_NS)),
                Retry::Never => None,
            };
            ("rejected", refusal.violated.iter().map(|name| (*name).to_owned()).collect(), retry_ms)
        }
    }
}

fn limits(with_cost: u64) -> Vec<Limit> {
    vec![
        limit("x-a", 2, "1s", 2, OnLimit::Reject),
        limit("x-b", 1, "2s", 3, hold(Some(ns("3s")))),
        Limit { cost: Cost::Units(with_cost), ..limit("x-c", 5, "1s", 5, hold(None)) },
        Limit { mode: Mode::Shadow, ..limit("x-d", 1, "1h", 1, OnLimit::Reject) },
        Limit { mode: Mode::Off, ..limit("x-e", 1, "1h", 1, OnLimit::Reject) },
        parse_limit(&["x-f", "1", "3s", "1", "delay=300ms,1s"]),
        several("x-g", OnLimit::Reject),
        several("x-h", parse_limit(&["x-h", "1", "1s", "1", "delay=200ms,1s"]).on_limit),
    ]
}

/// Two rates: a burst of 2 that refills soon, and 3 in a minute.
fn several(name: &str, on_limit: OnLimit) -> Limit {
    let bucket = |count, period, burst| limit(name, count, period, burst, on_limit).allowed.usual;
    let usual = Algorithm::Several([bucket(2, "1s", 2), bucket(3, "1min", 3)].into());
    Limit { allowed: Allowed::to_all(usual), ..limit(name, 1, "1s", 1, on_limit) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_the_decision(
        asks in prop::collection::vec((prop::collection::vec(
            prop::sample::select(vec![
                "x-a=1", "x-a=2", "x-b=1", "x-c=1", "x-d=1", "x-e=1", "x-f=1", "x-g=1", "x-h=1",
            ]), 0..4), 0_u64..900), 1..40),
        cost in 1_u64..7,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let gate = new_gate();
            let live = install(gate, limits(cost), CAPS);
            let mut waiting = Vec::new();
            for (mut words, pause_ms) in asks {
                words.sort_unstable();
                words.dedup_by_key(|word| word.split('=').next());
                tokio::time::advance(Duration::from_millis(pause_ms)).await;
                let told = explain(gate, live, &words);
                prop_assert_eq!(format!("{told:?}"), format!("{:?}", explain(gate, live, &words)));
                let step = ask(gate, live, &headers(&words));
                let (decision, violated, retry_ms) = summary(&step);
                prop_assert_eq!(name(&told.verdict), decision, "{:?} {:?}", words, told);
                match step {
                    Step::Refuse(refusal) => {
                        let shown = refusal.standing.map(|standing| standing.remaining);
                        prop_assert_eq!(told.remaining, shown, "{:?}", told);
                        let told_ms = told.retry_after_ns.map(|ns| ns.div_ceil(MS_NS));
                        prop_assert_eq!(&told.violated, &violated, "{:?}", told);
                        prop_assert_eq!(told_ms, retry_ms, "{:?}", told);
                    }
                    Step::Wait(one) => waiting.push(one),
                    Step::Delay(delayed) => {
                        let began = gate.clock.now();
                        let pass = delayed.wait().await.map_err(|refusal| TestCaseError::fail(format!("{refusal:?}")))?;
                        let shown = pass.standing.map(|standing| standing.remaining);
                        prop_assert_eq!(told.remaining, shown, "{:?}", told);
                        prop_assert!(gate.clock.now() > began);
                    }
                    Step::Ask(_) => {}
                    Step::Pass(mut pass) => {
                        pass.charged.commit(true);
                        let shown = pass.standing.map(|standing| standing.remaining);
                        prop_assert_eq!(told.remaining, shown, "{:?}", told);
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_question_gets_an_error() {
    let gate = new_gate();
    let live = install(gate, [], CAPS);
    let good = Question {
        method: "GET".into(),
        path: "/".into(),
        host: String::new(),
        ip: std::net::Ipv4Addr::LOCALHOST.into(),
        headers: Vec::new(),
        identities: Vec::new(),
        plan: None,
    };
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for (question, start) in [
        (good.clone(), ""),
        (Question { method: "G T".into(), ..good.clone() }, "method: "),
        (Question { path: "/a%2Fb".into(), ..good.clone() }, "path: "),
        (Question { host: "a b".into(), ..good.clone() }, "host: "),
        (Question { headers: header("a b", ""), ..good.clone() }, "headers: "),
        (Question { headers: header("a", "\n1\n2"), ..good.clone() }, "headers: "),
    ] {
        let told = gate
            .explain(live, &question, &Routing::default(), gate.clock.now())
            .map_or_else(|error| error.to_string(), |_| String::new());
        assert!(told.starts_with(start) && told.is_empty() == start.is_empty(), "{question:?}: {told}");
    }
}

/// A plan without a limit leaves nothing to count.
#[tokio::test(start_paused = true)]
async fn an_unlimited_plan_has_no_remaining_units() {
    let gate = new_gate();
    let usual = limit("x-a", 5, "1h", 5, OnLimit::Reject);
    let of_plans = limit("x-b", 9, "1h", 9, OnLimit::Reject);
    let plans = vec![("all".into(), None)];
    let allowed = Allowed { plans, ..of_plans.allowed.clone() };
    let live = install(gate, [usual, Limit { allowed, ..of_plans }], CAPS);
    for (words, remaining) in [
        (&["x-a=1"][..], Some(4)),
        (&["x-b=1"], Some(8)),
        (&["x-a=1", "x-b=1"], Some(4)),
        (&["x-b=1", "x-plan=all"], None),
        (&["x-a=1", "x-b=1", "x-plan=all"], Some(4)),
    ] {
        assert_eq!(explain(gate, live, words).remaining, remaining, "{words:?}");
    }
}

/// Of denials with equal waits, refusals and explanations report the first.
#[tokio::test(start_paused = true)]
async fn the_first_of_equal_denials_is_reported() {
    let gate = new_gate();
    let too_small = |name, burst| Limit { cost: Cost::Units(9), ..limit(name, 1, "1h", burst, OnLimit::Reject) };
    let live = install(gate, [too_small("x-a", 3), too_small("x-b", 5)], CAPS);
    let words = ["x-a=1", "x-b=1"];
    let Step::Refuse(refusal) = ask(gate, live, &headers(&words)) else { panic!("no limit has 9 units") };
    assert_eq!(refusal.standing.map(|standing| (standing.limit, standing.remaining)), Some(("x-a", 3)));
    assert_eq!(explain(gate, live, &words).remaining, Some(3));
}

/// A key admits a request if it has units and nobody waits on it.
#[tokio::test(start_paused = true)]
async fn a_key_without_units_or_with_waiters_admits_nothing() {
    let gate = new_gate();
    let live = install(gate, [limit("x-a", 1, "1s", 1, hold(None))], CAPS);
    let admits =
        || explain(gate, live, &["x-a=1"]).limits[0].budget.clone().map(|budget| (budget.admits, budget.waiting));
    assert_eq!(admits(), Some((true, 0)));
    let first = ask(gate, live, &headers(&["x-a=1"]));
    assert_eq!(admits(), Some((false, 0)));
    let second = ask(gate, live, &headers(&["x-a=1"]));
    assert_eq!(admits(), Some((false, 1)));
    // The unit is back, and belongs to the request that waits.
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(admits(), Some((false, 1)));
    drop(second);
    assert_eq!(admits(), Some((true, 0)));
    drop(first);
}
