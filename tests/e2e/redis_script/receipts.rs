//! Receipts that are given back in parts, or after a change of the rule.

use weir::engine::limit::{Algorithm, Quota, Rate};
use weir::engine::store::backend::RemoteReceipt;
use weir::fleet::stores::redis::script::{Change, Correction, Noting, correct};

use super::rows::{MS, NOW, bucket, charge, decide_at};
use super::server::Server;

/// Gives a charge back by the correction of this number, at the server's time, which is this long after [`NOW`].
fn give_back(server: &mut Server, number: u64, receipt: RemoteReceipt, ms: u64) {
    let correction = Correction { number, change: Change::GiveBack(receipt.into_redis().unwrap()) };
    let now = NOW.saturating_add_ns(ms * MS);
    server.caller.server_us = Some(now.as_ns() / 1000);
    let call = correct(&server.names, &server.caller, Noting::AtKey, &[correction], now);
    server.run(&call);
}

/// Parts of one charge that are given back one after another are different units.
#[test]
fn parts_of_a_charge_are_given_back_once() {
    let (mut server, rule) = (Server::start(), bucket());
    let left = |server: &mut Server, ms| {
        let charge = charge(&rule, 0);
        decide_at(server, &charge, ms).decision(&charge, NOW.saturating_add_ns(ms * MS)).remaining
    };
    let borrowed = decide_at(&mut server, &charge(&rule, 8), 0).receipt.unwrap();
    decide_at(&mut server, &charge(&rule, 2), 0);
    for unit in 1..=8 {
        give_back(&mut server, unit, borrowed.clone().of_first(unit).of_units(1), 0);
        assert_eq!(left(&mut server, 0), unit);
    }
    server.send::<()>(&["FLUSHALL"]);
    let borrowed = decide_at(&mut server, &charge(&rule, 4), 0).receipt.unwrap();
    give_back(&mut server, 1, borrowed.clone().of_first(2), 0);
    assert_eq!(left(&mut server, 0), 8);
    // The other two units have come back with time at 400 ms.
    decide_at(&mut server, &charge(&rule, 10), 500);
    give_back(&mut server, 2, borrowed.of_first(4).of_units(2), 500);
    assert_eq!(left(&mut server, 500), 0);
}

/// Between two changes of the rate the units of a charge come back, and others take them.
#[test]
fn a_receipt_is_void_once_the_rate_has_changed() {
    let mut server = Server::start();
    let rule =
        |count, period_ms| Algorithm::TokenBucket(Quota::new(Rate { count, period_ns: period_ms * MS }, 10).unwrap());
    let (slow, fast) = (rule(1, 3_600_000), rule(1, 1));
    let receipt = decide_at(&mut server, &charge(&slow, 5), 0).receipt.unwrap();
    for (rule, cost, ms) in [(&fast, 1, 0), (&fast, 10, 1000), (&slow, 1, 1001)] {
        assert!(decide_at(&mut server, &charge(rule, cost), ms).is_charged, "{cost} at {ms}");
    }
    give_back(&mut server, 1, receipt, 1001);
    assert_eq!(decide_at(&mut server, &charge(&slow, 1), 1001).admitted, 0);
}
