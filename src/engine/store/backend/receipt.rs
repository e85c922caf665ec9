//! The proof of a charge in a store, with which it can be given back. Only the store that made a charge reads its proof.

use smallvec::SmallVec;

use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};

/// The proof of a charge in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteReceipt {
    /// Of Redis.
    Redis(RedisReceipt),
    /// Of a limiter.
    Limiter(Box<LimiterReceipt>),
    /// Of etcd.
    Etcd(Box<EtcdReceipt>),
}

/// The proof of a charge in Redis. Its numbers mean something to the script only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisReceipt {
    /// The limit's name and the key, as Redis knows them.
    pub store_key: Box<str>,
    /// The units that were charged.
    pub units: u64,
    /// The numbers of the charge, for each rate of the rule.
    pub rates: SmallVec<[RateReceipt; 1]>,
}

/// The proof of a charge under one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    /// The number of the algorithm.
    pub algorithm: u8,
    /// What the script needs to find the charge.
    pub numbers: [u64; 5],
}

/// The proof of one charge of a call of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterReceipt {
    /// The call.
    pub call: CallId,
    /// The position of the charge in the call.
    pub index: u32,
    /// The name of the limit.
    pub limit: Box<str>,
    /// The owner of the budget.
    pub key: Key,
    /// The digest of the rule.
    pub rule: u64,
    /// The units that were charged.
    pub units: u64,
}

/// A call of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// The process of the limiter.
    pub process: u64,
    /// The worker that asked.
    pub session: u64,
    /// The number of the call in its session.
    pub number: u64,
    /// When it was made, by the clock of this process.
    pub at: Timestamp,
}

/// The proof of units that were borrowed from etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdReceipt {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The owner of the budget.
    pub key: Key,
    /// The rule under which the units were borrowed.
    pub rule: Algorithm,
    /// The number of the loan in its process.
    pub loan: u64,
    /// When the units were borrowed.
    pub at: Timestamp,
    /// The units.
    pub units: u64,
}

impl RemoteReceipt {
    /// The receipt of Redis; `None` if another kind of store made it.
    pub fn into_redis(self) -> Option<RedisReceipt> {
        match self {
            Self::Redis(receipt) => Some(receipt),
            Self::Limiter(_) | Self::Etcd(_) => None,
        }
    }

    /// The units that this receipt gives back.
    pub fn units(&self) -> u64 {
        match self {
            Self::Redis(receipt) => receipt.units,
            Self::Limiter(receipt) => receipt.units,
            Self::Etcd(receipt) => receipt.units,
        }
    }

    /// The receipt for the last `units` of its units, such as the unused part of a lease.
    pub fn of_units(mut self, most: u64) -> Self {
        match &mut self {
            Self::Redis(receipt) => receipt.units = most.min(receipt.units),
            Self::Limiter(receipt) => receipt.units = most.min(receipt.units),
            Self::Etcd(receipt) => receipt.units = most.min(receipt.units),
        }
        self
    }

    /// The receipt for the first `units` of its units, as if these alone had been charged, and the others after them.
    /// Receipts for different units of one charge can be given back in any order.
    pub fn of_first(mut self, units: u64) -> Self {
        if let Self::Redis(receipt) = &mut self {
            receipt.leave(receipt.units.saturating_sub(units));
        }
        self.of_units(units)
    }
}

impl RedisReceipt {
    /// Makes the numbers those of a charge after which `others` were charged: as if these had not been a part of it.
    fn leave(&mut self, others: u64) {
        for rate in self.rates.iter_mut().filter(|rate| rate.is_bucket()) {
            let [_, deficit_ns, _, _, interval_ns] = &mut rate.numbers;
            *deficit_ns = deficit_ns.saturating_sub(interval_ns.saturating_mul(others));
        }
    }
}

impl RateReceipt {
    /// Whether the rate is a token bucket or a leaky bucket. Its numbers are the instant of the charge, the deficit after it,
    /// the units given back before it, the tag of the interval, and the interval.
    fn is_bucket(&self) -> bool {
        matches!(self.algorithm, 1 | 2)
    }
}
