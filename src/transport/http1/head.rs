//! Strict parser of one request head, line by line.
//!
//! Each line is parsed once, when its LF has arrived. Nothing is copied: the result holds the positions of the parts,
//! and the framing of the body.
//!
//! Not here: the body, and the meaning of fields other than Host, Content-Length and Transfer-Encoding.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

use super::body::Framing;
use super::limits::{HeadFault, Limits, MEMBERS_MAX};
use super::syntax::{NAME_BYTES_MAX, is_method, is_target, trim_start};
use crate::base::fields::{PLAIN, Spans, TOKEN, is, is_value, parse_length, trim_ows};

/// Empty lines that may come before a request line (RFC 9112, section 2.2).
const LEADING_LINES_MAX: u8 = 2;

/// A complete and valid head. Offsets count from the first byte of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Length in bytes, with empty lines before it and the empty line at its end.
    pub len: usize,
    /// The framing of the body.
    pub framing: Framing,
    /// Position of the method.
    pub method: Range<usize>,
    /// Position of the target.
    pub target: Range<usize>,
    /// Whether the version is HTTP/1.1; else it is HTTP/1.0.
    pub is_http_11: bool,
}

/// The state of the parser. Offsets count from the first byte of the message.
#[derive(Debug, Default)]
pub struct HeadParser {
    /// Start of the request line.
    origin: usize,
    /// Start of the first line that is not parsed yet.
    line: usize,
    /// There is no LF between `line` and this offset.
    searched: usize,
    leading_lines: u8,
    in_fields: bool,
    http_11: bool,
    has_host: bool,
    /// Members of the lists that [`MEMBERS_MAX`] bounds.
    members: usize,
    framing: Option<Framing>,
    method: Range<usize>,
    target: Range<usize>,
    fields: Spans,
}

impl HeadParser {
    /// Continues. `bytes` starts with the first byte of the message, and is at least as long as in the last call.
    /// `None` if the head is incomplete and valid so far.
    pub fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<RequestHead>, HeadFault> {
        while let Some(at) = memchr(b'\n', &bytes[self.searched..]) {
            let (start, end) = (self.line, self.searched + at);
            self.line = end + 1;
            self.searched = self.line;
            let line = &bytes[start..end];
            if self.in_fields {
                if self.line - self.origin > limits.max_head_bytes {
                    return Err(HeadFault::TooLarge);
                }
                if line == b"\r" {
                    return self.finish().map(Some);
                }
                self.field(bytes, start..end, limits)?;
            } else if line == b"\r" {
                self.leading_line()?;
            } else {
                early_faults(line, 1, limits)?;
                self.request_line(without_cr(line)?, start)?;
            }
        }
        self.searched = bytes.len();
        let rest = &bytes[self.line..];
        if self.in_fields {
            if bytes.len() - self.origin > limits.max_head_bytes {
                return Err(HeadFault::TooLarge);
            }
        } else if !matches!(rest, [] | [b'\r']) {
            early_faults(rest, 0, limits)?;
        }
        Ok(None)
    }

    /// Prepares for the next head, with `memory` for its fields. Returns the fields of the last head.
    pub fn restart(&mut self, mut memory: Spans) -> Spans {
        memory.clear();
        let fields = std::mem::replace(&mut self.fields, memory);
        *self = Self { fields: std::mem::take(&mut self.fields), ..Self::default() };
        fields
    }

    /// Whether all of `len` bytes are empty lines before a request.
    pub fn only_leading_lines(&self, len: usize) -> bool {
        !self.in_fields && self.origin == len
    }

    /// Drops the empty lines, but remembers their number.
    pub fn drop_leading_lines(&mut self) {
        let memory = std::mem::take(&mut self.fields);
        *self = Self { fields: memory, leading_lines: self.leading_lines, ..Self::default() };
    }

    fn leading_line(&mut self) -> Result<(), HeadFault> {
        self.leading_lines += 1;
        if self.leading_lines > LEADING_LINES_MAX {
            return Err(HeadFault::Malformed("empty lines before the request line"));
        }
        self.origin = self.line;
        Ok(())
    }

    /// RFC 9112, section 3: `method SP request-target SP HTTP-version`, with one SP each.
    fn request_line(&mut self, line: &[u8], start: usize) -> Result<(), HeadFault> {
        let method_len = memchr(b' ', line).ok_or(HeadFault::Malformed("request line"))?;
        let (method, rest) = (&line[..method_len], &line[method_len + 1..]);
        if !is_method(method) {
            return Err(HeadFault::Malformed("method"));
        }
        let (target, version) = rest.split_last_chunk::<9>().ok_or(HeadFault::Malformed("request line"))?;
        self.http_11 = match version {
            b" HTTP/1.1" => true,
            b" HTTP/1.0" => false,
            _ => return Err(HeadFault::Malformed("version")),
        };
        if method == b"CONNECT" {
            return Err(HeadFault::ConnectRefused);
        }
        if !is_target(method, target) {
            return Err(HeadFault::Malformed("target"));
        }
        self.in_fields = true;
        self.method = start..start + method_len;
        self.target = self.method.end + 1..self.method.end + 1 + target.len();
        Ok(())
    }

    /// RFC 9112, section 5: `field-name ":" OWS field-value OWS`, on one line.
    fn field(&mut self, bytes: &[u8], place: Range<usize>, limits: &Limits) -> Result<(), HeadFault> {
        let line = without_cr(&bytes[place.clone()])?;
        if self.fields.len() >= limits.max_headers {
            return Err(HeadFault::TooLarge);
        }
        let len_of = |class| line.iter().position(|&byte| !is(byte, class)).unwrap_or(line.len());
        let plain_len = len_of(PLAIN);
        let is_plain = line.get(plain_len) == Some(&b':');
        let name_len = if is_plain { plain_len } else { len_of(TOKEN) };
        let (name, rest) = line.split_at(name_len);
        let value = match rest {
            [b' ' | b'\t', ..] if name.is_empty() => return Err(HeadFault::Malformed("folded field line")),
            [b':', value @ ..] if !name.is_empty() => value,
            _ => return Err(HeadFault::Malformed("field name")),
        };
        if name_len > NAME_BYTES_MAX {
            return Err(HeadFault::TooLarge);
        }
        if !is_value(value) {
            return Err(HeadFault::Malformed("field value"));
        }
        if !is_plain && !limits.underscores.allows(name)? {
            return Ok(());
        }
        let trimmed = trim_ows(value);
        let value_start = place.start + name_len + 1 + value.len() - trim_start(value).len();
        let name_place = place.start..place.start + name_len;
        self.fields.push(bytes, name_place, value_start..value_start + trimmed.len(), place.end + 1);
        match name_len {
            2 | 7 | 10 if is_bounded_list(name) => self.list(trimmed),
            4 if name.eq_ignore_ascii_case(b"host") => self.host(),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(trimmed),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(trimmed),
            _ => Ok(()),
        }
    }

    fn list(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        self.members += 1 + memchr_iter(b',', value).count();
        if self.members > MEMBERS_MAX { Err(HeadFault::TooLarge) } else { Ok(()) }
    }

    fn host(&mut self) -> Result<(), HeadFault> {
        if self.has_host {
            return Err(HeadFault::Malformed("more than one host"));
        }
        self.has_host = true;
        Ok(())
    }

    /// RFC 9112, section 6.3 allows equal values. Readers differ in what they call equal.
    fn content_length(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        match self.framing {
            Some(Framing::Chunked | Framing::UntilEnd) => Err(BOTH),
            Some(Framing::Length(_)) => Err(HeadFault::AmbiguousFraming("more than one content-length")),
            None => {
                let length = parse_length(value).ok_or(HeadFault::Malformed("content-length"))?;
                self.framing = Some(Framing::Length(length));
                Ok(())
            }
        }
    }

    /// RFC 9112, section 6.1: `chunked` must be last, and Weir supports no other coding. HTTP/1.0 has none.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        match self.framing {
            _ if !self.http_11 => Err(HeadFault::AmbiguousFraming("transfer-encoding in HTTP/1.0")),
            Some(Framing::Chunked | Framing::UntilEnd) => {
                Err(HeadFault::AmbiguousFraming("more than one transfer-encoding"))
            }
            Some(Framing::Length(_)) => Err(BOTH),
            None if value.eq_ignore_ascii_case(b"chunked") => {
                self.framing = Some(Framing::Chunked);
                Ok(())
            }
            None => Err(HeadFault::AmbiguousFraming("transfer-encoding is not chunked")),
        }
    }

    /// RFC 9112, section 3.2: a request without Host is an error, except in HTTP/1.0.
    fn finish(&self) -> Result<RequestHead, HeadFault> {
        if self.http_11 && !self.has_host {
            return Err(HeadFault::Malformed("missing host"));
        }
        Ok(RequestHead {
            len: self.line,
            framing: self.framing.unwrap_or(Framing::Length(0)),
            method: self.method.clone(),
            target: self.target.clone(),
            is_http_11: self.http_11,
        })
    }
}

/// Whether [`MEMBERS_MAX`] bounds the list in the field of this name.
fn is_bounded_list(name: &[u8]) -> bool {
    [&b"te"[..], b"upgrade", b"trailer", b"connection"].iter().any(|list| name.eq_ignore_ascii_case(list))
}

/// RFC 9112, section 6.1: probably request smuggling.
const BOTH: HeadFault = HeadFault::AmbiguousFraming("transfer-encoding and content-length");

/// Finds the faults of a request line that may be incomplete. `eol` is 1 if its LF has arrived. The order of the checks
/// here and in the callers makes the result independent of the boundaries of reads.
fn early_faults(line: &[u8], eol: usize, limits: &Limits) -> Result<(), HeadFault> {
    let Some(&first) = line.first() else {
        return Err(HeadFault::Malformed("bare LF"));
    };
    if !is(first, TOKEN) {
        return Err(HeadFault::Malformed("method"));
    }
    if line.len() > limits.max_uri_bytes {
        // Only bytes within the limit count: more may not have arrived yet.
        let seen = &line[..line.len().min(limits.max_head_bytes.saturating_add(1))];
        let target = memchr(b' ', seen).map_or(&[][..], |sp| &seen[sp + 1..]);
        let in_reach = target.get(..=limits.max_uri_bytes);
        if in_reach.is_some_and(|target| memchr(b' ', target).is_none()) {
            return Err(HeadFault::UriTooLong);
        }
    }
    if line.len() + eol > limits.max_head_bytes {
        return Err(HeadFault::TooLarge);
    }
    Ok(())
}

/// RFC 9112, section 2.2 allows a bare LF as the end of a line. Weir refuses it.
fn without_cr(line: &[u8]) -> Result<&[u8], HeadFault> {
    line.strip_suffix(b"\r").ok_or(HeadFault::Malformed("bare LF"))
}
