//! States as bytes, to be stored while no process runs. Numbers are little-endian, instants are unix nanoseconds.
//!
//! An unpacked state satisfies the invariants of its algorithm; otherwise it is refused. Not here: where and when bytes
//! are stored, and their checksums (`store`).
//!
//! **A clock that was set.** Instants are dates, which are wrong after the clock was set. The reader knows by how much it
//! was set, and shifts every instant. Windows at fixed dates cannot be shifted: there all spent units count as new, as
//! after a change of the rule. So no unit comes back too early.

use bytes::BufMut;

use crate::base::time::Timestamp;

/// A value that can be stored as bytes.
pub trait Packed: Sized {
    /// Appends it to `bytes`.
    fn pack(&self, bytes: &mut Vec<u8>);

    /// Reads a value. `None` if the bytes are not as [`Packed::pack`] writes them.
    fn unpack(from: &mut Unpacker<'_>) -> Option<Self>;
}

/// The shift of the clock since states were packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockShift {
    /// Nanoseconds that are added to each instant.
    pub by_ns: i64,
    /// The present.
    pub now: Timestamp,
}

/// Reads packed values one after another.
#[derive(Clone, Copy, Debug)]
pub struct Unpacker<'b> {
    bytes: &'b [u8],
    moved: ClockShift,
}

impl<'b> Unpacker<'b> {
    /// A reader of all of `bytes`.
    pub fn new(bytes: &'b [u8], moved: ClockShift) -> Self {
        Self { bytes, moved }
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The present in the dates of the time of packing, and in those of now. `None` if the clock was not set.
    pub(super) fn moved(&self) -> Option<(Timestamp, Timestamp)> {
        let ClockShift { by_ns, now } = self.moved;
        let then = Timestamp::from_ns(now.as_ns().saturating_add_signed(by_ns.saturating_neg()));
        (by_ns != 0).then_some((then, now))
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (read, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(read)
    }

    /// The next number.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    /// The next number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An instant in the dates of now. [`Timestamp::ZERO`] stands for no instant and is not shifted.
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
