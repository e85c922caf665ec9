//! How a body is written on HTTP/1: as it is, or in chunks with trailers.

use crate::fields::{FieldBuf, Fields};

use super::hop::{self, Names};

/// Frames one body.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// The bytes as they are: the head says how many, or the end of the connection does.
    Raw,
    /// In chunks. Trailer fields pass if they were announced by these names, in a comma-separated list.
    Chunked {
        /// None if whoever reads did not say that it takes trailers, or none were announced.
        announced: Option<Box<[u8]>>,
    },
}

impl Encoder {
    /// In chunks, for someone who takes the trailers that these fields announce if `takes_trailers`.
    pub(crate) fn chunked(fields: Fields<'_>, takes_trailers: bool) -> Self {
        let mut names = fields.all("trailer").filter(|_| takes_trailers).peekable();
        let announced = names.peek().is_some().then(|| names.collect::<Vec<_>>().join(&b','));
        Self::Chunked { announced: announced.map(Vec::into_boxed_slice) }
    }

    /// Writes a piece of data, which is not empty.
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

    /// Writes the end.
    pub(crate) fn end(&self, out: &mut Vec<u8>, trailers: Option<&FieldBuf>) {
        let Self::Chunked { announced } = self else { return };
        out.extend_from_slice(b"0\r\n");
        if let (Some(announced), Some(trailers)) = (announced, trailers) {
            let announced: Names<'_> = announced.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
            for (name, value) in trailers.fields().iter() {
                if announced.contains(name) && hop::may_trail(name) {
                    write_field(out, name, value);
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a header line.
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
