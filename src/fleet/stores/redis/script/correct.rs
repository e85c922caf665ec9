//! Calls that are not awaited by any request: charges that are given back or settled, states that a replica knows, and
//! units in flight that go on.

use smallvec::{SmallVec, smallvec};

use super::call::{CORRECT, Call, Caller, PUSH, Packer, RENEW};
use super::names::{self, Names};
use crate::base::time::Timestamp;
use crate::engine::limit::late::{LateByRate, LateUnits};
use crate::engine::limit::windows::WINDOWS_MAX;
use crate::engine::limit::{Algorithm, AnyState, PortableRate};
use crate::engine::store::backend::RedisReceipt;

/// How long a server notes which corrections it has made. A correction must not be sent again after that.
const NOTED_MS: u64 = 600_000;

/// The algorithm with units in flight.
const FLIGHT: u8 = 7;

/// A change of a charge that was made before.
#[derive(Clone, Debug)]
pub struct Correction {
    /// A number that grows with each correction of a replica. A server makes none again, and none with a number below that
    /// of another one that it has made. At most 2^51.
    pub number: u64,
    /// The change.
    pub change: Change,
}

/// The change of a correction.
#[derive(Clone, Debug)]
pub enum Change {
    /// Gives a charge back.
    GiveBack(RedisReceipt),
    /// Charges units whether they fit or not.
    Settle {
        /// The key, as [`Names::of_key`].
        store_key: Box<str>,
        /// The whole rule of the limit.
        rule: Algorithm,
        /// The units of each rate.
        late: LateByRate,
        /// The most units beyond the limit.
        max_debt: u64,
    },
}

impl Change {
    /// The key that is changed.
    pub fn store_key(&self) -> &str {
        match self {
            Self::GiveBack(receipt) => &receipt.store_key,
            Self::Settle { store_key, .. } => store_key,
        }
    }
}

/// Where a server notes the corrections that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noting {
    /// In one key for all corrections of a replica. For servers that have all slots.
    ByReplica,
    /// In a key beside each key that is corrected, in its slot. For clusters.
    AtKey,
}

/// The call that makes corrections, in the order of their numbers.
pub fn correct(names: &Names, caller: &Caller, noting: Noting, corrections: &[Correction], now: Timestamp) -> Call {
    let mut packer = Packer::with_capacity(5 + 13 * corrections.len());
    let rates: usize = corrections.iter().map(|correction| rates_of(&correction.change)).sum();
    put_caller(&mut packer, caller);
    packer.put([NOTED_MS, rates as u64]);
    let mut keys: SmallVec<[Box<str>; 2]> = SmallVec::new();
    if noting == Noting::ByReplica {
        keys.push(names.of_replica(caller.replica));
    }
    for Correction { number, change } in corrections {
        if noting == Noting::AtKey {
            keys.push(names::of_replica_at_key(change.store_key(), caller.replica));
        }
        // The index of a key in Lua, which counts from 1.
        let noted = if noting == Noting::ByReplica { 1 } else { keys.len() };
        for index in 0..rates_of(change) {
            keys.push(names::of_rate(change.store_key(), index));
            // Each rate has a number of its own.
            let number = number * WINDOWS_MAX as u64 + index as u64 + 1;
            packer.put([noted as u64, number, keys.len() as u64]);
            put_rate(&mut packer, change, index, now);
        }
    }
    Call { script: &CORRECT, keys, args: smallvec![packer.into_bytes()] }
}

fn rates_of(change: &Change) -> usize {
    match change {
        Change::GiveBack(receipt) => receipt.rates.len(),
        Change::Settle { rule, .. } => rule.rates().len(),
    }
}

/// Appends the numbers of a change under one rate.
fn put_rate(packer: &mut Packer, change: &Change, index: usize, now: Timestamp) {
    match change {
        Change::GiveBack(receipt) => {
            let Some(rate) = receipt.rates.get(index) else { return };
            packer.put([rate.algorithm.into()]);
            packer.put_signed([-1]);
            packer.put([receipt.units]);
            packer.put(rate.numbers);
        }
        Change::Settle { rule, late, max_debt, .. } => {
            let Some(rate) = rule.rates().get(index) else { return };
            let PortableRate { algorithm, numbers } = rate.portable_rate(now);
            let late = late.get(index).map_or(&[][..], |late| late);
            packer.put([algorithm.into(), late.len() as u64, *max_debt]);
            packer.put_signed(numbers);
            for LateUnits { units, age_ns } in late {
                packer.put_signed([*units]);
                packer.put([age_ns / 1000]);
            }
        }
    }
}

fn put_caller(packer: &mut Packer, caller: &Caller) {
    let flight_us = u64::try_from(caller.flight.as_micros()).unwrap_or(u64::MAX);
    packer.put([caller.server_us.unwrap_or(0), caller.replica, flight_us]);
}

/// The state of a key that a replica knows.
#[derive(Clone, Debug)]
pub struct KnownState {
    /// The key, as [`Names::of_key`].
    pub store_key: Box<str>,
    /// The whole rule of the limit.
    pub rule: Algorithm,
    /// The state as of the instant of the call.
    pub state: AnyState,
}

/// The call that tells a server the states that a replica knows, of which it keeps those with a larger debt than its own.
pub fn push(caller: &Caller, states: &[KnownState], now: Timestamp) -> Call {
    let mut packer = Packer::with_capacity(1 + 10 * states.len());
    packer.put([caller.server_us.unwrap_or(0)]);
    let mut keys = SmallVec::new();
    for KnownState { store_key, rule, state } in states {
        keys.extend(names::of_rates(store_key, rule));
        for (rate, numbers) in rule.rates().iter().zip(state.export(rule, now)) {
            let PortableRate { algorithm, numbers: of_rule } = rate.portable_rate(now);
            packer.put([algorithm.into()]);
            packer.put_signed(of_rule);
            packer.put([numbers.len() as u64]);
            packer.extend(numbers);
        }
    }
    Call { script: &PUSH, keys, args: smallvec![packer.into_bytes()] }
}

/// Units that a replica has in flight under one key.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The key of the rate, as [`in_flight`] returns it.
    pub key: Box<str>,
    /// The units.
    pub units: u64,
    /// Whether the replica has no other units under the key. Otherwise the server may know of more, and keeps them.
    pub is_exact: bool,
}

/// The keys under which a charge has units in flight until it is given back.
pub fn in_flight(receipt: &RedisReceipt) -> impl Iterator<Item = Box<str>> {
    let flights = receipt.rates.iter().enumerate().filter(|(_, rate)| rate.algorithm == FLIGHT);
    flights.map(|(index, _)| names::of_rate(&receipt.store_key, index))
}

/// The keys under which units that are charged under a rule are in flight.
pub fn released<'a>(store_key: &'a str, rule: &'a Algorithm) -> impl Iterator<Item = Box<str>> + 'a {
    let rates = names::of_rates(store_key, rule).zip(rule.rates());
    rates.filter(|(_, rate)| rate.is_released()).map(|(key, _)| key)
}

/// The call that lets units in flight count for longer.
pub fn renew(caller: &Caller, units: &[InFlight]) -> Call {
    let mut packer = Packer::with_capacity(3 + 2 * units.len());
    put_caller(&mut packer, caller);
    for of_key in units {
        packer.put([of_key.units, of_key.is_exact.into()]);
    }
    let keys = units.iter().map(|of_key| of_key.key.clone()).collect();
    Call { script: &RENEW, keys, args: smallvec![packer.into_bytes()] }
}
