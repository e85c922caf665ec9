//! A limit whose bound follows its service.

use http::StatusCode;

use super::redis::NoStore;
use super::*;
use crate::engine::gate::Bill;
use crate::engine::gate::adaptation::ServiceOutcome;
use crate::engine::limit::concurrency::Rule;
use crate::engine::limit::concurrency::adaptive::Range;

const RANGE: Range = Range { floor: 4, ceiling: 100 };
const SERVICE: Duration = Duration::from_millis(100);

fn adaptive(range: Range, on_limit: OnLimit) -> Limit {
    let allowed = Allowed::to_all(Algorithm::Concurrency(Rule::adaptive(range)));
    Limit { matches: Match::default(), key: Vec::new(), allowed, ..limit("l", 1, "1h", 1, on_limit) }
}

fn bound(gate: &Gate) -> u64 {
    let states = gate.states.lock().unwrap();
    states["l"].newest.load().as_ref().unwrap().allowed.usual.capacity()
}

fn sent_on(gate: &'static Gate, live: &'static Live) -> Option<Pass<'static>> {
    match ask(gate, live, &headers(&[])) {
        Step::Pass(mut pass) => {
            pass.charged.commit(true);
            Some(*pass)
        }
        _ => None,
    }
}

/// Sends as many requests as the limit admits, and answers them at once after a while. Does so for `seconds`.
async fn serve(gate: &'static Gate, live: &'static Live, seconds: u64, answer: impl Fn(Pass<'static>) -> Option<Bill>) {
    for _ in 0..seconds * 10 {
        // A limit in shadow mode admits any number of requests.
        let passes: Vec<_> = std::iter::from_fn(|| sent_on(gate, live)).take(200).collect();
        tokio::time::sleep(SERVICE).await;
        let bills: Vec<_> = passes.into_iter().map(&answer).collect();
        drop(bills);
    }
}

fn answered(status: u16, media_type: &'static str) -> impl Fn(Pass<'static>) -> Option<Bill> {
    move |mut pass| {
        let fields: FieldBuf = [("content-type", media_type)].into_iter().collect();
        let mut bill = pass.charged.bill()?;
        bill.answered((status, fields.fields()), time::instant_now());
        Some(bill)
    }
}

/// Answers move the bound; streams, upgrades, and a limit that is not enforced do not.
#[tokio::test(start_paused = true)]
async fn answers_move_the_bound() {
    let rows: [(Mode, u16, &str, bool); 6] = [
        (Mode::Enforce, 200, "application/json", true),
        (Mode::Enforce, 500, "application/json", true),
        (Mode::Enforce, 200, "Text/Event-Stream; charset=utf-8", false),
        (Mode::Enforce, 101, "", false),
        (Mode::Enforce, 503, "application/json", false),
        (Mode::Shadow, 200, "application/json", false),
    ];
    for (mode, status, media_type, rises) in rows {
        let gate = new_gate();
        let live = install(gate, [Limit { mode, ..adaptive(RANGE, OnLimit::Reject) }], CAPS);
        serve(gate, live, 30, answered(status, media_type)).await;
        assert_eq!(bound(gate) > 20, rises, "{mode:?} {status} {media_type}: {}", bound(gate));
    }
}

/// The gauge of a bound ends with its limit, also where the state of the limit is swept away at once.
#[tokio::test(start_paused = true)]
async fn the_gauge_of_a_bound_ends_with_its_limit() {
    let gate = new_gate();
    install(gate, [adaptive(RANGE, OnLimit::Reject)], CAPS);
    gate.publish();
    let shown = || gate.metrics.render_openmetrics(gate.clock.started()).contains("weir_limit_bound{limit=\"l\"}");
    assert!(shown());
    install(gate, [], CAPS);
    gate.sweep();
    assert!(gate.states.lock().unwrap().is_empty());
    gate.publish();
    assert!(!shown());
}

/// A bound is reached if the next request of the same cost does not fit.
#[tokio::test(start_paused = true)]
async fn requests_with_a_cost_move_the_bound() {
    let gate = new_gate();
    let of_four = Limit { cost: Cost::Units(4), ..adaptive(Range { floor: 9, ceiling: 200 }, OnLimit::Reject) };
    let live = install(gate, [of_four], CAPS);
    serve(gate, live, 60, answered(200, "")).await;
    assert!(bound(gate) > 40, "{}", bound(gate));
}

/// Failures of the service lower the bound, also those without an answer. Afterwards it returns.
#[tokio::test(start_paused = true)]
async fn failures_lower_the_bound() {
    let unanswered = |mut pass: Pass<'static>| {
        pass.failed(StatusCode::BAD_GATEWAY, None);
        None
    };
    let gate = new_gate();
    let live = install(gate, [adaptive(RANGE, OnLimit::Reject)], CAPS);
    for fails_by_status in [true, false] {
        serve(gate, live, 60, answered(200, "")).await;
        let before = bound(gate);
        assert!(before > 50, "{before}");
        if fails_by_status {
            serve(gate, live, 20, answered(503, "")).await;
        } else {
            serve(gate, live, 20, unanswered).await;
        }
        assert!(bound(gate) <= RANGE.floor + 1, "{}", bound(gate));
        serve(gate, live, 10, answered(200, "")).await;
        assert!(bound(gate) * 3 > before * 2, "{before} {}", bound(gate));
    }
}

/// A reload keeps the bound, within its new range. A fixed `max` in between changes nothing.
#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_bound() {
    let gate = new_gate();
    let live = install(gate, [adaptive(RANGE, OnLimit::Reject)], CAPS);
    serve(gate, live, 30, answered(200, "")).await;
    let before = bound(gate);
    assert!(before > 20);
    let fixed = Algorithm::Concurrency(Rule::new(3).unwrap());
    install(gate, [Limit { allowed: Allowed::to_all(fixed), ..adaptive(RANGE, OnLimit::Reject) }], CAPS);
    for (range, expected) in [(RANGE, before), (Range { floor: 2, ceiling: 9 }, 9)] {
        let live = install(gate, [adaptive(range, OnLimit::Reject)], CAPS);
        let rule = &live.policy.limits()[0].allowed.usual;
        assert!(rule.capacity().abs_diff(expected) <= 1, "{} {expected}", rule.capacity());
        assert_eq!(rule.capacity(), bound(gate));
    }
}

/// A held request passes once the bound has risen, although no request has ended.
#[tokio::test(start_paused = true)]
async fn a_higher_bound_wakes_held_requests() {
    let gate = new_gate();
    let hold = OnLimit::Hold(HoldRule { max_wait_ns: None, max_waiting: 10 });
    let live = install(gate, [adaptive(RANGE, hold)], CAPS);
    let first: Vec<_> = std::iter::from_fn(|| sent_on(gate, live)).collect();
    let Step::Wait(waiting) = ask(gate, live, &headers(&[])) else { panic!("the limit is full") };
    let held = tokio::spawn(async move { waiting.wait(&NoStore).await.is_ok() });
    let key = gate.secret.key_of_texts(&[], &[], Prefixes::default(), &[]).unwrap();
    let (state, rule) = (&live.states[0], &live.policy.limits()[0].allowed.usual);
    for _ in 0..600 {
        tokio::time::sleep(SERVICE).await;
        let now = gate.clock.now();
        let is_full = !state.table.peek(key, rule, 1, now).is_admitted();
        if state.adaptation.adapt(now.saturating_sub_ns(100 * MS_NS), ServiceOutcome::Answered, is_full, now) {
            state.queues.wake_front(key);
        }
    }
    assert!(held.is_finished(), "{}", bound(gate));
    assert!(held.await.unwrap());
    drop(first);
}
