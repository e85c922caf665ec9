//! The messages between two replicas.
//!
//! A key is two numbers of 64 bits, see `policy/keys/key.rs`. Only bans name clients.

use prost::Message as _;

use super::sequences::Sequences;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::Returned;

pub use self::generated::FleetMessage as Message;
pub use self::generated::{
    BanChange, Charges, Cursor, Echo, FleetMessage, LimitCharges, LimitStates, Received, States,
};

/// The messages that `proto/generate` generates from `fleet.proto`.
mod generated {
    #![allow(unreachable_pub, clippy::pedantic, reason = "the code is generated")]

    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/generated/fleet_messages/weir.v1.rs"));
}

impl Message {
    /// The batch of the message; `None` if there is none, or it cannot be decoded.
    pub fn charges(&self) -> Option<Charges> {
        if self.charges.is_empty() { None } else { Charges::decode(&*self.charges).ok() }
    }
}

impl Received {
    /// The batches of the process `epoch` that are in `sequences`.
    pub(super) fn of(epoch: u64, sequences: Sequences) -> Self {
        let Sequences { base, ahead } = sequences;
        Self { epoch, base, ahead }
    }

    pub(super) fn sequences(&self) -> Sequences {
        Sequences { base: self.base, ahead: self.ahead }
    }
}

impl LimitCharges {
    /// Charges of no key.
    pub fn of(limit: &str, plan: Option<&str>) -> Self {
        let plan = plan.unwrap_or_default().into();
        Self { limit: limit.into(), plan, ..Self::default() }
    }

    /// Adds the charge of a key.
    pub fn push(&mut self, key: Key, units: i64) {
        self.keys.extend([key.first, key.second]);
        self.units.push(units);
    }

    /// Each key with its units.
    pub fn each(&self) -> impl Iterator<Item = (Key, i64)> {
        keys(&self.keys).zip(self.units.iter().copied())
    }

    /// Adds the charges of a key that were given back, in a batch of `now`.
    pub fn push_returned(&mut self, key: Key, returned: &Returned, now: Timestamp) {
        self.keys.extend([key.first, key.second]);
        self.returned.extend([returned.charged, returned.risk_ns, now.ns_since(returned.at)]);
    }

    /// Each key with its charges that were given back, of a batch that was made at `at`.
    pub fn each_returned(&self, at: Timestamp) -> impl Iterator<Item = (Key, Returned)> {
        let returned = self.returned.as_chunks().0.iter().map(move |[charged, risk_ns, age_ns]| Returned {
            units: 0,
            charged: *charged,
            risk_ns: *risk_ns,
            at: at.saturating_sub_ns(*age_ns),
        });
        keys(&self.keys).zip(returned)
    }

    /// Adds refusals of a key.
    pub fn push_refused(&mut self, key: Key, refusals: u32) {
        self.keys.extend([key.first, key.second]);
        self.refused.push(refusals);
    }

    /// Each key with its refusals.
    pub fn each_refused(&self) -> impl Iterator<Item = (Key, u32)> {
        keys(&self.keys).zip(self.refused.iter().copied())
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len() / 2
    }

    /// Splits off the charges behind the first `most` ones; `None` if there are no more.
    pub(super) fn split_off(&mut self, most: usize) -> Option<Self> {
        (self.len() > most).then(|| Self {
            limit: self.limit.clone(),
            plan: self.plan.clone(),
            keys: self.keys.split_off(2 * most),
            units: self.units.split_off(most.min(self.units.len())),
            returned: self.returned.split_off((3 * most).min(self.returned.len())),
            refused: self.refused.split_off(most.min(self.refused.len())),
        })
    }
}

/// The keys of pairs of numbers.
pub(super) fn keys(numbers: &[u64]) -> impl Iterator<Item = Key> {
    numbers.as_chunks().0.iter().map(|[first, second]| Key::of_hash(*first, *second))
}
