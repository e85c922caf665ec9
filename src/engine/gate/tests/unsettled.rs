//! Charges of requests whose answers Weir does not see, and the budgets of a request.

use super::*;
use crate::engine::gate::Spend;
use crate::engine::limit::{Retry, concurrency};
use crate::engine::policy::{AfterResponse, Settle, SettleBy, StatusSet};

/// Admits a request with these headers and this cost, and closes its charges. Returns what remains.
fn remaining(gate: &'static Gate, live: &'static Live, fields: &FieldBuf, cost: Option<u64>) -> Option<u64> {
    let facts = Facts { cost, ..facts(fields) };
    let step = gate.admit(live, Stage::Identified, &facts, || 100, gate.clock.now()).unwrap();
    let Step::Pass(mut pass) = step else { return None };
    pass.charged.close();
    pass.standing.map(|standing| standing.remaining)
}

#[tokio::test(start_paused = true)]
async fn charges_stay_and_units_in_flight_come_back() {
    let bucket = limit("a", 1, "1h", 10, OnLimit::Reject);
    let settle = |by| Some(Arc::new(AfterResponse { counts: None, settle: Some(Settle::only(by, 9)) }));
    let counts = Some(StatusSet(vec![(500, 599)]));
    let in_flight = Allowed::to_all(Algorithm::Concurrency(concurrency::Rule::new(3).unwrap()));
    for (after, allowed, expected) in [
        (None, bucket.allowed.clone(), [8, 6, 4]),
        (settle(SettleBy::ElapsedMs), bucket.allowed.clone(), [8, 6, 4]),
        (settle(SettleBy::ResponseBytes), bucket.allowed.clone(), [8, 6, 4]),
        (Some(Arc::new(AfterResponse { counts, settle: None })), bucket.allowed.clone(), [8, 6, 4]),
        (None, in_flight, [1, 1, 1]),
    ] {
        let gate = new_gate();
        let row = format!("{after:?} {allowed:?}");
        let live = install(gate, [Limit { after, allowed, cost: Cost::Units(2), ..bucket.clone() }], CAPS);
        let found = [(); 3].map(|()| remaining(gate, live, &headers(&["a=1"]), None));
        assert_eq!(found, expected.map(Some), "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_a_check_replaces_that_of_its_limits() {
    let gate = new_gate();
    let table = Limit { cost: Cost::Units(3), ..limit("b", 1, "1h", 10, OnLimit::Reject) };
    let live = install(gate, [limit("a", 1, "1h", 20, OnLimit::Reject), table], CAPS);
    let fields = headers(&["a=1", "b=1"]);
    for (cost, expected) in
        [(Some(4), Some(6)), (Some(0), Some(6)), (None, Some(3)), (Some(4), None), (Some(3), Some(0))]
    {
        assert_eq!(remaining(gate, live, &fields, cost), expected, "{cost:?}");
    }
    // 4 + 1 + 3 of 20 were taken from the other limit, and the refusal took nothing.
    let spend = Spend { limit: "a", key: &[("header:a".into(), "1".into())], plan: None, units: 1 };
    assert_eq!(gate.spend(live, spend, gate.clock.now()).unwrap().remaining, Some(11));
}

#[tokio::test(start_paused = true)]
async fn the_budgets_of_a_request_are_those_of_its_enforced_limits() {
    let gate = new_gate();
    let shadow = Limit { mode: Mode::Shadow, ..limit("a", 1, "1h", 9, OnLimit::Reject) };
    let named = |name: &str, other: Limit| Limit { name: name.into(), ..other };
    let limits = [
        limit("a", 1, "1h", 5, OnLimit::Reject),
        named("shadow", shadow),
        limit("b", 1, "1h", 5, OnLimit::Reject),
        named("first", Limit { stage: Stage::Arrival, ..limit("a", 1, "1h", 7, OnLimit::Reject) }),
    ];
    let live = install(gate, limits, CAPS);
    let listed = |stage, fields: &FieldBuf, cost| {
        let facts = Facts { cost, ..facts(fields) };
        let budgets = gate.budgets(live, stage, &facts, gate.clock.now());
        let items = budgets.iter().flat_map(|budget| budget.items().collect::<Vec<_>>());
        items.map(|item| (item.limit.to_owned(), item.remaining.units, item.remaining.denied)).collect::<Vec<_>>()
    };
    let fields = headers(&["a=1"]);
    remaining(gate, live, &fields, Some(2));
    let row = |name: &str, units, denied| vec![(name.to_owned(), units, denied)];
    assert_eq!(listed(Stage::Identified, &fields, None), row("a", 3, None));
    assert_eq!(listed(Stage::Identified, &fields, Some(4)), row("a", 3, Some(Retry::AfterNs(ns("1h")))));
    assert_eq!(listed(Stage::Identified, &fields, Some(6)), row("a", 3, Some(Retry::Never)));
    assert_eq!(listed(Stage::Arrival, &fields, None), row("first", 7, None));
    // No limit applies, or a key is ambiguous.
    assert_eq!(listed(Stage::Identified, &headers(&[]), None), []);
    assert_eq!(listed(Stage::Identified, &headers(&["a=1", "a=2"]), None), []);
}
