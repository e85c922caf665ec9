//! The call that decides all charges of a request on one node, and its reply.

use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::call::{Call, Caller, DECIDE, DECIDE_BUCKETS, Packer, Script};
use super::names::{self, Names};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, AnyState, Charged, PortableRate};
use crate::engine::store::backend::{
    Answers, Failure, Handling, RateReceipt, RedisReceipt, RemoteCharge, RemoteOutcome, RemoteReceipt, Unavailable,
};
use crate::fleet::stores::driver::Generation;

/// Numbers of a charge and of one rate.
const CHARGE_NUMBERS: usize = 12;

/// The call that decides `charges` on a node of the expected generation, which is not checked if it is `None`.
pub fn decide(
    names: &Names,
    caller: &Caller,
    generation: Option<&Generation>,
    charges: &[RemoteCharge<'_>],
    now: Timestamp,
) -> Call {
    let mut keys = SmallVec::with_capacity(charges.len());
    let mut packer = Packer::with_capacity(4 + CHARGE_NUMBERS * charges.len());
    let flight_us = u64::try_from(caller.flight.as_micros()).unwrap_or(u64::MAX);
    packer.put([caller.server_us.unwrap_or(0), caller.replica, flight_us, charges.len() as u64]);
    for charge in charges {
        let (handling, max_debt) = match charge.handling {
            Handling::Enforce => (0, 0),
            Handling::Shadow => (1, 0),
            Handling::Delay { max_debt } => (2, max_debt),
        };
        let (units, rates) = (charge.units, charge.rule.rates());
        packer.put([handling, max_debt, units.cost, units.want, units.divisor.max(1), rates.len() as u64]);
        for rate in rates {
            let PortableRate { algorithm, numbers } = rate.portable_rate(now);
            packer.put([algorithm.into()]);
            packer.put_signed(numbers);
        }
        keys.extend(names::of_rates(&names.of_key(charge.limit, charge.key), charge.rule));
    }
    let (expected, marker) = generation.map_or((String::new(), ""), |known| (known.number.to_string(), &*known.marker));
    let args = smallvec![expected.into_bytes(), packer.into_bytes(), marker.into()];
    Call { script: script_for(charges), keys, args }
}

fn script_for(charges: &[RemoteCharge<'_>]) -> &'static Script {
    let is_bucket = |rate: &Algorithm| rate.interval_ns() > 0;
    let is_plain = |charge: &RemoteCharge<'_>| {
        !matches!(charge.handling, Handling::Delay { .. }) && charge.rule.rates().iter().all(is_bucket)
    };
    if charges.iter().all(is_plain) { &DECIDE_BUCKETS } else { &DECIDE }
}

/// The reply to [`decide`] for `charges`, with an outcome for each. States are as of `now`.
///
/// # Errors
/// [`Unavailable::Cold`], or [`Failure::Reply`] if the script does not reply so.
pub fn decided(
    names: &Names,
    caller: &Caller,
    charges: &[RemoteCharge<'_>],
    reply: &Value,
    now: Timestamp,
) -> Result<Answers, Unavailable> {
    let foreign = Unavailable::Error(Failure::Reply);
    let Value::Array(values) = reply else { return Err(foreign) };
    let numbers: Option<SmallVec<[u64; 24]>> = values.iter().map(number).collect();
    let numbers = numbers.ok_or(foreign)?;
    let (is_admitted, server_us, mut rest) = match &*numbers {
        [2] => return Err(Unavailable::Cold),
        [is_admitted @ 0..=1, server_us, rest @ ..] => (*is_admitted == 1, *server_us, rest),
        _ => return Err(foreign),
    };
    let read = |charge| Reader { names, caller, server_us, now }.outcome(charge, &mut rest).map(Ok);
    let outcomes = charges.iter().map(read).collect::<Option<_>>().ok_or(foreign)?;
    if rest.is_empty() { Ok(Answers { is_admitted, outcomes }) } else { Err(foreign) }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The context of a reply.
struct Reader<'r> {
    names: &'r Names,
    caller: &'r Caller,
    server_us: u64,
    now: Timestamp,
}

impl Reader<'_> {
    /// Reads the answer to one charge, and takes its numbers off `rest`. `None` if these are not as the script writes them.
    fn outcome(&self, charge: &RemoteCharge<'_>, rest: &mut &[u64]) -> Option<RemoteOutcome> {
        let [admitted, charged, mark @ 0..=2, of_states @ ..] = *rest else { return None };
        let mut numbers = of_states.iter().copied();
        let state = AnyState::import(charge.rule, &mut numbers, self.now)?;
        *rest = of_states.get(of_states.len() - numbers.len()..)?;
        let receipt = (*charged > 0).then(|| {
            let mut of_rates = of_states;
            let rates = charge.rule.rates().iter().map(|rate| self.receipt(rate, &mut of_rates)).collect();
            let store_key = self.names.of_key(charge.limit, charge.key);
            RemoteReceipt::Redis(RedisReceipt { store_key, units: *charged, rates })
        });
        let (is_charged, is_outdated) = (*mark == 1, *mark == 2);
        Some(RemoteOutcome { admitted: *admitted, is_charged, is_outdated, state, receipt })
    }

    /// The proof of a charge under one rate, whose state the first numbers describe. Takes them off.
    fn receipt(&self, rate: &Algorithm, numbers: &mut &[u64]) -> RateReceipt {
        let charged = Charged { at_us: self.server_us, replica: self.caller.replica };
        // The state was read from these numbers, so they are there.
        let (width, proof) = rate.proof(numbers, charged).unwrap_or_default();
        *numbers = numbers.get(width..).unwrap_or_default();
        RateReceipt { algorithm: rate.number(), numbers: proof }
    }
}

#[cfg(test)]
mod tests {

    use std::time::Duration;

    use proptest::prelude::*;
    use redis::Value;

    use super::{Caller, Names, RemoteCharge, Unavailable, decided};
    use crate::base::time::Timestamp;
    use crate::engine::limit::tests::properties::singles;
    use crate::engine::limit::{Algorithm, Key};
    use crate::engine::store::backend::{Failure, Handling, Units};

    const CALLER: Caller = Caller { replica: 1, flight: Duration::from_secs(10), server_us: None };

    fn read(rules: &[Algorithm], reply: &Value) -> Result<bool, Unavailable> {
        let key = Key { first: 1, second: 2 };
        let charge = |rule| RemoteCharge {
            limit: "a",
            key,
            rule,
            units: Units::exactly(1),
            handling: Handling::Enforce,
            asked_again_until: None,
        };
        let charges: Vec<_> = rules.iter().map(charge).collect();
        let now = Timestamp::from_ns(1_700_000_000_000_000_000);
        decided(&Names::new("w"), &CALLER, &charges, reply, now).map(|decided| decided.is_admitted)
    }

    fn numbers(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    proptest! {
        #[test]
        fn a_foreign_reply_is_an_error_and_no_panic(
            rules in prop::collection::vec(singles(), 0..3),
            mut reply in prop::collection::vec(prop_oneof![0_i64..3, 0_i64..40, any::<i64>()], 0..30),
            is_likely in any::<bool>(),
        ) {
            if is_likely && reply.len() > 4 {
                (reply[0], reply[1], reply[4]) = (1, 1_700_000_000_000_000, 1);
            }
            let _ = read(&rules, &numbers(&reply));
        }
    }

    #[test]
    fn replies() {
        let rules = [crate::engine::limit::tests::algorithm("token_bucket 1/1s burst 5")];
        let foreign = Err(Unavailable::Error(Failure::Reply));
        let rows = [
            (numbers(&[1, 1000, 1, 1, 1, 1_000_000_000, 0]), Ok(true)),
            (numbers(&[0, 1000, 1, 0, 0, 0, 0]), Ok(false)),
            (numbers(&[2]), Err(Unavailable::Cold)),
            (numbers(&[]), foreign),
            (numbers(&[3, 1000, 1, 1, 1, 1, 0]), foreign),
            (numbers(&[0, 1000, 1, 0, 2, 1, 0]), Ok(false)),
            (numbers(&[1, 1000, 1, 1, 3, 1, 0]), foreign),
            (numbers(&[1, 1000, 1, 1, 1, -1, 0]), foreign),
            (numbers(&[1, 1000, 1, 1, 1, 1 << 53, 0]), foreign),
            (numbers(&[1, 1000, 1, 1, 1, 1]), foreign),
            (numbers(&[1, 1000, 1, 1, 1, 1, 0, 0]), foreign),
            (Value::Nil, foreign),
            (Value::Array(vec![Value::Int(1), Value::Nil]), foreign),
        ];
        for (reply, expected) in rows {
            assert_eq!(read(&rules, &reply), expected, "{reply:?}");
        }
    }
}
