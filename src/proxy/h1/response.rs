//! The reading of a response's head.
//!
//! The upstream is the operator's own, so what is harmless is taken: bare LF, any reason, extensions of chunks. What
//! leaves a doubt about where the body ends is not.

use std::ops::Range;

use memchr::memchr;

use super::head::{Framing, NAME_BYTES_MAX, TOKEN, is, is_value, length, trim_start};
use crate::policy::{Spans, trim_ows};

/// Bytes of a response's head.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 128 * 1024;
/// Fields of a response's head.
const FIELDS_MAX: usize = 256;

/// A head that is complete and clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes, with the empty line that ends it.
    pub len: usize,
    /// Three digits.
    pub status: u16,
    /// Where the reason lies; may be empty.
    pub reason: Range<usize>,
    /// How its body ends.
    pub framing: Framing,
    /// Whether the connection can be used again after the body.
    pub keeps_alive: bool,
    /// Whether it has no body and its fields do not say so, as HTTP/1 needs it.
    pub owes_length: bool,
}

/// What is wrong with a response; for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFault(pub &'static str);

impl std::fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the response is not HTTP as it should be: {}", self.0)
    }
}

impl std::error::Error for ResponseFault {}

/// Reads the head of a response that `bytes` begin with, to a HEAD request if `to_head`. `None`: it has not come whole.
/// The places of the fields go to `spans`.
pub fn parse(bytes: &[u8], to_head: bool, spans: &mut Spans) -> Result<Option<ResponseHead>, ResponseFault> {
    let mut at = 0;
    let Some(line) = next_line(bytes, &mut at)? else { return Ok(None) };
    let (is_http_11, status) = status_line(&bytes[line.clone()])?;
    let reason = (line.start + STATUS_LINE_LEN + 1).min(line.end)..line.end;
    let mut facts = Facts::default();
    spans.clear();
    loop {
        let Some(line) = next_line(bytes, &mut at)? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        field(bytes, line, at, spans, &mut facts)?;
        if spans.len() > FIELDS_MAX {
            return Err(ResponseFault("too many fields"));
        }
    }
    if facts.is_chunked && !is_http_11 {
        return Err(ResponseFault("transfer-encoding in HTTP/1.0"));
    }
    let framing = match (status, facts.length) {
        (100..200 | 204 | 304, _) => Framing::Length(0),
        _ if to_head => Framing::Length(0),
        // RFC 9112, section 6.3: transfer-encoding overrides content-length, which is not sent on.
        _ if facts.is_chunked => Framing::Chunked,
        (_, Some(length)) => Framing::Length(length),
        (_, None) => Framing::UntilEnd,
    };
    // Both framings at once: whoever sent that may mean the other one.
    let is_certain = framing != Framing::UntilEnd && !(facts.is_chunked && facts.length.is_some());
    let keeps_alive = is_certain && !facts.says_close && (is_http_11 || facts.says_keep_alive);
    Ok(Some(ResponseHead { len: at, status, reason, framing, keeps_alive, owes_length: false }))
}

#[derive(Default)]
struct Facts {
    says_close: bool,
    says_keep_alive: bool,
    is_chunked: bool,
    length: Option<u64>,
}

/// Where the next line lies, without its end; `at` moves behind it.
fn next_line(bytes: &[u8], at: &mut usize) -> Result<Option<Range<usize>>, ResponseFault> {
    let start = *at;
    let Some(len) = memchr(b'\n', &bytes[start..]) else {
        let is_too_long = bytes.len() >= RESPONSE_HEAD_BYTES_MAX;
        return if is_too_long { Err(ResponseFault("the head is too large")) } else { Ok(None) };
    };
    *at = start + len + 1;
    let end = start + len;
    Ok(Some(start..if end > start && bytes[end - 1] == b'\r' { end - 1 } else { end }))
}

/// `HTTP/1.1 200`.
const STATUS_LINE_LEN: usize = 12;

fn status_line(line: &[u8]) -> Result<(bool, u16), ResponseFault> {
    let is_http_11 = match line.get(..9) {
        Some(b"HTTP/1.1 ") => true,
        Some(b"HTTP/1.0 ") => false,
        _ => return Err(ResponseFault("version")),
    };
    let digits = line.get(9..STATUS_LINE_LEN).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let status = digits.map(|digits| digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')));
    let is_delimited = matches!(line.get(STATUS_LINE_LEN), None | Some(b' '));
    let is_reason = is_value(line.get(STATUS_LINE_LEN..).unwrap_or(&[]));
    match status {
        Some(status @ 100..) if is_delimited && is_reason => Ok((is_http_11, status)),
        _ => Err(ResponseFault("status")),
    }
}

fn field(
    bytes: &[u8],
    place: Range<usize>,
    end: usize,
    spans: &mut Spans,
    facts: &mut Facts,
) -> Result<(), ResponseFault> {
    let line = &bytes[place.clone()];
    let name_len = line.iter().position(|&byte| !is(byte, TOKEN)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_len);
    let value = match rest {
        [b':', value @ ..] if (1..=NAME_BYTES_MAX).contains(&name_len) && is_value(value) => value,
        _ => return Err(ResponseFault("field")),
    };
    let trimmed = trim_ows(value);
    let value_start = place.end - trim_start(value).len();
    spans.push(bytes, place.start..place.start + name_len, value_start..value_start + trimmed.len(), end);
    match name_len {
        10 if name.eq_ignore_ascii_case(b"connection") => connection(trimmed, facts),
        14 if name.eq_ignore_ascii_case(b"content-length") => {
            let length = length(trimmed).ok_or(ResponseFault("content-length"))?;
            if facts.length.is_some_and(|before| before != length) {
                return Err(ResponseFault("more than one content-length"));
            }
            facts.length = Some(length);
        }
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            if facts.is_chunked || !trimmed.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseFault("transfer-encoding"));
            }
            facts.is_chunked = true;
        }
        _ => {}
    }
    Ok(())
}

fn connection(value: &[u8], facts: &mut Facts) {
    if value == b"keep-alive" {
        return facts.says_keep_alive = true; // what most say who say anything
    }
    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        facts.says_close |= option.eq_ignore_ascii_case(b"close");
        facts.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CLOSE: bool = false;
    const KEEP: bool = true;

    #[test]
    fn framing_and_persistence() {
        use Framing::{Chunked, Length, UntilEnd};
        let rows: &[(&str, Framing, bool)] = &[
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n", Length(5), KEEP),
            ("HTTP/1.1 200 OK\nContent-Length:5 \n", Length(5), KEEP),
            ("HTTP/1.1 200\r\ncontent-length: 0\r\n", Length(0), KEEP),
            ("HTTP/1.1 200 OK\r\n", UntilEnd, CLOSE),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n", Length(5), CLOSE),
            ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 5\r\n", Length(5), KEEP),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 5\r\n", Length(5), CLOSE),
            ("HTTP/1.1 200 OK\r\nconnection: close, keep-alive\r\ncontent-length: 5\r\n", Length(5), CLOSE),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n", Chunked, KEEP),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n", Length(5), KEEP),
            // Both: chunks count, and the connection is not trusted with another request.
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", Chunked, CLOSE),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n", Length(0), KEEP),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n", Length(0), KEEP),
            ("HTTP/1.1 103 Early Hints\r\n", Length(0), KEEP),
        ];
        for (lines, framing, keeps_alive) in rows {
            let bytes = format!("{lines}\r\nrest");
            let head = parse(bytes.as_bytes(), false, &mut Spans::default()).unwrap().unwrap();
            assert_eq!((head.framing, head.keeps_alive), (*framing, *keeps_alive), "{lines}");
            assert_eq!(&bytes[head.len..], "rest", "{lines}");
            for cut in 0..head.len {
                assert_eq!(parse(&bytes.as_bytes()[..cut], false, &mut Spans::default()), Ok(None), "{lines} at {cut}");
            }
            let to_head = parse(bytes.as_bytes(), true, &mut Spans::default()).unwrap().unwrap();
            assert_eq!(to_head.framing, Length(0), "{lines}");
        }
    }

    #[test]
    fn takes_status_reason_and_fields_apart() {
        let bytes = b"HTTP/1.1 418 I'm a \xe2\x98\x95\r\nX-A: \t b \r\nx-empty:\r\n\r\n";
        let mut spans = Spans::default();
        let head = parse(bytes, false, &mut spans).unwrap().unwrap();
        assert_eq!((head.status, &bytes[head.reason]), (418, &b"I'm a \xe2\x98\x95"[..]));
        let fields: Vec<_> = spans.of(bytes).iter().collect();
        assert_eq!(fields, [(&b"X-A"[..], &b"b"[..]), (b"x-empty", b"")]);
    }

    #[test]
    fn refuses_what_is_in_doubt() {
        for lines in [
            "HTTP/2 200 OK\r\n",
            "HTTP/1.2 200 OK\r\n",
            "HTTP/1.1  200 OK\r\n",
            "HTTP/1.1 20 OK\r\n",
            "HTTP/1.1 2000 OK\r\n",
            "HTTP/1.1 099 OK\r\n",
            "HTTP/1.1 200 O\x00K\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n",
            "HTTP/1.1 200 OK\r\nx y\r\n",
            "HTTP/1.1 200 OK\r\nx : y\r\n",
            "HTTP/1.1 200 OK\r\n: y\r\n",
            "HTTP/1.1 200 OK\r\nx: y\r\n folded\r\n",
            "HTTP/1.1 200 OK\r\nx: a\rb\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n",
        ] {
            let bytes = format!("{lines}\r\n");
            assert!(parse(bytes.as_bytes(), false, &mut Spans::default()).is_err(), "{lines}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(RESPONSE_HEAD_BYTES_MAX));
        assert!(parse(endless.as_bytes(), false, &mut Spans::default()).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(FIELDS_MAX + 1));
        assert!(parse(many.as_bytes(), false, &mut Spans::default()).is_err());
    }
}
