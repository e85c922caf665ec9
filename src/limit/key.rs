//! The owner of a bucket, as a hash. Not here: how a request is hashed (policy).

use std::hash::{Hash, Hasher};

use bytes::BufMut;

use super::packed::{Packed, Unpacker};

/// A 128-bit hash. It is uniform, and a client cannot choose its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The first half.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

impl Hash for Key {
    /// One half is hash enough.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.first);
    }
}

impl Packed for Key {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64_le(self.first);
        bytes.put_u64_le(self.second);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self { first: from.u64()?, second: from.u64()? })
    }
}
