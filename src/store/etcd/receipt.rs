//! The proof of a loan.

use crate::limit::{Algorithm, Key};
use crate::time::Timestamp;

/// The proof of units that were borrowed from etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdReceipt {
    /// The name of the limit.
    pub(in crate::store) limit: Box<str>,
    /// The owner of the budget.
    pub(in crate::store) key: Key,
    /// The rule under which the units were borrowed.
    pub(in crate::store) rule: Algorithm,
    /// The number of the loan in its process.
    pub(in crate::store) loan: u64,
    /// When the units were borrowed.
    pub(in crate::store) at: Timestamp,
    /// The units.
    pub(in crate::store) units: u64,
}
