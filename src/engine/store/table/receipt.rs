//! The result of one charge: a decision, and the receipt with which the charge can be undone.

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::engine::limit::state::Receipt as _;
use crate::engine::limit::{Algorithm, AnyReceipt, Decision, sketch, token_bucket};
use crate::engine::store::backend::RemoteReceipt;
use crate::engine::store::lease::Taken;
use crate::engine::store::remote::{Borrowed, RemoteLimit};

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
    /// A remote limit was charged.
    Remote(Box<MirroredCharge>),
    /// Units of a lease were taken, which the store had charged before.
    Lease(Taken<Borrowed>),
}

impl Receipt {
    /// All units of a charge.
    pub const WHOLE: u64 = u64::MAX;

    /// The receipt for the last `units` of the charge and of `grown` units that its request was charged since, and the units
    /// of which there is no receipt.
    pub fn part(&self, units: u64, grown: u64) -> (Self, u64) {
        match self {
            Self::None => (Self::None, units.min(grown)),
            Self::Bucket(receipt, interval_ns) => {
                let (part, rest) = receipt.part(units, grown);
                (Self::Bucket(part, *interval_ns), rest)
            }
            Self::Any(charge) => {
                let (part, rest) = charge.1.part(units, grown);
                (Self::Any(Box::new((charge.0.clone(), part))), rest)
            }
            Self::Remote(charge) if let Origin::Store(receipt) = &charge.origin => {
                let (own, receipt) = (units.min(charge.units), receipt.clone().of_units(units));
                let part = MirroredCharge { units: own, origin: Origin::Store(receipt), ..(**charge).clone() };
                (Self::Remote(Box::new(part)), (units - own).min(grown))
            }
            Self::Lease(taken) => {
                let (mut part, mut rest) = (Taken::new(), units);
                for (of, taken) in taken.iter().rev() {
                    let own = rest.min(*taken);
                    part.extend((own > 0).then(|| (Arc::clone(of), own)));
                    rest -= own;
                }
                (Self::Lease(part), rest.min(grown))
            }
            Self::Sketch(_) | Self::Remote(_) if units < Self::WHOLE => (Self::None, units),
            Self::Sketch(_) | Self::Remote(_) => (self.clone(), grown),
        }
    }

    /// Whether the charge, which was made at `at` under `rule`, is in windows that have ended, so that none of its units can
    /// come back. Of windows in a store that begin with a request, it knows the length only.
    pub fn is_over(&self, rule: &Algorithm, at: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::Any(charge) => charge.1.is_over(&charge.0, at, now),
            Self::Remote(_) | Self::Lease(_) => !rule.counts(at, now),
            Self::None | Self::Bucket(..) | Self::Sketch(_) => false,
        }
    }
}

/// A charge of a remote limit, in its store and on the mirror.
#[derive(Clone, Debug)]
pub struct MirroredCharge {
    pub(in crate::engine::store) remote: Arc<RemoteLimit>,
    /// The rule of the charge.
    pub(in crate::engine::store) rule: Algorithm,
    /// Units that the mirror was charged.
    pub(in crate::engine::store) units: u64,
    /// The instant at which the charge was known.
    pub(in crate::engine::store) at: Timestamp,
    /// How the store knows of the charge.
    pub(in crate::engine::store) origin: Origin,
}

impl MirroredCharge {
    /// The units that the store was charged, or hears of.
    pub(in crate::engine::store) fn in_store(&self) -> u64 {
        match self.origin {
            Origin::Store(_) => self.units,
            Origin::Report(units) => units,
        }
    }
}

/// How a store knows of a charge.
#[derive(Clone, Debug)]
pub(in crate::engine::store) enum Origin {
    /// The store made it.
    Store(RemoteReceipt),
    /// It was made while the store was down, and so many units were reported.
    Report(u64),
}

/// The decision of one limit, with the receipt if it charged the request.
#[derive(Clone, Debug)]
pub(in crate::engine::store) struct Outcome {
    pub(in crate::engine::store) decision: Decision,
    pub(in crate::engine::store) receipt: Receipt,
}

impl Outcome {
    /// Whether the limit admits the request.
    pub(in crate::engine::store) fn is_admitted(&self) -> bool {
        self.decision.is_admitted()
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        Self { decision, receipt: Receipt::None }
    }
}
