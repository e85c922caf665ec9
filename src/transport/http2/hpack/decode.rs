//! The decoder of header blocks.

use super::huffman;
use super::table::{DynamicTable, Field, STATIC_LEN, static_field};

/// Bytes of the dynamic table: the initial value of `SETTINGS_HEADER_TABLE_SIZE`, which Weir does not change.
pub(in crate::transport::http2) const TABLE_SIZE: usize = 4096;

/// Bytes of text that stay in memory between two blocks.
const TEXT_KEPT_MAX: usize = 512;

/// A block that cannot be decoded, so that the tables of both sides differ (RFC 9113, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::http2) struct CompressionError;

/// The state of one direction of a connection.
#[derive(Debug)]
pub(in crate::transport::http2) struct Decoder {
    table: DynamicTable,
    /// The name and the value of the field in hand, as far as they are not in the block or in the static table.
    text: Vec<u8>,
}

/// Where a name or a value is.
#[derive(Clone, Copy)]
enum Text<'b> {
    Borrowed(&'b [u8]),
    /// In [`Decoder::text`].
    Decoded(usize, usize),
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: DynamicTable::new(TABLE_SIZE), text: Vec::new() }
    }
}

impl Decoder {
    /// Decodes a whole block and yields its fields in order.
    pub(in crate::transport::http2) fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CompressionError> {
        let mut block = BlockReader { bytes: block };
        let mut may_resize = true;
        while let Some(&first) = block.bytes.first() {
            match first {
                0x80.. => {
                    let index = block.integer(7)?;
                    let (name, value) = self.field(index)?;
                    field(name, value);
                }
                0x40.. => self.literal(&mut block, 6, true, &mut field)?,
                // RFC 7541, section 4.2: at the front of a block only.
                0x20.. if may_resize => {
                    let size = block.integer(5)?;
                    if size > TABLE_SIZE {
                        return Err(CompressionError);
                    }
                    self.table.resize(size);
                    continue;
                }
                0x20.. => return Err(CompressionError),
                _ => self.literal(&mut block, 4, false, &mut field)?,
            }
            may_resize = false;
        }
        if self.text.capacity() > TEXT_KEPT_MAX {
            self.text = Vec::new();
        }
        Ok(())
    }

    fn literal(
        &mut self,
        block: &mut BlockReader<'_>,
        bits: u8,
        is_indexed: bool,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CompressionError> {
        self.text.clear();
        let name = match block.integer(bits)? {
            0 => block.string(&mut self.text)?,
            index => match index.checked_sub(STATIC_LEN + 1) {
                None => Text::Borrowed(static_field(index).ok_or(CompressionError)?.0),
                // A copy: the entry may be evicted by this one.
                Some(index) => {
                    let (name, _) = self.table.get(index).ok_or(CompressionError)?;
                    self.text.extend_from_slice(name);
                    Text::Decoded(0, name.len())
                }
            },
        };
        let value = block.string(&mut self.text)?;
        let [name, value] = [name, value].map(|text| match text {
            Text::Borrowed(text) => text,
            Text::Decoded(start, end) => &self.text[start..end],
        });
        if is_indexed {
            self.table.insert(name, value);
        }
        field(name, value);
        Ok(())
    }

    fn field(&self, index: usize) -> Result<Field<'_>, CompressionError> {
        static_field(index).or_else(|| self.table.get(index.checked_sub(STATIC_LEN + 1)?)).ok_or(CompressionError)
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &DynamicTable {
        &self.table
    }
}

/// What is not decoded yet.
struct BlockReader<'b> {
    bytes: &'b [u8],
}

/// Bytes that an integer may have behind its first: enough for 28 bits.
const INTEGER_BYTES_MAX: u32 = 4;

impl<'b> BlockReader<'b> {
    /// RFC 7541, section 5.1.
    fn integer(&mut self, bits: u8) -> Result<usize, CompressionError> {
        let (&first, mut rest) = self.bytes.split_first().ok_or(CompressionError)?;
        let most = (1_u8 << bits) - 1;
        let mut number = usize::from(first & most);
        if first & most == most {
            let mut shift = 0;
            loop {
                let (&byte, after) = rest.split_first().ok_or(CompressionError)?;
                rest = after;
                if shift >= 7 * INTEGER_BYTES_MAX {
                    return Err(CompressionError);
                }
                number += usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.bytes = rest;
        Ok(number)
    }

    /// RFC 7541, section 5.2.
    fn string(&mut self, text: &mut Vec<u8>) -> Result<Text<'b>, CompressionError> {
        let is_coded = self.bytes.first().is_some_and(|first| first & 0x80 != 0);
        let len = self.integer(7)?;
        let (string, rest) = self.bytes.split_at_checked(len).ok_or(CompressionError)?;
        self.bytes = rest;
        if !is_coded {
            return Ok(Text::Borrowed(string));
        }
        let start = text.len();
        huffman::decode(string, text).map_err(|huffman::NoText| CompressionError)?;
        Ok(Text::Decoded(start, text.len()))
    }
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::cast_possible_truncation)]
mod tests;
