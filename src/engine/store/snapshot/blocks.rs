//! A file as blocks. Each block has its length, and a checksum of the file so far.

use std::io::{self, Read, Write};

use super::error::{SnapshotError, VERSION};
use crate::engine::limit::{Key, Packed, Unpacker};

/// The first bytes of a snapshot.
pub(super) const MAGIC: [u8; 8] = *b"WEIRSNAP";

/// The kind of a block. A number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::engine::store) enum Tag {
    Start = 1,
    Limit = 2,
    Keys = 3,
    Sketch = 4,
    Shared = 5,
    Bans = 6,
    End = 7,
}

impl Tag {
    const ALL: [Self; 7] = [Self::Start, Self::Limit, Self::Keys, Self::Sketch, Self::Shared, Self::Bans, Self::End];
}

/// A receiver of blocks.
pub(in crate::engine::store) type Emit<'e> = dyn FnMut(Tag, &[u8]) -> io::Result<()> + 'e;

/// Writes blocks.
pub(super) struct BlockWriter<W> {
    to: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn new(mut to: W) -> io::Result<Self> {
        let mut sum = crc32fast::Hasher::new();
        for bytes in [&MAGIC[..], &VERSION.to_le_bytes()] {
            sum.update(bytes);
            to.write_all(bytes)?;
        }
        Ok(Self { to, sum })
    }

    pub(super) fn block(&mut self, tag: Tag, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a block of more than 4 GiB"))?;
        for bytes in [&[tag as u8][..], &length.to_le_bytes(), payload] {
            self.sum.update(bytes);
            self.to.write_all(bytes)?;
        }
        let sum = self.sum.clone().finalize().to_le_bytes();
        self.sum.update(&sum);
        self.to.write_all(&sum)
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Reads blocks.
pub(super) struct BlockReader<R> {
    from: R,
    sum: crc32fast::Hasher,
    payload: Vec<u8>,
}

const CUT_SHORT: SnapshotError = SnapshotError::Damaged("it is cut short");

impl<R: Read> BlockReader<R> {
    pub(super) fn new(from: R) -> Result<Self, SnapshotError> {
        let mut reader = Self { from, sum: crc32fast::Hasher::new(), payload: Vec::new() };
        if reader.array()? != MAGIC {
            return Err(SnapshotError::Damaged("it does not begin like a snapshot"));
        }
        match u32::from_le_bytes(reader.array()?) {
            VERSION => Ok(reader),
            other => Err(SnapshotError::Version(other)),
        }
    }

    /// The next block. Takes no more memory than the file is long, whatever length the block claims.
    pub(super) fn next(&mut self) -> Result<(Tag, &[u8]), SnapshotError> {
        let [number] = self.array()?;
        let length = u64::from(u32::from_le_bytes(self.array()?));
        self.payload.clear();
        let read = self.from.by_ref().take(length).read_to_end(&mut self.payload)?;
        if read as u64 != length {
            return Err(CUT_SHORT);
        }
        self.sum.update(&self.payload);
        let sum = self.sum.clone().finalize();
        if u32::from_le_bytes(self.array()?) != sum {
            return Err(SnapshotError::Damaged("a checksum is wrong"));
        }
        let tag = Tag::ALL.into_iter().find(|tag| *tag as u8 == number);
        Ok((tag.ok_or(SnapshotError::Damaged("a block has an unknown kind"))?, &self.payload))
    }

    /// Checks that the file ends here.
    pub(super) fn end(mut self) -> Result<(), SnapshotError> {
        if self.from.read(&mut [0])? == 0 { Ok(()) } else { Err(SnapshotError::Damaged("there is data after its end")) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => CUT_SHORT,
            _ => SnapshotError::Read(error),
        })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }
}

/// A key with its state.
pub(in crate::engine::store) fn entry<S: Packed>(from: &mut Unpacker<'_>) -> Option<(Key, S)> {
    Some((Packed::unpack(from)?, Packed::unpack(from)?))
}
