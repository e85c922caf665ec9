//! The proof of a loan.

use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};

/// The proof of units that were borrowed from etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdReceipt {
    /// The name of the limit.
    pub(in crate::engine::store) limit: Box<str>,
    /// The owner of the budget.
    pub(in crate::engine::store) key: Key,
    /// The rule under which the units were borrowed.
    pub(in crate::engine::store) rule: Algorithm,
    /// The number of the loan in its process.
    pub(in crate::engine::store) loan: u64,
    /// When the units were borrowed.
    pub(in crate::engine::store) at: Timestamp,
    /// The units.
    pub(in crate::engine::store) units: u64,
}
