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

/// A request that its limit refuses is in flight for neither.
#[tokio::test(start_paused = true)]
async fn a_refused_request_is_not_in_flight() {
    let gate = new_gate();
    let of = |max| Limit {
        allowed: Allowed::to_all(Algorithm::Concurrency(concurrency::Rule::new(max).unwrap())),
        ..limit("a", 1, "1s", 1, OnLimit::Reject)
    };
    let candidate = Limit { allowed: of(1).allowed, ..candidate(&of(2), 0, 1, 1) };
    let live = install(gate, [of(2), candidate], CAPS);
    let [first, second] = [(); 2].map(|()| ask(gate, live, &headers(&["a=k"])));
    assert!(matches!((&first, &second), (Step::Pass(_), Step::Pass(_))));
    assert!(!passes(gate, live, &["a=k"]));
    assert_eq!(counted(live, 1), [1, 2, 0]);
    drop((first, second));
    assert!(passes(gate, live, &["a=k"]));
    assert_eq!(counted(live, 1), [2, 2, 0]);
}

/// Decides a request, and adds what its limits say to `record`.
fn recorded(
    gate: &'static Gate,
    live: &'static Live,
    stage: Stage,
    record: &mut RequestRecord,
) -> (Pass<'static>, Option<Step<'static>>) {
    let (mut pass, words) = (Pass::default(), headers(&["a=k", "b=k"]));
    let step = gate.admit_into(&mut pass, (live, stage), &facts(&words), || 100, gate.clock.now(), Some(record));
    pass.charged.commit(true);
    (pass, step.unwrap())
}

/// The record of a request names the limits in shadow mode that would have refused it, whether it passes or is refused,
/// of both stages.
#[tokio::test(start_paused = true)]
async fn records_name_limits_in_shadow_mode() {
    for (burst, candidate_burst, named) in [(1, 1, "a.candidate"), (1, 9, ""), (9, 1, "a.candidate")] {
        let gate = new_gate();
        let of = limit("a", 1, "1h", burst, OnLimit::Reject);
        let candidate = candidate(&of, 0, 1, candidate_burst);
        let live = install(gate, [of, candidate], CAPS);
        let names = [(); 2].map(|()| {
            let mut record = RequestRecord::default();
            recorded(gate, live, Stage::Identified, &mut record);
            record.text(Text::ShadowLimits).to_owned()
        });
        assert_eq!(names, ["", named], "{burst} {candidate_burst}");
    }
    let gate = new_gate();
    let of = |name| Limit { mode: Mode::Shadow, ..limit(name, 1, "1h", 1, OnLimit::Reject) };
    let live = install(gate, [Limit { stage: Stage::Arrival, ..of("a") }, of("b")], CAPS);
    let mut record = RequestRecord::default();
    for _ in 0..2 {
        record = RequestRecord::default();
        for stage in [Stage::Arrival, Stage::Identified] {
            recorded(gate, live, stage, &mut record);
        }
    }
    assert_eq!(record.text(Text::ShadowLimits), "a,b");
}

/// A request that waits counts at its turn, in metrics and in its record.
#[tokio::test(start_paused = true)]
async fn a_held_request_counts_at_its_turn() {
    for (period, named, counts) in [("100ms", "", [2, 0, 0]), ("1h", "a.candidate", [1, 0, 0])] {
        let gate = new_gate();
        let of = limit("a", 1, "1s", 1, hold(None));
        let allowed = limit("x", 1, period, 1, hold(None)).allowed;
        let candidate = Limit { allowed, ..candidate(&of, 0, 1, 1) };
        let live = install(gate, [of, candidate], CAPS);
        let mut record = RequestRecord::default();
        assert!(recorded(gate, live, Stage::Identified, &mut record).1.is_none());
        let Some(Step::Wait(waiting)) = recorded(gate, live, Stage::Identified, &mut record).1 else {
            panic!("passes")
        };
        assert_eq!(record.text(Text::ShadowLimits), "", "not yet");
        let pass = waiting.wait(&FakeRedis::new(gate.clock)).await.unwrap();
        pass.describe_turn(&mut record);
        assert_eq!((record.text(Text::ShadowLimits), counted(live, 1)), (named, counts), "{period}");
    }
}
