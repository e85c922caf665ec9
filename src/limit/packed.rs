//! States as bytes, to be kept while no process runs. Numbers are little-endian, instants unix nanoseconds.
//!
//! What is unpacked is as good as what was packed: it holds what the algorithms count on, or it is refused. Where and
//! when bytes are kept is the concern of `store`, which also knows that they are what was written.
//!
//! **A clock that was set.** Instants are dates, so they are worth nothing where the clock was set since. The reader
//! says by how much it was, and every instant is moved by that. Windows that are cut at fixed dates cannot be moved:
//! there all that counts is taken for new, as where a rule changes. So nothing comes back sooner than it would have.

use bytes::BufMut;

use crate::time::Timestamp;

/// Something that can be kept as bytes.
pub trait Packed: Sized {
    /// Appends it to `bytes`.
    fn pack(&self, bytes: &mut Vec<u8>);

    /// Reads it back; none if it is not what [`Packed::pack`] writes.
    fn unpack(from: &mut Unpacker<'_>) -> Option<Self>;
}

/// How dates of now compare to those of when something was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Nanoseconds that are added to each instant.
    pub by_ns: i64,
    /// The present.
    pub now: Timestamp,
}

/// Reads what was packed, from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Unpacker<'b> {
    bytes: &'b [u8],
    moved: Moved,
}

impl<'b> Unpacker<'b> {
    /// Over all of `bytes`.
    pub fn new(bytes: &'b [u8], moved: Moved) -> Self {
        Self { bytes, moved }
    }

    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// If the clock was set: the present in the dates of then, and in those of now.
    pub(super) fn moved(&self) -> Option<(Timestamp, Timestamp)> {
        let Moved { by_ns, now } = self.moved;
        let then = Timestamp::from_ns(now.as_ns().saturating_add_signed(by_ns.saturating_neg()));
        (by_ns != 0).then_some((then, now))
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (read, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(read)
    }

    /// A number.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    /// A number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An instant, in the dates of now. [`Timestamp::ZERO`] is none and stays.
    pub fn instant(&mut self) -> Option<Timestamp> {
        let at = self.u64()?;
        Some(Timestamp::from_ns(if at == 0 { 0 } else { at.saturating_add_signed(self.moved.by_ns) }))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (read, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*read)
    }
}

/// Appends an instant.
pub(super) fn put_instant(bytes: &mut Vec<u8>, at: Timestamp) {
    bytes.put_u64_le(at.as_ns());
}
