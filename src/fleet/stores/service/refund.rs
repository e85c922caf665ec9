//! What is given back to a limiter.

use crate::engine::store::backend::{CallId, LimiterReceipt};

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fleet::stores) enum Refund {
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
