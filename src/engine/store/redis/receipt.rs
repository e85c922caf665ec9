//! The proof of a charge in Redis.

use smallvec::SmallVec;

/// The proof of a charge in Redis. Its numbers mean something to the script only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisReceipt {
    /// The limit's name and the key, as Redis knows them.
    pub(in crate::engine::store) store_key: Box<str>,
    /// The units that were charged.
    pub(in crate::engine::store) units: u64,
    /// The numbers of the charge, for each rate of the rule.
    pub(in crate::engine::store) rates: SmallVec<[RateReceipt; 1]>,
}

/// The proof of a charge under one rate: the number of the algorithm, and what the script needs to find the charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::store) struct RateReceipt {
    pub(in crate::engine::store) algorithm: u8,
    pub(in crate::engine::store) numbers: [u64; 5],
}

impl RedisReceipt {
    /// Makes the numbers those of a charge after which `others` were charged: as if these had not been a part of it.
    pub(in crate::engine::store) fn leave(&mut self, others: u64) {
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
