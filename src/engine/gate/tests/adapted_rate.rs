//! A limit whose rate follows a signal.

use http::StatusCode;

use super::*;
use crate::engine::limit::adaptive_rate::{Rule, Signal};
use crate::engine::policy::AfterResponse;

const TARGET_NS: u64 = 200 * MS_NS;

/// 100 requests a second for all, as compiled with `adapt`.
fn adaptive(signal: Signal, floor: u64) -> Limit {
    let target = if signal.is_duration() { TARGET_NS } else { 500 };
    let after = (signal != Signal::Cpu).then(|| Arc::new(AfterResponse { counts: None, settle: None }));
    let adapt = Some(Rule { signal, target, floor, ceiling: WHOLE });
    Limit { matches: Match::default(), key: Vec::new(), adapt, after, ..limit("l", 100, "1s", 100, OnLimit::Reject) }
}

fn installed(gate: &Gate, limit: Limit) -> &'static Live {
    Box::leak(Box::new(gate.install(policy(vec![limit], Vec::new()).shared_by(None), CAPS, 1)))
}

/// Asks 200 times a second, and lets the service answer after a while. Ends a window.
async fn second(gate: &'static Gate, live: &mut &'static Live, cpu: Option<f64>, answer: impl Fn(&mut Pass<'static>)) {
    for _ in 0..200 {
        if let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) {
            pass.charged.commit(true);
            answer(&mut pass);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if let Some(policy) = gate.end_window(live, cpu) {
        *live = Box::leak(Box::new(gate.replace(live, policy, &[])));
    }
}

fn part(live: &Live) -> u64 {
    let limit = &live.policy.limits()[0];
    let capacity = limit.allowed.usual.capacity();
    assert_eq!((limit.adapted / 10, live.adapted_rate(0).unwrap().part), (capacity, limit.adapted));
    capacity
}

/// An answer of this status and type, to a request that got a connection `ms` ago.
fn answered(status: u16, media_type: &'static str, ms: u64) -> impl Fn(&mut Pass<'static>) {
    move |pass| {
        let fields: FieldBuf = [("content-type", media_type)].into_iter().collect();
        let sent = time::instant_now().checked_sub(Duration::from_millis(ms)).unwrap();
        if let Some(mut bill) = pass.charged.bill() {
            bill.answered((status, fields.fields()), sent);
        }
    }
}

/// Slow answers and failures lower the rate; other answers, streams and upgrades do not, and raise it again.
#[tokio::test(start_paused = true)]
async fn answers_move_the_rate() {
    let rows: [(Signal, Mode, u16, &str, u64, bool); 9] = [
        (Signal::UpstreamP90, Mode::Enforce, 200, "text/html", 500, true),
        (Signal::UpstreamP90, Mode::Shadow, 200, "text/html", 500, true),
        (Signal::UpstreamP90, Mode::Enforce, 500, "text/html", 100, false),
        (Signal::UpstreamP90, Mode::Enforce, 503, "text/html", 1, true),
        (Signal::UpstreamP90, Mode::Enforce, 200, "text/event-stream", 500, false),
        (Signal::UpstreamP90, Mode::Enforce, 101, "", 500, false),
        (Signal::UpstreamErrors, Mode::Enforce, 502, "text/html", 1, true),
        (Signal::UpstreamErrors, Mode::Enforce, 200, "text/html", 500, false),
        (Signal::QueueDelay, Mode::Enforce, 200, "text/html", 500, false),
    ];
    for (signal, mode, status, media_type, ms, falls) in rows {
        let gate = new_gate();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut live = installed(gate, Limit { mode, ..adaptive(signal, 500) });
        for _ in 0..9 {
            second(gate, &mut live, None, answered(status, media_type, ms)).await;
        }
        assert_eq!(part(live), if falls { 50 } else { 100 }, "{signal:?} {mode:?} {status} {media_type}");
        if falls {
            for _ in 0..10 {
                second(gate, &mut live, None, answered(200, "text/html", 1)).await;
            }
            assert!(part(live) >= 55, "{signal:?} {mode:?} {status} {media_type}: {}", part(live));
        }
    }
}

/// A request that gets no answer is a failure, and slow.
#[tokio::test(start_paused = true)]
async fn failures_move_the_rate() {
    for signal in [Signal::UpstreamP90, Signal::UpstreamErrors, Signal::QueueDelay] {
        let gate = new_gate();
        let mut live = installed(gate, adaptive(signal, 200));
        for _ in 0..20 {
            second(gate, &mut live, None, |pass| pass.failed(StatusCode::BAD_GATEWAY, None)).await;
        }
        assert_eq!(part(live), 20, "{signal:?}");
    }
}

/// Clients that leave after more than the target lower the rate by latency: no answer comes that could. Those that leave
/// earlier do not, nor do those of a stream.
#[tokio::test(start_paused = true)]
async fn clients_that_leave_a_slow_service_lower_the_rate() {
    let rows = [
        (Signal::UpstreamP90, 1000, false, true),
        (Signal::UpstreamP90, 100, false, false),
        (Signal::UpstreamP90, 1000, true, false),
        (Signal::QueueDelay, 1000, false, false),
        (Signal::UpstreamErrors, 1000, false, false),
    ];
    for (signal, ms, is_stream, falls) in rows {
        let gate = new_gate();
        let mut live = installed(gate, adaptive(signal, 200));
        for _ in 0..20 {
            let mut in_flight = Vec::new();
            for _ in 0..50 {
                if let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) {
                    pass.charged.commit(true);
                    in_flight.push(pass);
                }
            }
            tokio::time::sleep(Duration::from_millis(ms)).await;
            if is_stream {
                for pass in &mut in_flight {
                    answered(200, "text/event-stream", ms)(pass);
                }
            }
            drop(in_flight);
            tokio::time::sleep(Duration::from_millis(1000 - ms)).await;
            if let Some(policy) = gate.end_window(live, None) {
                live = Box::leak(Box::new(gate.replace(live, policy, &[])));
            }
        }
        assert_eq!(part(live), if falls { 20 } else { 100 }, "{signal:?} {ms} {is_stream}");
    }
}

/// Busy CPUs lower the rate. The lower rate refuses at once, a replaced policy refills no bucket, and a reload keeps the part.
#[tokio::test(start_paused = true)]
async fn cpus_move_the_rate() {
    let gate = new_gate();
    let mut live = installed(gate, adaptive(Signal::Cpu, 200));
    for _ in 0..20 {
        second(gate, &mut live, Some(1.0), |_| {}).await;
    }
    assert_eq!(part(live), 20);
    let signal = live.adapted_rate(0).unwrap().signal;
    assert_eq!(signal, Some(1000));
    let mut admitted = 0;
    for _ in 0..1000 {
        if let Step::Pass(mut pass) = ask(gate, live, &headers(&[])) {
            pass.charged.commit(true);
            admitted += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!((199..=220).contains(&admitted), "{admitted} in ten seconds");
    for (floor, expected) in [(200, 20), (500, 50), (200, 50)] {
        live = installed(gate, adaptive(Signal::Cpu, floor));
        assert_eq!(part(live), expected);
    }
    gate.publish();
    let metrics = gate.metrics.render_openmetrics(gate.clock.started());
    assert!(metrics.contains("weir_limit_adapted_ratio{limit=\"l\"} 0.5"), "{metrics}");
    live = installed(gate, Limit { adapt: None, ..adaptive(Signal::Cpu, 200) });
    assert_eq!(live.policy.limits()[0].allowed.usual.capacity(), 100);
    gate.publish();
    assert!(!gate.metrics.render_openmetrics(gate.clock.started()).contains("weir_limit_adapted_ratio{"));
}
