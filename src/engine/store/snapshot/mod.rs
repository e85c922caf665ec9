//! The state of limits in a file, for the next process.
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
//! | 1 start | the key secret of 16 bytes; the instant by Weir's clock, as all other instants; the instant by the system's clock |
//! | 2 limit | its name (length u8, bytes); 0 for token buckets, 1 for any states u8; `max_keys` u64 |
//! | 3 keys | of the last limit: a key (u64, u64) and its state, repeated; any number of such blocks |
//! | 4 sketch | of the last limit: 16 sketches, each its interval u64, cells in a row u32, and its cells as instants |
//! | 5 shared | of the last limit: the number of a bucket u32 and its state, repeated |
//! | 6 bans | of the last limit: a key and its state, repeated |
//! | 7 end | empty, and the end of the file |
//!
//! The bytes of a state are those of its `pack` (`limit`). Idle keys are left out. The last two bits
//! of the first number of a key are 0 (`limit/key.rs`).
//!
//! **Clocks.** While Weir does not run, time passes by the system's clock. If that clock was set back meanwhile, no time
//! has passed. Weir has a clock of its own while it runs. If the system's clock was set in that time, the difference
//! between the two instants of the first block shows by how much. Less than a second counts as nothing.
//!
//! A file is accepted as a whole or not at all. Not here: the place of the file, and what happens to a damaged one (`file`,
//! `app`), and which limits are in it (`gate`).

pub(super) mod blocks;
mod error;
pub mod file;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use bytes::BufMut;

use super::bans::Bans;
use super::table::Table;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, ClockShift, Key, OnFull, Unpacker};
use blocks::{BlockReader, BlockWriter, Tag};

pub use error::SnapshotError;

/// Where and how often a snapshot is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// The interval at which it is replaced.
    pub every: Duration,
}

/// The secret of the key hash: 16 random bytes.
pub type Secret = [u8; 16];

/// A snapshot that is being written.
pub struct Snapshot<W> {
    blocks: BlockWriter<W>,
    now: Timestamp,
}

impl<W: Write> Snapshot<W> {
    /// Begins a snapshot at `now`, which is `system` by the system's clock.
    pub fn begin(to: W, secret: &Secret, now: Timestamp, system: Timestamp) -> io::Result<Self> {
        let mut blocks = BlockWriter::new(to)?;
        let mut start = secret.to_vec();
        start.put_u64_le(now.as_ns());
        start.put_u64_le(system.as_ns());
        blocks.block(Tag::Start, &start)?;
        Ok(Self { blocks, now })
    }

    /// Writes one limit. `rule_of` returns the rule of a key. Locks one shard at a time, and none while it writes.
    pub fn limit<'r>(
        &mut self,
        name: &str,
        table: &Table,
        bans: &Bans,
        rule_of: impl Fn(Key) -> Option<&'r Algorithm>,
    ) -> io::Result<()> {
        let mut about = vec![u8::try_from(name.len()).map_err(io::Error::other)?];
        about.put_slice(name.as_bytes());
        about.put_u8(table.kind());
        about.put_u64_le(table.max_keys() as u64);
        self.blocks.block(Tag::Limit, &about)?;
        let mut emit = |tag, payload: &[u8]| self.blocks.block(tag, payload);
        table.pack(self.now, &mut emit)?;
        table.pack_mirrors(rule_of, self.now, &mut emit)?;
        bans.pack(self.now, &mut emit)
    }

    /// Ends the snapshot, and flushes it.
    pub fn finish(mut self) -> io::Result<W> {
        self.blocks.block(Tag::End, &[])?;
        self.blocks.finish()
    }
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct Restored {
    /// The secret of the key hash.
    pub secret: Secret,
    /// Nanoseconds since it was written, by the system's clock.
    pub age_ns: u64,
    /// The limits.
    pub limits: Vec<RestoredLimit>,
}

/// One limit of a snapshot.
#[derive(Debug)]
pub struct RestoredLimit {
    /// The name.
    pub name: Box<str>,
    /// The keys.
    pub table: Table,
    /// The bans.
    pub bans: Bans,
}

/// Reads a snapshot at `now`. `max_keys` returns the bound on the keys of a limit by its name; if it returns `None`, the
/// limit has the bound that it had.
///
/// # Errors
/// The file cannot be read, has another version, or is damaged.
pub fn restore(
    from: impl Read,
    now: Timestamp,
    max_keys: impl Fn(&str) -> Option<usize>,
) -> Result<Restored, SnapshotError> {
    let mut blocks = BlockReader::new(from)?;
    let (tag, payload) = blocks.next()?;
    let start = unpack_start(payload).filter(|_| tag == Tag::Start);
    let (secret, written, system) = start.ok_or(SnapshotError::Damaged("its first block is missing"))?;
    let age_ns = now.ns_since(system);
    let moved = ClockShift { by_ns: now.moved_from(written.saturating_add_ns(age_ns)), now };
    let mut limits: Vec<RestoredLimit> = Vec::new();
    loop {
        let (tag, payload) = blocks.next()?;
        let mut from = Unpacker::new(payload, moved);
        let read = match tag {
            Tag::End if payload.is_empty() => break,
            Tag::Limit => RestoredLimit::unpack(&mut from, &max_keys).map(|limit| limits.push(limit)),
            _ => limits.last_mut().and_then(|limit| limit.take(tag, &mut from, now)),
        };
        read.filter(|()| from.is_empty()).ok_or(SnapshotError::Damaged("a block is malformed"))?;
    }
    blocks.end()?;
    Ok(Restored { secret, age_ns, limits })
}

/// The first block: the secret, and the time of writing by the clock of Weir and by that of the system.
fn unpack_start(payload: &[u8]) -> Option<(Secret, Timestamp, Timestamp)> {
    let mut from = Unpacker::new(payload, ClockShift::default());
    let start = (from.bytes(16)?.try_into().ok()?, from.instant()?, from.instant()?);
    from.is_empty().then_some(start)
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

#[cfg(test)]
mod tests;
