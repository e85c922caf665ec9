//! One stored answer.

use smallvec::SmallVec;

use super::reservation::Reservation;
use crate::base::fields::{FieldBuf, Fields};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// A complete 200 of a service to a GET.
#[derive(Debug)]
pub(crate) struct StoredAnswer {
    /// The fields that clients get, without those about limits and connections.
    pub(super) fields: FieldBuf,
    pub(super) body: Vec<u8>,
    /// The fields of the request by which the answer varies, each as one line.
    pub(super) varied: FieldBuf,
    /// Whether only requests with the same Authorization get it.
    pub(super) is_private: bool,
    /// When its head arrived.
    pub(super) at: Timestamp,
    /// The key of its resource.
    pub(super) resource: Key,
    /// The bytes that it takes of each cache, until it is dropped.
    pub(super) reserved: SmallVec<[Reservation; 1]>,
}

/// Bytes of an answer beside its fields and its body: the entry of the cache, and what the allocator adds.
const ENTRY_BYTES: usize = 640;

impl StoredAnswer {
    /// The fields that clients get.
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// The body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of memory with a body of `body` bytes.
    pub(super) fn bytes_with(&self, body: usize) -> usize {
        ENTRY_BYTES + self.fields.memory() + self.varied.memory() + body
    }

    /// Whether both are answers to requests with equal fields.
    pub(super) fn varies_as(&self, other: &Self) -> bool {
        self.varied.fields().iter().eq(other.varied.fields().iter())
    }
}
