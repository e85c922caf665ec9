//! Writer of bodies: as raw bytes, or as chunks with trailers.

use crate::base::fields::{FieldBuf, Fields};

use super::hop::{self, NameSet};

/// The framing of one written body.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// Raw bytes: the head has their number, or the connection ends after them.
    Raw,
    /// Chunks, and behind them these trailer fields.
    Chunked(Trailers),
}

/// The trailer fields that are written, of those that may stand in a trailer.
#[derive(Debug)]
pub(crate) enum Trailers {
    None,
    /// Those whose names are listed, separated by commas.
    Announced(Box<[u8]>),
    /// All, for a receiver that accepts trailers. A sender need not announce them (RFC 9110, section 6.6.2).
    All,
}

impl Trailers {
    /// The trailers that `fields` announce.
    pub(crate) fn announced(fields: Fields<'_>) -> Self {
        let mut names = fields.all("trailer").peekable();
        if names.peek().is_none() {
            return Self::None;
        }
        Self::Announced(names.collect::<Vec<_>>().join(&b',').into_boxed_slice())
    }

    /// Writes those of `fields` that may stand in a trailer.
    fn write(&self, out: &mut Vec<u8>, fields: Fields<'_>) {
        let announced: Option<NameSet<'_>> = match self {
            Self::None => return,
            Self::Announced(names) => Some(names.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect()),
            Self::All => None,
        };
        for (name, value) in fields.iter() {
            if announced.as_ref().is_none_or(|names| names.contains(name)) && hop::may_trail(name) {
                write_field(out, name, value);
            }
        }
    }
}

impl Encoder {
    /// Writes a piece of data, which must not be empty.
    pub(crate) fn data(&self, out: &mut Vec<u8>, data: &[u8]) {
        match self {
            Self::Raw => out.extend_from_slice(data),
            Self::Chunked(_) => {
                write_hex(out, data.len());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes the end of the body.
    pub(crate) fn end(&self, out: &mut Vec<u8>, trailers: Option<&FieldBuf>) {
        let Self::Chunked(written) = self else { return };
        out.extend_from_slice(b"0\r\n");
        if let Some(trailers) = trailers {
            written.write(out, trailers.fields());
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
