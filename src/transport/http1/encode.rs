//! Writer of bodies: as raw bytes, or as chunks with trailers.

use crate::base::fields::{FieldBuf, Fields};

use super::hop::{self, NameSet};

/// The framing of one written body.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// Raw bytes: the head has their number, or the connection ends after them.
    Raw,
    /// Chunks. Trailer fields are written if `announced` lists their names, separated by commas.
    Chunked {
        /// None if the receiver did not accept trailers, or no trailers were announced.
        announced: Option<Box<[u8]>>,
    },
}

impl Encoder {
    /// Chunks, with the trailers that `fields` announce if the receiver accepts trailers.
    pub(crate) fn chunked(fields: Fields<'_>, takes_trailers: bool) -> Self {
        let mut names = fields.all("trailer").filter(|_| takes_trailers).peekable();
        let announced = names.peek().is_some().then(|| names.collect::<Vec<_>>().join(&b','));
        Self::Chunked { announced: announced.map(Vec::into_boxed_slice) }
    }

    /// Writes a piece of data, which must not be empty.
    pub(crate) fn data(&self, out: &mut Vec<u8>, data: &[u8]) {
        match self {
            Self::Raw => out.extend_from_slice(data),
            Self::Chunked { .. } => {
                write_hex(out, data.len());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes the end of the body.
    pub(crate) fn end(&self, out: &mut Vec<u8>, trailers: Option<&FieldBuf>) {
        let Self::Chunked { announced } = self else { return };
        out.extend_from_slice(b"0\r\n");
        if let (Some(announced), Some(trailers)) = (announced, trailers) {
            let announced: NameSet<'_> = announced.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
            for (name, value) in trailers.fields().iter() {
                if announced.contains(name) && hop::may_trail(name) {
                    write_field(out, name, value);
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a field line.
pub(crate) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_hex(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let nibble = (number >> (4 * digit)) & 0xf;
        out.push(b"0123456789abcdef"[nibble]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_sizes_in_hexadecimal() {
        for number in [1, 9, 10, 15, 16, 255, 256, 65_535, 1 << 20, usize::MAX] {
            let mut text = Vec::new();
            write_hex(&mut text, number);
            assert_eq!(text, format!("{number:x}").into_bytes());
        }
    }
}
