//! The proof of a charge that a limiter made.

use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// A call of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// The process of the limiter.
    pub(in crate::engine::store) process: u64,
    /// The worker that asked.
    pub(in crate::engine::store) session: u64,
    /// The number of the call in its session.
    pub(in crate::engine::store) number: u64,
    /// When it was made, by the clock of this process.
    pub(in crate::engine::store) at: Timestamp,
}

/// The proof of one charge of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterReceipt {
    /// The call.
    pub(in crate::engine::store) call: CallId,
    /// The position of the charge in the call.
    pub(in crate::engine::store) index: u32,
    /// The name of the limit.
    pub(in crate::engine::store) limit: Box<str>,
    /// The owner of the budget.
    pub(in crate::engine::store) key: Key,
    /// The digest of the rule.
    pub(in crate::engine::store) rule: u64,
    /// The units that were charged.
    pub(in crate::engine::store) units: u64,
}

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refund {
    /// All charges of a call whose answer is unknown.
    Call(CallId),
    /// One charge.
    Charge(LimiterReceipt),
}

impl Refund {
    /// The process of the limiter that made the charge.
    pub(super) fn process(&self) -> u64 {
        match self {
            Self::Call(call) => call.process,
            Self::Charge(receipt) => receipt.call.process,
        }
    }
}
