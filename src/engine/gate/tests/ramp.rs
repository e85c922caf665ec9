//! Limits whose numbers follow the wall clock.

use super::*;
use crate::base::telemetry::LimitDecision;
use crate::engine::gate::{Cause, Rejection, Verdict};
use crate::engine::limit::Scale;
use crate::engine::policy::{Ramp, Retirement};

const SECOND: Duration = Duration::from_secs(1);

/// A limit of one unit a second that is halved after 1 s and zero after 2 s.
fn ramped(start: Timestamp, is_gone: bool, on_limit: OnLimit) -> Limit {
    let begins = (0..3).map(|s| start.saturating_add_ns(s * 1_000_000_000)).collect();
    let texts = ["@0", "then"].map(Into::into);
    let [deprecation, sunset] = texts;
    let retirement = Retirement { deprecation, sunset, link: None, is_gone };
    let ramp = Ramp::new(begins, Scale { numerator: 0, denominator: 1 }, Some(retirement)).unwrap();
    Limit { ramp: Some(Arc::new(ramp)), is_listed: true, ..limit("a", 1, "1s", 1, on_limit) }
}

fn step_of(gate: &'static Gate, live: &'static Live) -> &'static Live {
    let policy = live.policy.ramped(gate.clock.now()).unwrap();
    Box::leak(Box::new(gate.replace(live, policy, &[])))
}

fn started(limit: Limit) -> (&'static Gate, &'static Live) {
    let gate = new_gate();
    let policy = policy(vec![limit], Vec::new()).shared_by(None);
    (gate, Box::leak(Box::new(gate.install_with(policy, CAPS, Arc::new(TokenCache::new(10)), &[]))))
}

/// A request that waits meets the rate in force at its turn, and 410 at zero. No step refills a bucket.
#[tokio::test(start_paused = true)]
async fn waiting_requests_meet_the_rate_of_their_turn() {
    let clock = Clock::start();
    let (gate, live) = started(ramped(clock.now(), true, hold(None)));
    let redis = FakeRedis::new(clock);
    let key = headers(&["a=k"]);
    let began = clock.now();
    let waits = |step| {
        let (redis, key) = (redis.clone(), headers(&["a=k"]));
        tokio::spawn(async move {
            let answer = answer(step, &redis, &key).await;
            (
                clock.now().ns_since(began),
                answer.map(|mut pass| pass.charged.commit(true)).map_err(|refusal| refusal.cause),
            )
        })
    };
    let live = step_of(gate, live);
    let Step::Pass(mut first) = ask(gate, live, &key) else { panic!("a new key") };
    assert!(first.budgets()[0].retirement().is_some());
    first.charged.commit(true);
    tokio::time::sleep(SECOND / 2).await;
    let (second, third) = (waits(ask(gate, live, &key)), waits(ask(gate, live, &key)));
    tokio::time::sleep(SECOND / 4).await;
    let other = waits(ask(gate, live, &headers(&["a=other"])));
    assert!(other.await.unwrap().1.is_ok());
    tokio::time::sleep(SECOND / 4).await;
    // The second one passes at 1 s, when its unit is back. From then on a unit takes 2 s.
    let live = step_of(gate, live);
    assert!(second.await.unwrap().1.is_ok());
    tokio::time::sleep(SECOND).await;
    let live = step_of(gate, live);
    assert_eq!(third.await.unwrap(), (2_000_000_000, Err(Cause::Gone)));
    for name in ["a=k", "a=other", "a=new"] {
        let Step::Refuse(refusal) = ask(gate, live, &headers(&[name])) else { panic!("{name} passes") };
        assert_eq!((refusal.cause, refusal.retry, refusal.budgets.len()), (Cause::Gone, Retry::Never, 1), "{name}");
    }
}

/// At zero a limit can answer 429 too; in shadow mode it counts, and says nothing to clients.
#[tokio::test(start_paused = true)]
async fn the_answer_at_zero_is_configured() {
    let slow_down = SlowDown { step_ns: 1000, max_ns: 1000 };
    let delay = OnLimit::Delay(DelayRule { slow_down, max_waiting: 10 });
    for (is_gone, mode, on_limit, cause) in [
        (true, Mode::Enforce, OnLimit::Reject, Some(Cause::Gone)),
        (false, Mode::Enforce, OnLimit::Reject, Some(Cause::Limit)),
        (true, Mode::Shadow, OnLimit::Reject, None),
        (true, Mode::Enforce, delay, Some(Cause::Gone)),
        (false, Mode::Enforce, delay, Some(Cause::Limit)),
        (true, Mode::Shadow, delay, None),
    ] {
        let zero = Limit { mode, ..ramped(Timestamp::ZERO, is_gone, on_limit) };
        let (gate, live) = started(zero);
        let live = step_of(gate, live);
        let told = explain::explain(gate, live, &["a=k"]).verdict;
        let refused = match ask(gate, live, &headers(&["a=k"])) {
            Step::Refuse(refusal) => Some(refusal.cause),
            Step::Pass(mut pass) => {
                assert!(pass.budgets().is_empty());
                pass.charged.commit(true);
                None
            }
            step => panic!("{step:?}"),
        };
        assert_eq!(refused, cause, "{is_gone} {mode:?}");
        match cause {
            Some(Cause::Gone) => assert!(matches!(told, Verdict::Rejected(Rejection::Cause(Cause::Gone))), "{told:?}"),
            Some(_) => assert!(matches!(told, Verdict::Rejected(Rejection::Zero)), "{told:?}"),
            None => assert!(matches!(told, Verdict::Admitted), "{told:?}"),
        }
        let decided = [LimitDecision::Refused, LimitDecision::ShadowRefused];
        let counted = decided.map(|decided| live.states[0].metrics.cells.counted(decided));
        assert_eq!(counted, if cause.is_some() { [1, 0] } else { [0, 1] });
    }
}

/// A rule without units, such as that of a plan, leaves nothing to wait for.
#[tokio::test(start_paused = true)]
async fn a_plan_without_units_is_not_delayed() {
    let slow_down = SlowDown { step_ns: 1000, max_ns: 1000 };
    let mut limit = limit("a", 1, "1s", 1, OnLimit::Delay(DelayRule { slow_down, max_waiting: 10 }));
    let none = limit.allowed.usual.scaled(Scale { numerator: 0, denominator: 1 }).unwrap();
    limit.allowed.plans.push(("none".into(), Some(none)));
    let (gate, live) = started(limit);
    assert!(matches!(ask(gate, live, &headers(&["a=k", "x-plan=none"])), Step::Refuse(_)));
    assert!(matches!(ask(gate, live, &headers(&["a=k"])), Step::Pass(_)));
}
