//! The messages between two replicas.
//!
//! A key is two numbers of 64 bits, see `policy/keys/key.rs`. Only bans name clients.

use bytes::Bytes;
use prost::Message as _;

use super::sequences::Sequences;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::Returned;

/// One message. Each part of it may be absent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The process of the sender, by the instant of its start in unix nanoseconds. Sequence numbers count within it.
    #[prost(fixed64, tag = "1")]
    pub epoch: u64,
    /// When the message was sent, by the clock of the sender in unix nanoseconds.
    #[prost(fixed64, tag = "2")]
    pub sent_at: u64,
    /// The age of the process in milliseconds.
    #[prost(uint64, tag = "3")]
    pub uptime_ms: u64,
    /// The first sequence number that the receiver can get. All before it are lost to a receiver that lacks them.
    #[prost(uint64, tag = "4")]
    pub oldest: u64,
    /// The batches of the receiver that the sender has.
    #[prost(message, optional, tag = "5")]
    pub received: Option<Received>,
    /// The last message of the receiver.
    #[prost(message, optional, tag = "6")]
    pub echo: Option<Echo>,
    /// An encoded [`Charges`]; empty if there is none. It is encoded once for all peers.
    #[prost(bytes = "bytes", tag = "7")]
    pub charges: Bytes,
    /// Microseconds from the batch to this message.
    #[prost(uint64, tag = "8")]
    pub age_us: u64,
    /// The part of the receiver's states that the sender asks for.
    #[prost(message, optional, tag = "9")]
    pub wanted: Option<Cursor>,
    /// A part of the sender's states.
    #[prost(message, optional, tag = "10")]
    pub states: Option<States>,
    /// The replicas whose addresses refuse connections of the sender, by their random numbers.
    #[prost(fixed64, repeated, tag = "11")]
    pub refusing: Vec<u64>,
}

/// The batches that a replica has of one peer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Received {
    /// The process of the peer.
    #[prost(fixed64, tag = "1")]
    pub epoch: u64,
    /// All batches up to this sequence number.
    #[prost(uint64, tag = "2")]
    pub base: u64,
    /// The bit `i` stands for the batch `base + 1 + i`.
    #[prost(fixed64, tag = "3")]
    pub ahead: u64,
}

/// The time of a message of a peer, which comes back to it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Echo {
    /// Its `sent_at`.
    #[prost(fixed64, tag = "1")]
    pub sent_at: u64,
    /// Nanoseconds since it arrived.
    #[prost(uint64, tag = "2")]
    pub since_ns: u64,
}

/// A batch: what one replica charged since the batch before.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Charges {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// The charges of each limit.
    #[prost(message, repeated, tag = "2")]
    pub limits: Vec<LimitCharges>,
    /// The bans that the replica set or lifted.
    #[prost(message, repeated, tag = "3")]
    pub bans: Vec<BanChange>,
}

/// A ban that was set or lifted. Of several changes of one key or network, the last by (`at`, `replica`) counts.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BanChange {
    /// The name of the limit; empty for addresses.
    #[prost(string, tag = "1")]
    pub limit: String,
    /// The texts of the key's parts; none if only `first` and `second` are known.
    #[prost(string, repeated, tag = "2")]
    pub parts: Vec<String>,
    /// The first number of the key.
    #[prost(fixed64, tag = "3")]
    pub first: u64,
    /// The second number of the key.
    #[prost(fixed64, tag = "4")]
    pub second: u64,
    /// The banned addresses; empty for a key.
    #[prost(string, tag = "5")]
    pub network: String,
    /// When it changed, in unix nanoseconds.
    #[prost(fixed64, tag = "6")]
    pub at: u64,
    /// The replica that changed it, by its random number.
    #[prost(fixed64, tag = "7")]
    pub replica: u64,
    /// The end in unix nanoseconds of the sender's clock, 0 for a ban for good. A lifted ban is remembered until then.
    #[prost(fixed64, tag = "8")]
    pub until: u64,
    /// Whether it was lifted.
    #[prost(bool, tag = "9")]
    pub is_lifted: bool,
    /// The reason that the operator gave.
    #[prost(string, tag = "10")]
    pub reason: String,
    /// The name of the operator's token.
    #[prost(string, tag = "11")]
    pub token: String,
    /// Whether the limit set the ban; otherwise an operator did.
    #[prost(bool, tag = "12")]
    pub by_limit: bool,
    /// The bans that the limit set for the key so far.
    #[prost(uint32, tag = "13")]
    pub bans: u32,
    /// The end of a longer ban that it replaced, in unix nanoseconds of the sender's clock, 0 for none. The change is
    /// remembered until then.
    #[prost(fixed64, tag = "14")]
    pub replaced_until: u64,
}

/// The charges of keys of one limit that go by one plan.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LimitCharges {
    /// The name of the limit.
    #[prost(string, tag = "1")]
    pub limit: String,
    /// The plan whose rule was applied; empty if none was.
    #[prost(string, tag = "2")]
    pub plan: String,
    /// Two numbers for each key.
    #[prost(fixed64, repeated, tag = "3")]
    pub keys: Vec<u64>,
    /// The units of each key; negative if a settlement gave units back.
    #[prost(sint64, repeated, tag = "4")]
    pub units: Vec<i64>,
    /// In place of `units`, three numbers for each key whose charges were given back: the units of these charges; the part
    /// of them in nanoseconds that comes back only less the time since the charge that no other refund has lost; and the
    /// nanoseconds from the first of these charges to the batch.
    #[prost(uint64, repeated, tag = "5")]
    pub returned: Vec<u64>,
    /// In place of `units`, the refusals of each key that count towards a ban.
    #[prost(uint32, repeated, tag = "6")]
    pub refused: Vec<u32>,
}

/// A position in the states of a replica.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Cursor {
    /// The first limit by name, or the next one if there is none of this name.
    #[prost(string, tag = "1")]
    pub limit: String,
    /// The least second number of its keys. Without a limit: a number of the bans that changed at `bans`.
    #[prost(fixed64, tag = "2")]
    pub from: u64,
    /// Without a limit: the earliest change of a ban, in unix nanoseconds. Bans come before limits.
    #[prost(fixed64, tag = "3")]
    pub bans: u64,
}

/// A part of the states of a replica.
#[derive(Clone, PartialEq, prost::Message)]
pub struct States {
    /// Where the part begins.
    #[prost(message, required, tag = "1")]
    pub at: Cursor,
    /// The states of each limit.
    #[prost(message, repeated, tag = "2")]
    pub limits: Vec<LimitStates>,
    /// Where the next part begins; absent in the last part.
    #[prost(message, optional, tag = "3")]
    pub next: Option<Cursor>,
    /// The last changes of bans.
    #[prost(message, repeated, tag = "4")]
    pub bans: Vec<BanChange>,
}

/// The states of keys of one limit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LimitStates {
    /// The name of the limit.
    #[prost(string, tag = "1")]
    pub limit: String,
    /// Two numbers for each key.
    #[prost(fixed64, repeated, tag = "2")]
    pub keys: Vec<u64>,
    /// For each key the number of its numbers, then the numbers of its state as in `limit/portable.rs`.
    #[prost(uint64, repeated, tag = "3")]
    pub numbers: Vec<u64>,
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
