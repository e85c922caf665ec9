//! The owner of a bucket, as a hash, and the handling of new keys at the bound on the keys of a limit.
//!
//! Not here: how a request is hashed (policy).

use std::hash::{Hash, Hasher};

use bytes::BufMut;

use super::packed::{Packed, Unpacker};

/// A hash of 126 bits. It is uniform, and a client cannot choose its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The first half. Its last two bits are 0 in every key of a request, because tables of token buckets do not keep them.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

impl Key {
    /// The key of a hash of 128 bits, of which it leaves two out.
    pub const fn of_hash(first: u64, second: u64) -> Self {
        Self { first: first & !0b11, second }
    }

    /// A number from 0 to 99 that divides keys into parts of equal size.
    pub const fn percentile(self) -> u8 {
        (self.second % 100) as u8
    }

    /// The id: the hash as 32 hexadecimal digits.
    pub fn id(self) -> String {
        format!("{:016x}{:016x}", self.first, self.second)
    }

    /// The key of an id.
    pub fn of_id(id: &str) -> Option<Self> {
        let (first, second) = id.split_at_checked(16).filter(|(_, second)| second.len() == 16)?;
        let half = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
        Some(Self::of_hash(half(first)?, half(second)?))
    }
}

impl Hash for Key {
    /// One half is hash enough.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.first);
    }
}

/// The hasher of keys, which are hashes already, alone or with a small number.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.0 ^= u64::from(number);
    }

    /// Two bits of a key are always 0. A map selects places by the last bits.
    fn write_u64(&mut self, half: u64) {
        self.0 = half.rotate_right(2);
    }
}

impl Packed for Key {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64_le(self.first);
        bytes.put_u64_le(self.second);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self::of_hash(from.u64()?, from.u64()?))
    }
}

/// The handling of new keys at the bound. Keys that are remembered are not affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// They are counted in a sketch of fixed size: refused too early if they are very many, never admitted too much.
    /// For token buckets whose rule is the same for every key.
    Sketch,
    /// They share buckets by their hash: refused too early if they are many, never admitted too much.
    #[default]
    Shared,
    /// They are refused until a key is forgotten.
    Reject,
    /// They are admitted and not counted.
    Allow,
}
