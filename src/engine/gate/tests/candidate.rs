//! Candidates: limits that count what other numbers would do.

use super::*;
use crate::base::telemetry::{LimitDecision, RequestRecord, Text};

/// The candidate of the limit at `index`, with these numbers.
fn candidate(of: &Limit, index: usize, count: u64, burst: u64) -> Limit {
    let numbers = limit("x", count, "1s", burst, of.on_limit);
    let name = format!("{}.candidate", of.name).into();
    let allowed = numbers.allowed;
    Limit { name, mode: Mode::Shadow, allowed, candidate_of: Some(index), ..of.clone() }
}

fn counted(live: &Live, index: usize) -> [u64; 3] {
    let cells = &live.states[index].metrics.cells;
    [LimitDecision::Admitted, LimitDecision::ShadowRefused, LimitDecision::Refused].map(|kind| cells.counted(kind))
}

/// Sends a request, which stays charged. Returns whether it passes.
fn passes(gate: &'static Gate, live: &'static Live, words: &[&str]) -> bool {
    match ask(gate, live, &headers(words)) {
        Step::Pass(mut pass) => {
            pass.charged.commit(true);
            true
        }
        _ => false,
    }
}

/// A candidate counts what the same numbers would do in the place of its limit, whether they are stricter or not.
#[tokio::test(start_paused = true)]
async fn a_candidate_decides_as_its_numbers_would() {
    let numbers = [(1, 1), (5, 1), (5, 20), (20, 3), (100, 100)];
    for (live_numbers, other) in numbers.iter().flat_map(|one| numbers.iter().map(move |other| (*one, *other))) {
        let of = |(count, burst)| limit("a", count, "1s", burst, OnLimit::Reject);
        let (both, alone) = (new_gate(), new_gate());
        let with = install(both, [of(live_numbers), candidate(&of(live_numbers), 0, other.0, other.1)], CAPS);
        let without = install(alone, [of(other)], CAPS);
        for _ in 0..200 {
            passes(both, with, &["a=k"]);
            passes(alone, without, &["a=k"]);
            tokio::time::advance(Duration::from_millis(30)).await;
        }
        let [admitted, shadow_refused, refused] = counted(with, 1);
        let [expected, _, expected_refused] = counted(without, 0);
        assert_eq!((admitted, shadow_refused, refused), (expected, expected_refused, 0), "{live_numbers:?} {other:?}");
    }
}

/// A request that another limit refuses too does not reach the service with the candidate either.
#[tokio::test(start_paused = true)]
async fn a_request_that_another_limit_refuses_charges_no_candidate() {
    let gate = new_gate();
    let [a, b] = ["a", "b"].map(|name| limit(name, 1, "1h", 1, OnLimit::Reject));
    let candidates = [candidate(&a, 0, 1, 10), candidate(&b, 1, 1, 10)];
    let live = install(gate, [a, b].into_iter().chain(candidates), CAPS);
    let both = ["a=k", "b=k"];
    assert_eq!([passes(gate, live, &both), passes(gate, live, &both)], [true, false]);
    assert_eq!([counted(live, 2), counted(live, 3)], [[1, 0, 0]; 2]);
    // Now `a` alone refuses.
    assert!(!passes(gate, live, &["a=k", "b=other"]));
    assert_eq!([counted(live, 2), counted(live, 3)], [[2, 0, 0], [1, 0, 0]]);
}

/// A request that its limit refuses is never sent, so it is not in flight for the candidate.
#[tokio::test(start_paused = true)]
async fn a_refused_request_is_not_in_flight() {
    let gate = new_gate();
    let of = |max| Limit {
        allowed: Allowed::to_all(Algorithm::Concurrency(concurrency::Rule::new(max).unwrap())),
        ..limit("a", 1, "1s", 1, OnLimit::Reject)
    };
    let candidate = Limit { allowed: of(2).allowed, ..candidate(&of(1), 0, 1, 1) };
    let live = install(gate, [of(1), candidate], CAPS);
    let Step::Pass(first) = ask(gate, live, &headers(&["a=k"])) else { panic!("refused") };
    for _ in 0..3 {
        assert!(!passes(gate, live, &["a=k"]));
    }
    assert_eq!(counted(live, 1), [4, 0, 0]);
    drop(first);
    assert!(passes(gate, live, &["a=k"]));
}

/// The record of a request names the limits in shadow mode that would have refused it, also if it is refused or held.
#[tokio::test(start_paused = true)]
async fn records_name_limits_in_shadow_mode() {
    for (on_limit, burst, named) in
        [(OnLimit::Reject, 1, "a.candidate"), (OnLimit::Reject, 9, ""), (hold(None), 1, "a.candidate")]
    {
        let gate = new_gate();
        let of = limit("a", 1, "1h", 1, on_limit);
        let strict = candidate(&of, 0, 1, burst);
        let live = install(gate, [of, strict], CAPS);
        assert!(passes(gate, live, &["a=k"]));
        let (mut pass, mut record) = (Pass::default(), RequestRecord::default());
        let words = headers(&["a=k"]);
        let stage = (live, Stage::Identified);
        let step = gate.admit_into(&mut pass, stage, &facts(&words), || 100, gate.clock.now(), Some(&mut record));
        assert!(step.unwrap().is_some());
        assert_eq!(record.text(Text::ShadowLimits), named, "{on_limit:?} {burst}");
    }
    let gate = new_gate();
    let of = limit("a", 1, "1h", 9, OnLimit::Reject);
    let strict = candidate(&of, 0, 1, 1);
    let live = install(gate, [of, strict], CAPS);
    let named = [0, 1].map(|_| {
        let (mut pass, mut record) = (Pass::default(), RequestRecord::default());
        let words = headers(&["a=k"]);
        let stage = (live, Stage::Identified);
        let step = gate.admit_into(&mut pass, stage, &facts(&words), || 100, gate.clock.now(), Some(&mut record));
        pass.charged.commit(true);
        assert!(step.unwrap().is_none());
        record.text(Text::ShadowLimits).to_owned()
    });
    assert_eq!(named, ["", "a.candidate"]);
}
