//! A server whose clock is set back: an outage of its time source, a resumed machine, or a master whose clock is behind.

use weir::base::time::Timestamp;
use weir::engine::limit::{Algorithm, AlgorithmName, Rate, Settings, fixed_window};
use weir::engine::store::backend::RemoteCharge;

use super::rows::{MS, NOW, charge, decide_at, rules};
use super::server::Server;

const PERIOD_MS: u64 = 2000;
const HOUR_MS: u64 = 3_600_000;

/// Each row of [`rules`], and a log of many entries: the rule, its units in a period, and the pause between requests.
fn rows() -> Vec<(Algorithm, u64, u64)> {
    let many = Settings::from(Rate { count: 200, period_ns: PERIOD_MS * MS });
    let log = AlgorithmName::SlidingLog.rule(&many).unwrap();
    let timed = rules().into_iter().filter(|rule| !rule.is_released());
    timed.map(|rule| (rule, 10, 50)).chain([(log, 200, 5)]).collect()
}

/// Asks for one unit in each `pause_ms` of a period that begins at `from_ms` by the server's clock. Returns the units admitted.
fn period(server: &mut Server, charges: &[RemoteCharge<'_>], from_ms: u64, pause_ms: u64) -> u64 {
    let mut decide = |ms: u64| {
        let now: Timestamp = NOW.saturating_add_ns(ms * MS);
        server.caller.server_us = Some(now.as_ns() / 1000);
        u64::from(server.decide(charges, now).0)
    };
    (0..PERIOD_MS / pause_ms).map(|index| decide(from_ms + index * pause_ms)).sum()
}

/// Units neither come back by the step, nor stay away for longer than a period.
#[test]
fn limits_admit_at_their_rate_again_after_a_period() {
    let mut server = Server::start();
    let many = Rate { count: 1_000_000, period_ns: PERIOD_MS * MS };
    let many = Algorithm::FixedWindow(fixed_window::Rule::from_first(many).unwrap());
    for (rule, count, pause_ms) in rows() {
        // Buckets alone have a script of their own.
        let beside = RemoteCharge { limit: "b", ..charge(&many, 1) };
        for charges in [&[charge(&rule, 1)][..], &[charge(&rule, 1), beside]] {
            for (step_ms, ahead_ms) in [(500, 0), (HOUR_MS, 0), (HOUR_MS, 700), (HOUR_MS, 1900)] {
                server.send::<()>(&["FLUSHALL"]);
                let begin_ms = 2 * HOUR_MS + ahead_ms;
                let first = period(&mut server, charges, begin_ms, pause_ms);
                let second = period(&mut server, charges, begin_ms + PERIOD_MS, pause_ms);
                assert!(first >= count && second > 0, "{first} {second} {rule:?}");
                let back_ms = begin_ms + 2 * PERIOD_MS - step_ms;
                let found: Vec<u64> =
                    (0..4).map(|index| period(&mut server, charges, back_ms + index * PERIOD_MS, pause_ms)).collect();
                let case = format!("{found:?} {step_ms} {ahead_ms} {} {rule:?}", charges.len());
                assert!(found[0] <= count, "the step gives units: {case}");
                assert!(found[1..].iter().all(|units| (count * 8 / 10..=count).contains(units)), "{case}");
            }
        }
    }
}

/// A full limit is written once, so that it ages by the new clock.
#[test]
fn a_denial_writes_once() {
    let mut server = Server::start();
    for rule in rules() {
        server.send::<()>(&["FLUSHALL"]);
        decide_at(&mut server, &charge(&rule, 10), HOUR_MS);
        let before = server.dump();
        let mut deny = || {
            assert_eq!(decide_at(&mut server, &charge(&rule, 1), 0).admitted, 0, "{rule:?}");
            server.dump()
        };
        let (once, twice) = (deny(), deny());
        assert_ne!(once, before, "{rule:?}");
        assert_eq!(once, twice, "{rule:?}");
    }
}

/// Units that had expired before the step do not count again, also in a log of which few entries are written.
#[test]
fn expired_units_of_a_long_log_stay_expired() {
    let mut server = Server::start();
    let settings = Settings::from(Rate { count: 75, period_ns: PERIOD_MS * MS });
    let rule = AlgorithmName::SlidingLog.rule(&settings).unwrap();
    let mut admitted = |ms: u64, cost: u64| decide_at(&mut server, &charge(&rule, cost), ms).admitted;
    for ms in (0..10).chain(1000..1060).chain([2500]) {
        assert_eq!(admitted(HOUR_MS + ms, 1), 1, "{ms}");
    }
    assert_eq!(admitted(HOUR_MS + 1500, 1), 1);
    // 62 of 75 units count.
    assert_eq!([admitted(HOUR_MS + 1501, 14), admitted(HOUR_MS + 1501, 13)], [0, 13]);
}

#[test]
fn units_in_flight_of_a_dead_replica_end() {
    let mut server = Server::start();
    let rule = rules().pop().unwrap();
    let mut admitted = |ms: u64, replica: u64| {
        server.caller.replica = replica;
        decide_at(&mut server, &charge(&rule, 10), ms).admitted
    };
    assert_eq!(admitted(HOUR_MS, 1), 10);
    assert_eq!(admitted(0, 2), 0);
    assert_eq!(admitted(9_999, 2), 0);
    assert_eq!(admitted(10_000, 2), 10);
}
