//! Decoder of chunked bodies (RFC 9112, section 7.1).
//!
//! Extensions are dropped (RFC 9112, section 7.1.1). Request bodies are decoded more strictly than response bodies.
//! White space after a size without an extension is an error, and so are extensions with more bytes than the data.
//!
//! Not here: which trailer fields are forwarded.

use super::limits::Underscores;
use crate::base::fields::{FieldBuf, PLAIN, TOKEN, VALUE, is};

/// Bytes of a trailer section, with its empty line.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Bytes of extensions. In a request: beyond the bytes of data before them. In a response: in one chunk.
pub const EXTENSION_BYTES_MAX: usize = 8 * 1024;

/// Fields of a trailer section.
const TRAILERS_MAX: usize = 100;

/// 16 hexadecimal digits are 64 bits, so that a size cannot overflow.
const SIZE_DIGITS_MAX: u8 = 16;

/// The next expected part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Size {
        digits: u8,
        value: u64,
    },
    /// White space between a size and its extension.
    Space(u64),
    /// The extension of a chunk of this size.
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// A trailer field, or the CR of the last line.
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
    is_strict: bool,
    /// Bytes of extensions that count against the bound.
    extension_bytes: usize,
    /// The bytes of the trailer section so far.
    trailers: Vec<u8>,
    trailer_count: usize,
    trailers_max: usize,
    /// Treatment of trailer fields whose names services may read as another name.
    underscores: Underscores,
}

/// The next part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStep {
    /// Bytes of framing, then bytes of data.
    Data {
        /// Bytes before the data.
        skipped: usize,
        /// Bytes of data.
        len: usize,
    },
    /// All bytes are framing, and the body continues.
    More,
    /// The body ends after this number of bytes.
    End(usize),
    /// A framing error after this number of bytes.
    Broken(usize),
}

impl Chunked {
    /// A decoder of a request body, with at most `max_headers` trailer fields.
    pub(super) fn strict(max_headers: usize, underscores: Underscores) -> Self {
        Self {
            part: NEXT_CHUNK,
            is_strict: true,
            extension_bytes: 0,
            trailers: Vec::new(),
            trailer_count: 0,
            trailers_max: max_headers.min(TRAILERS_MAX),
            underscores,
        }
    }

    /// A decoder of a response body.
    pub(super) fn lenient() -> Self {
        Self { is_strict: false, ..Self::strict(TRAILERS_MAX, Underscores::Keep) }
    }

    /// Decodes `bytes` up to a piece of data or to the end.
    pub(super) fn next(&mut self, bytes: &[u8]) -> BodyStep {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Part::Data(left) = self.part {
                let here = bytes.len() - at;
                // Saturates where `usize` is narrower than a size.
                let len = usize::try_from(left).map_or(here, |left| left.min(here));
                let left = left - len as u64;
                self.part = if left == 0 { Part::DataCr } else { Part::Data(left) };
                self.extension_bytes = self.extension_bytes.saturating_sub(len);
                return BodyStep::Data { skipped: at, len };
            }
            let Some(part) = self.step(byte) else {
                return BodyStep::Broken(at);
            };
            self.part = part;
            at += 1;
            if part == Part::End {
                return BodyStep::End(at);
            }
        }
        BodyStep::More
    }

    /// The fields of the trailer section, once it is complete.
    pub(super) fn trailers(&self) -> FieldBuf {
        let lines = self.trailers.split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
        let pairs = lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            // Fields that refuse the request have broken the body before.
            let is_kept = self.underscores.allows(&line[..colon]).unwrap_or(false);
            is_kept.then(|| (&line[..colon], &line[colon + 1..]))
        });
        pairs.collect()
    }

    /// The part after `byte`; `None` if `byte` is not allowed here.
    fn step(&mut self, byte: u8) -> Option<Part> {
        match (self.part, byte) {
            (Part::Size { digits: 1.., value }, b';' | b' ' | b'\t') => {
                if !self.is_strict {
                    self.extension_bytes = 0;
                }
                self.extension(value, byte == b';' || !self.is_strict)
            }
            (Part::Size { digits, value }, _) => size(digits, value, byte),
            (Part::Space(size), b';' | b' ' | b'\t') => self.extension(size, byte == b';'),
            (Part::Extension(size), b'\r') => Some(Part::SizeLf(size)),
            (Part::Extension(size), _) if is(byte, VALUE) => self.extension(size, true),
            (Part::SizeLf(0), b'\n') => Some(Part::TrailerLine),
            (Part::SizeLf(size), b'\n') => Some(Part::Data(size)),
            (Part::DataCr, b'\r') => Some(Part::DataLf),
            (Part::DataLf, b'\n') => Some(NEXT_CHUNK),
            (Part::TrailerLine | Part::TrailerName | Part::TrailerValue | Part::TrailerLf | Part::LastLf, _) => {
                self.trailer(byte)
            }
            _ => None,
        }
    }

    /// Counts a byte of an extension, or of the white space before it.
    fn extension(&mut self, size: u64, has_begun: bool) -> Option<Part> {
        self.extension_bytes += 1;
        let part = if has_begun { Part::Extension(size) } else { Part::Space(size) };
        (self.extension_bytes <= EXTENSION_BYTES_MAX).then_some(part)
    }

    /// RFC 9112, section 7.1.2: field lines as in a head.
    fn trailer(&mut self, byte: u8) -> Option<Part> {
        if self.trailers.len() >= TRAILER_BYTES_MAX {
            return None;
        }
        self.trailers.push(byte);
        let is_refused = self.underscores == Underscores::Refuse && is(byte, TOKEN) && !is(byte, PLAIN);
        match (self.part, byte) {
            (Part::TrailerLine | Part::TrailerName, _) if is_refused => None,
            (Part::TrailerLine, b'\r') => Some(Part::LastLf),
            (Part::TrailerLine, _) if is(byte, TOKEN) => {
                self.trailer_count += 1;
                (self.trailer_count <= self.trailers_max).then_some(Part::TrailerName)
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
