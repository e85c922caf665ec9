//! The state of limits in a file, from which the next process goes on.
//!
//! Layout of version 2, in which all numbers are little-endian and instants are unix nanoseconds in 8 bytes:
//!
//! ```text
//! file     "WEIRSNAP"  version u32  block...
//! block    kind u8  length u32  payload [length]  sum u32
//! ```
//!
//! `sum` is the CRC-32 (of zlib) of all bytes of the file before it. The blocks, in their order:
//!
//! | Kind | Payload |
//! |---|---|
//! | 1 start | the key secret of 16 bytes; the instant of Weir's clock, in which all other instants are; that of the system's |
//! | 2 limit | its name (length u8, bytes); 0 if it keeps token buckets, 1 if any states u8; `max_keys` u64 |
//! | 3 keys | of the last limit: a key (u64, u64) and its state, repeated; any number of such blocks |
//! | 4 sketch | of the last limit: 16 sketches, each its interval u64, cells in a row u32, and its cells as instants |
//! | 5 shared | of the last limit: the number of a bucket u32 and its state, repeated |
//! | 6 bans | of the last limit: a key and its state, repeated |
//! | 7 end | empty, and the end of the file |
//!
//! What a state is, its `pack` says (`limit`). What is as good as new is left out. Keys of token buckets have lost the last
//! two bits of their first number (`group`).
//!
//! **Clocks.** While Weir does not run, time passes as the system's clock says. If that was set back meanwhile, no
//! time has passed. If it was set while Weir ran, which goes by a clock of its own, the difference between the two
//! in the first block says by how much. Less than a second is taken for none.
//!
//! A file is believed whole or not at all. Not here: where it is and what becomes of a bad one (`file`, `app`), and
//! which limits are in it (`gate`).

mod blocks;
pub mod file;

use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use bytes::BufMut;

use super::{Bans, Table};
use crate::limit::{Moved, OnFull, Packed, Unpacker};
use crate::time::Timestamp;
use blocks::{BlockReader, BlockWriter};

pub(super) use blocks::{Emit, Tag};

/// Why a snapshot is of no use.
#[derive(Debug)]
pub enum SnapshotError {
    /// It cannot be read.
    Read(io::Error),
    /// It is of another version of the format.
    Version(u32),
    /// It is not what was written.
    Damaged(&'static str),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Version(version) => write!(f, "has version {version}, and only version {} is known", blocks::VERSION),
            Self::Damaged(how) => write!(f, "is damaged: {how}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Where and how often one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// How often it is replaced.
    pub every: Duration,
}

/// 16 random bytes that keys are hashed under.
pub type Secret = [u8; 16];

/// A snapshot that is being written.
pub struct Snapshot<W> {
    blocks: BlockWriter<W>,
    now: Timestamp,
}

impl<W: Write> Snapshot<W> {
    /// Begins one at the instant `now`, which the system's clock calls `system`.
    pub fn begin(to: W, secret: &Secret, now: Timestamp, system: Timestamp) -> io::Result<Self> {
        let mut blocks = BlockWriter::new(to)?;
        let mut start = secret.to_vec();
        start.put_u64_le(now.as_ns());
        start.put_u64_le(system.as_ns());
        blocks.block(Tag::Start, &start)?;
        Ok(Self { blocks, now })
    }

    /// Writes one limit. Locks a shard at a time, and not while it writes.
    pub fn limit(&mut self, name: &str, table: &Table, bans: &Bans) -> io::Result<()> {
        let mut about = vec![u8::try_from(name.len()).map_err(io::Error::other)?];
        about.put_slice(name.as_bytes());
        about.put_u8(table.kind());
        about.put_u64_le(table.max_keys() as u64);
        self.blocks.block(Tag::Limit, &about)?;
        let mut emit = |tag, payload: &[u8]| self.blocks.block(tag, payload);
        table.pack(self.now, &mut emit)?;
        bans.pack(self.now, &mut emit)
    }

    /// Ends it. What it was written to is flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.blocks.block(Tag::End, &[])?;
        self.blocks.finish()
    }
}

/// What a snapshot holds.
#[derive(Debug)]
pub struct Restored {
    /// What the keys are hashed under.
    pub secret: Secret,
    /// Nanoseconds since it was written, as far as is known.
    pub age_ns: u64,
    /// The limits in it.
    pub limits: Vec<RestoredLimit>,
}

/// One limit of a snapshot.
#[derive(Debug)]
pub struct RestoredLimit {
    /// Its name.
    pub name: Box<str>,
    /// Its keys.
    pub table: Table,
    /// Who is banned by it.
    pub bans: Bans,
}

/// Reads a snapshot at the instant `now`. A limit has room for as many keys as `max_keys` says of its name, or else as
/// it had.
pub fn restore(
    from: impl Read,
    now: Timestamp,
    max_keys: impl Fn(&str) -> Option<usize>,
) -> Result<Restored, SnapshotError> {
    let mut blocks = BlockReader::new(from)?;
    let (tag, payload) = blocks.next()?;
    let start = Start::unpack(payload).filter(|_| tag == Tag::Start);
    let Start { secret, written, system } =
        start.ok_or(SnapshotError::Damaged("it does not say when it was written"))?;
    let age_ns = now.ns_since(system);
    let moved = Moved { by_ns: moved_by(written, age_ns, now), now };
    let mut limits: Vec<RestoredLimit> = Vec::new();
    loop {
        let (tag, payload) = blocks.next()?;
        let mut from = Unpacker::new(payload, moved);
        let read = match tag {
            Tag::End if payload.is_empty() => break,
            Tag::Limit => RestoredLimit::unpack(&mut from, &max_keys).map(|limit| limits.push(limit)),
            _ => limits.last_mut().and_then(|limit| limit.take(tag, &mut from, now)),
        };
        read.filter(|()| from.is_empty()).ok_or(SnapshotError::Damaged("what is in it cannot be"))?;
    }
    blocks.end()?;
    Ok(Restored { secret, age_ns, limits })
}

/// Less than this is what a clock may be off.
const STEP_NS_MIN: u64 = 1_000_000_000;

/// How far dates have moved if `age_ns` after `written` is `now`.
fn moved_by(written: Timestamp, age_ns: u64, now: Timestamp) -> i64 {
    let expected = written.saturating_add_ns(age_ns);
    let ahead = i64::try_from(now.ns_since(expected)).unwrap_or(i64::MAX);
    let behind = i64::try_from(expected.ns_since(now)).unwrap_or(i64::MAX);
    let by_ns = ahead - behind;
    if by_ns.unsigned_abs() < STEP_NS_MIN { 0 } else { by_ns }
}

/// The first block.
struct Start {
    secret: Secret,
    written: Timestamp,
    system: Timestamp,
}

impl Start {
    fn unpack(payload: &[u8]) -> Option<Self> {
        let mut from = Unpacker::new(payload, Moved::default());
        let secret = from.bytes(16)?.try_into().ok()?;
        let start = Self { secret, written: from.instant()?, system: from.instant()? };
        from.is_empty().then_some(start)
    }
}

impl RestoredLimit {
    fn unpack(from: &mut Unpacker<'_>, max_keys: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        let length = from.u8()?;
        let name = std::str::from_utf8(from.bytes(length.into())?).ok()?;
        let kind = from.u8()?;
        let had = usize::try_from(from.u64()?).ok()?;
        let table = Table::of_kind(kind, max_keys(name).unwrap_or(had), OnFull::default())?;
        Some(Self { name: name.into(), table, bans: Bans::default() })
    }

    fn take(&mut self, tag: Tag, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        match tag {
            Tag::Keys => self.table.unpack_keys(from, now),
            Tag::Sketch => self.table.unpack_sketch(from),
            Tag::Shared => self.table.unpack_shared(from),
            Tag::Bans => self.bans.unpack(from, now),
            Tag::Start | Tag::Limit | Tag::End => None,
        }
    }
}

/// A key with its state.
pub(super) fn entry<S: Packed>(from: &mut Unpacker<'_>) -> Option<(crate::limit::Key, S)> {
    Some((Packed::unpack(from)?, Packed::unpack(from)?))
}

#[cfg(test)]
mod tests;
