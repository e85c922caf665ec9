//! Limits that a server and `limit` decide side by side.

use weir::base::time::Timestamp;
use weir::engine::limit::late::{self, LateByRate};
use weir::engine::limit::slow_down::SlowDown;
use weir::engine::limit::state::State as _;
use weir::engine::limit::{Algorithm, AnyReceipt, AnyState, Decision};
use weir::engine::store::backend::{Handling, RemoteCharge, RemoteReceipt, Units};
use weir::fleet::stores::redis::script::{Change, Correction, Noting, correct};

use super::server::{KEY, Server};

/// A limit with one key.
pub struct Limit {
    pub name: String,
    pub rule: Algorithm,
    pub handling: Handling,
    pub state: AnyState,
    /// Charges that are not given back.
    pub charges: Vec<(AnyReceipt, RemoteReceipt)>,
    /// The rule that the state is under.
    adopted: Algorithm,
}

impl Limit {
    pub fn new(name: &str, rule: Algorithm, handling: Handling) -> Self {
        let (state, adopted) = (AnyState::fresh(&rule), rule.clone());
        Self { name: name.to_owned(), rule, handling, state, charges: Vec::new(), adopted }
    }

    /// Whether `limit` too knows the rates of `rule` by their positions, as a server does: no rate has been at another one.
    pub fn keeps_positions(&self, rule: &Algorithm) -> bool {
        let was_elsewhere = |(at, rate)| {
            let mut others = self.adopted.rates().iter().enumerate().filter(|(other, _)| *other != at);
            others.any(|(_, was)| AnyState::fresh(was).is_of(rate))
        };
        AnyState::fresh(&self.adopted).is_of(rule) || !rule.rates().iter().enumerate().any(was_elsewhere)
    }

    fn charge(&self, units: Units) -> RemoteCharge<'_> {
        RemoteCharge {
            limit: &self.name,
            key: KEY,
            rule: &self.rule,
            units,
            handling: self.handling,
            asked_again_until: None,
        }
    }

    fn adopt(&mut self, now: Timestamp) {
        self.state.adopt(&self.rule, now);
        self.adopted = self.rule.clone();
    }
}

/// The result of one charge as both sides must have it.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    admitted: u64,
    is_charged: bool,
    /// The units of the receipt.
    units: Option<u64>,
    decision: Decision,
    over: u64,
}

/// Numbers of corrections from one event to the next.
pub const NUMBERS: u64 = 8;

/// Decides one request by the server and by `limit`, and demands equal results.
pub fn decide(server: &mut Server, limits: &mut [Limit], units: &[Units], number: u64, now: Timestamp) {
    let before = server.dump();
    let charges: Vec<_> = limits.iter().zip(units).map(|(limit, units)| limit.charge(*units)).collect();
    let (is_admitted_there, outcomes) = server.decide(&charges, now);
    let each = outcomes.iter().zip(&charges);
    let found: Vec<Found> = each
        .map(|(outcome, charge)| Found {
            admitted: outcome.admitted,
            is_charged: outcome.is_charged,
            units: outcome.receipt.as_ref().map(RemoteReceipt::units),
            decision: outcome.decision(charge, now),
            over: outcome.state.over(charge.rule, now),
        })
        .collect();
    if !is_admitted_there {
        assert_eq!(server.dump(), before, "a denied request writes nothing");
    }
    for limit in limits.iter_mut() {
        limit.adopt(now);
    }
    let admits = |(limit, units): (&Limit, &Units)| {
        limit.handling != Handling::Enforce || limit.state.peek(&limit.rule, units.cost, now).is_admitted()
    };
    let is_admitted = limits.iter().zip(units).all(admits);
    assert_eq!(is_admitted_there, is_admitted);
    let each = limits.iter_mut().zip(units);
    let (expected, receipts): (Vec<_>, Vec<_>) =
        each.map(|(limit, units)| one(limit, *units, is_admitted, now)).unzip();
    assert_eq!(found, expected);
    for ((limit, outcome), number) in limits.iter_mut().zip(&outcomes).zip(number..) {
        assert!(!(outcome.is_outdated && outcome.is_charged));
        if outcome.is_outdated {
            settle(server, limit, (0, 0), number, now);
        }
    }
    let pairs = receipts.into_iter().zip(outcomes);
    for (limit, (receipt, outcome)) in limits.iter_mut().zip(pairs) {
        if outcome.receipt.is_some() && !limit.rule.is_released() {
            let idle_ms = limit.state.idle_at().ns_since(now).min(1 << 53) / 1_000_000;
            // The clock of a test stands still, so keys live for an hour longer.
            let left_ms = server.longest_ms(&limit.name);
            assert!(left_ms > 3_540_000 + idle_ms, "{left_ms} of {idle_ms}");
        }
        limit.charges.extend(receipt.zip(outcome.receipt));
    }
}

/// Decides one charge of a request by `limit`. Returns its proof if it is charged.
fn one(limit: &mut Limit, units: Units, is_admitted: bool, now: Timestamp) -> (Found, Option<AnyReceipt>) {
    let Limit { rule, state, handling, .. } = limit;
    let peeked = state.peek(rule, units.cost, now);
    let remaining = |state: &AnyState| state.peek(rule, 0, now).remaining;
    let granted = units.cost.max(units.want.min(remaining(state) / units.divisor));
    let admitted = if peeked.is_admitted() { granted } else { 0 };
    let (is_charged, charged, decision, receipt) = match *handling {
        _ if is_admitted && peeked.is_admitted() => {
            let decision = state.admit(rule, granted, now);
            (granted > 0, granted, decision, state.receipt(granted, now))
        }
        Handling::Delay { max_debt } if is_admitted => {
            let before = (remaining(state), state.over(rule, now));
            let slow_down = SlowDown { step_ns: 1, max_ns: max_debt };
            let slowed = slow_down.admit(state, rule, units.cost, now);
            let charged = before.0 - remaining(state) + state.over(rule, now) - before.1;
            (true, charged.min(units.cost), slowed.decision, slowed.receipt)
        }
        _ => (false, 0, peeked, state.receipt(0, now)),
    };
    let units = (charged > 0).then_some(charged);
    let found = Found { admitted, is_charged, units, decision, over: state.over(rule, now) };
    (found, units.map(|_| receipt))
}

/// Gives a charge back on both sides.
pub fn give_back(server: &mut Server, limit: &mut Limit, charge: usize, number: u64, now: Timestamp) {
    let (receipt, remote) = limit.charges.swap_remove(charge);
    limit.state.refund(&limit.adopted, &receipt, now);
    change(server, number, Change::GiveBack(remote.into_redis().unwrap()), now);
}

/// Settles units on both sides.
pub fn settle(server: &mut Server, limit: &mut Limit, (extra, max_debt): (i64, u64), number: u64, now: Timestamp) {
    limit.adopt(now);
    limit.state.settle(&limit.rule, extra, max_debt, now);
    tell(server, limit, (late::at_once(&limit.rule, extra), max_debt), number, now);
}

/// Settles units of the past on both sides.
pub fn settle_late(
    server: &mut Server,
    limit: &mut Limit,
    (late, max_debt): (LateByRate, u64),
    number: u64,
    now: Timestamp,
) {
    limit.adopt(now);
    limit.state.settle_late(&limit.rule, &late, max_debt, now);
    tell(server, limit, (late, max_debt), number, now);
}

fn tell(server: &mut Server, limit: &Limit, (late, max_debt): (LateByRate, u64), number: u64, now: Timestamp) {
    let store_key = server.names.of_key(&limit.name, KEY);
    change(server, number, Change::Settle { store_key, rule: limit.rule.clone(), late, max_debt }, now);
}

/// Makes a correction twice: the second one changes nothing.
fn change(server: &mut Server, number: u64, change: Change, now: Timestamp) {
    let noting = if (number / NUMBERS).is_multiple_of(2) { Noting::ByReplica } else { Noting::AtKey };
    let call = correct(&server.names, &server.caller, noting, &[Correction { number, change }], now);
    server.run(&call);
    let once = server.dump();
    server.run(&call);
    assert_eq!(server.dump(), once, "a repetition changes nothing");
}
