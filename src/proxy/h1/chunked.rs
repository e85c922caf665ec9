//! Following a chunked body (RFC 9112, 7.1) to its end, byte by byte outside the data.
//!
//! Stricter than hyper, which takes and drops chunk extensions, spaces after a size and any byte in a
//! trailer but CR: extensions have no use but to smuggle, so they break the body here.
//!
//! Not here: which trailer fields may be forwarded; hyper's encoder drops the framing ones.

use super::head::{TOKEN, VALUE, is};

/// Bytes of a trailer section, its empty line included; hyper breaks at 16 KiB.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Fields of a trailer section; hyper's default bound.
const TRAILERS_MAX: usize = 100;

/// 16 hexadecimal digits are 64 bits, so a size cannot overflow.
const SIZE_DIGITS_MAX: u8 = 16;

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Size {
        digits: u8,
        value: u64,
    },
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// A trailer field or the CR of the last line.
    TrailerLine,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    End,
}

const NEXT_CHUNK: Part = Part::Size { digits: 0, value: 0 };

/// The position in a chunked body.
#[derive(Debug)]
pub(super) struct Chunked {
    part: Part,
    trailer_bytes: usize,
    trailers: usize,
}

/// How far a piece of the body was good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of it, and the body goes on.
    More,
    /// So many bytes, and the body ends there.
    End(usize),
    /// So many bytes; the next is a framing error.
    Broken(usize),
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { part: NEXT_CHUNK, trailer_bytes: 0, trailers: 0 }
    }

    /// Follows the next `bytes`; `max_headers` bounds the trailer fields too.
    pub(super) fn advance(&mut self, bytes: &[u8], max_headers: usize) -> Progress {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Part::Data(left) = self.part {
                let here = bytes.len() - at;
                // Saturates where usize is narrower than the chunk.
                let step = usize::try_from(left).map_or(here, |left| left.min(here));
                let left = left - step as u64;
                self.part = if left == 0 { Part::DataCr } else { Part::Data(left) };
                at += step;
                continue;
            }
            let Some(part) = self.step(byte, max_headers.min(TRAILERS_MAX)) else {
                return Progress::Broken(at);
            };
            self.part = part;
            at += 1;
            if part == Part::End {
                return Progress::End(at);
            }
        }
        Progress::More
    }

    /// What is expected after `byte`; `None` if it may not stand here.
    fn step(&mut self, byte: u8, trailers_max: usize) -> Option<Part> {
        match (self.part, byte) {
            (Part::Size { digits, value }, _) => size(digits, value, byte),
            (Part::SizeLf(0), b'\n') => Some(Part::TrailerLine),
            (Part::SizeLf(size), b'\n') => Some(Part::Data(size)),
            (Part::DataCr, b'\r') => Some(Part::DataLf),
            (Part::DataLf, b'\n') => Some(NEXT_CHUNK),
            (Part::TrailerLine | Part::TrailerName | Part::TrailerValue | Part::TrailerLf | Part::LastLf, _) => {
                self.trailer(byte, trailers_max)
            }
            _ => None,
        }
    }

    /// RFC 9112, 7.1.2: field lines as in a head.
    fn trailer(&mut self, byte: u8, trailers_max: usize) -> Option<Part> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return None;
        }
        match (self.part, byte) {
            (Part::TrailerLine, b'\r') => Some(Part::LastLf),
            (Part::TrailerLine, _) if is(byte, TOKEN) => {
                self.trailers += 1;
                (self.trailers <= trailers_max).then_some(Part::TrailerName)
            }
            (Part::TrailerName, b':') => Some(Part::TrailerValue),
            (Part::TrailerName, _) if is(byte, TOKEN) => Some(Part::TrailerName),
            (Part::TrailerValue, b'\r') => Some(Part::TrailerLf),
            (Part::TrailerValue, _) if is(byte, VALUE) => Some(Part::TrailerValue),
            (Part::TrailerLf, b'\n') => Some(Part::TrailerLine),
            (Part::LastLf, b'\n') => Some(Part::End),
            _ => None,
        }
    }
}

fn size(digits: u8, value: u64, byte: u8) -> Option<Part> {
    if byte == b'\r' {
        return (digits > 0).then_some(Part::SizeLf(value));
    }
    let digit = char::from(byte).to_digit(16)?;
    (digits < SIZE_DIGITS_MAX).then(|| Part::Size { digits: digits + 1, value: value << 4 | u64::from(digit) })
}
