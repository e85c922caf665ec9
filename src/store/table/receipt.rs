//! The result of one charge: a decision, and the receipt with which the charge can be undone.

use crate::limit::{Algorithm, AnyReceipt, Decision, sketch, token_bucket};

/// The proof of a charge, with which it can be undone.
#[derive(Clone, Debug)]
pub enum Receipt {
    /// Nothing was charged.
    None,
    /// A token bucket was charged. With it its interval in nanoseconds.
    Bucket(token_bucket::Receipt, u64),
    /// A sketch of token buckets was charged.
    Sketch(Box<sketch::Receipt>),
    /// A state of another algorithm was charged. With it the rule of the charge.
    Any(Box<(Algorithm, AnyReceipt)>),
}

/// The decision of one limit, with the receipt if it charged the request.
#[derive(Clone, Debug)]
pub(in crate::store) struct Outcome {
    pub(in crate::store) decision: Decision,
    pub(in crate::store) receipt: Receipt,
}

impl Outcome {
    /// Whether the limit admits the request.
    pub(in crate::store) fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        Self { decision, receipt: Receipt::None }
    }
}
