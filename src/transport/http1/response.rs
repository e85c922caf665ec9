//! Parser of a response head.
//!
//! The operator runs the upstream, so harmless faults are accepted: bare LF, any reason, folded lines, a repeated
//! Content-Length, chunk extensions. A response with an ambiguous end of its body is refused.

use std::ops::Range;

use memchr::memchr;

use super::body::Framing;
use super::syntax::{NAME_BYTES_MAX, trim_start};
use crate::base::fields::{Spans, TOKEN, decimal, is, is_value, parse_length, trim_ows};

/// Bytes of a response head.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 128 * 1024;
/// Fields of a response head. Some services set a cookie or a link for each of their parts.
pub(crate) const FIELDS_MAX: usize = 2048;

/// A complete and valid head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Length in bytes, with the empty line at its end.
    pub len: usize,
    /// Three digits.
    pub status: u16,
    /// Position of the reason; may be empty.
    pub reason: Range<usize>,
    /// The framing of the body.
    pub framing: Framing,
    /// The Content-Length to forward. After HEAD it announces a body that does not follow.
    pub length: Option<u64>,
    /// Whether the connection can be reused after the body.
    pub keeps_alive: bool,
}

/// The fault of a response, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is not valid HTTP: {0}")]
pub struct ResponseFault(pub &'static str);

const TOO_LARGE: ResponseFault = ResponseFault("the head is too large");

/// Parses the head at the start of `bytes`; `to_head` if the request was HEAD. `None` if it is incomplete. The
/// positions of the fields go to `spans`. Line ends in folded fields become spaces (RFC 9112, section 5.2).
pub fn parse_response(
    bytes: &mut [u8],
    to_head: bool,
    spans: &mut Spans,
) -> Result<Option<ResponseHead>, ResponseFault> {
    let mut at = 0;
    let Some(line) = next_line(bytes, &mut at)? else { return Ok(None) };
    let (is_http_11, status) = status_line(&bytes[line.clone()])?;
    let reason = (line.start + STATUS_LINE_LEN + 1).min(line.end)..line.end;
    let mut seen = HeadFields::default();
    spans.clear();
    loop {
        let Some(line) = next_field_line(bytes, &mut at)? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        field(bytes, line, at, spans, &mut seen)?;
        if spans.len() > FIELDS_MAX {
            return Err(ResponseFault("too many fields"));
        }
    }
    if at > RESPONSE_HEAD_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    if seen.is_chunked && !is_http_11 {
        return Err(ResponseFault("transfer-encoding in HTTP/1.0"));
    }
    let framing = match (status, seen.length) {
        (100..200 | 204 | 304, _) => Framing::Length(0),
        _ if to_head => Framing::Length(0),
        // RFC 9112, section 6.3: transfer-encoding overrides content-length, which is not forwarded.
        _ if seen.is_chunked => Framing::Chunked,
        (_, Some(length)) => Framing::Length(length),
        (_, None) => Framing::UntilEnd,
    };
    // With two framings, the upstream may mean the other one.
    let is_certain = framing != Framing::UntilEnd && !(seen.is_chunked && seen.length.is_some());
    // A forbidden body may come late, and would be read as the next response.
    let may_follow = matches!(status, 100..200 | 204 | 304) && (seen.is_chunked || seen.length > Some(0));
    let keeps_alive = is_certain && !may_follow && !seen.says_close && (is_http_11 || seen.says_keep_alive);
    // RFC 9110, section 8.6, and RFC 9112, section 6.3.
    let length = seen.length.filter(|_| !seen.is_chunked && !matches!(status, 100..200 | 204));
    Ok(Some(ResponseHead { len: at, status, reason, framing, length, keeps_alive }))
}

#[derive(Default)]
struct HeadFields {
    says_close: bool,
    says_keep_alive: bool,
    is_chunked: bool,
    length: Option<u64>,
}

/// The position of the next field without its line end; `at` moves to the line after it. Folded lines become one.
fn next_field_line(bytes: &mut [u8], at: &mut usize) -> Result<Option<Range<usize>>, ResponseFault> {
    let Some(mut line) = next_line(bytes, at)? else { return Ok(None) };
    while !line.is_empty() {
        match bytes.get(*at) {
            Some(b' ' | b'\t') => {
                bytes[line.end..*at].fill(b' ');
                let Some(more) = next_line(bytes, at)? else { return Ok(None) };
                line.end = more.end;
            }
            Some(_) => break,
            None => return incomplete(bytes),
        }
    }
    Ok(Some(line))
}

fn incomplete<T>(bytes: &[u8]) -> Result<Option<T>, ResponseFault> {
    if bytes.len() >= RESPONSE_HEAD_BYTES_MAX { Err(TOO_LARGE) } else { Ok(None) }
}

/// The position of the next line without its end; `at` moves to the line after it.
fn next_line(bytes: &[u8], at: &mut usize) -> Result<Option<Range<usize>>, ResponseFault> {
    let start = *at;
    let Some(len) = memchr(b'\n', &bytes[start..]) else { return incomplete(bytes) };
    *at = start + len + 1;
    let end = start + len;
    Ok(Some(start..if end > start && bytes[end - 1] == b'\r' { end - 1 } else { end }))
}

/// Length of `HTTP/1.1 200`.
const STATUS_LINE_LEN: usize = 12;

fn status_line(line: &[u8]) -> Result<(bool, u16), ResponseFault> {
    let is_http_11 = match line.get(..9) {
        Some(b"HTTP/1.1 ") => true,
        Some(b"HTTP/1.0 ") => false,
        _ => return Err(ResponseFault("version")),
    };
    let status = line.get(9..STATUS_LINE_LEN).and_then(decimal).and_then(|status| u16::try_from(status).ok());
    let is_delimited = matches!(line.get(STATUS_LINE_LEN), None | Some(b' '));
    let is_reason = is_value(line.get(STATUS_LINE_LEN..).unwrap_or(&[]));
    match status {
        Some(status @ 100..) if is_delimited && is_reason => Ok((is_http_11, status)),
        _ => Err(ResponseFault("status")),
    }
}

fn field(
    bytes: &[u8],
    range: Range<usize>,
    end: usize,
    spans: &mut Spans,
    seen: &mut HeadFields,
) -> Result<(), ResponseFault> {
    let line = &bytes[range.clone()];
    let name_len = line.iter().position(|&byte| !is(byte, TOKEN)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_len);
    let value = match rest {
        [b':', value @ ..] if (1..=NAME_BYTES_MAX).contains(&name_len) && is_value(value) => value,
        _ => return Err(ResponseFault("field")),
    };
    let trimmed = trim_ows(value);
    let value_start = range.end - trim_start(value).len();
    spans.push(bytes, range.start..range.start + name_len, value_start..value_start + trimmed.len(), end);
    match name_len {
        10 if name.eq_ignore_ascii_case(b"connection") => connection(trimmed, seen),
        14 if name.eq_ignore_ascii_case(b"content-length") => {
            seen.length = Some(content_length(trimmed, seen.length)?);
        }
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            if seen.is_chunked || !trimmed.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseFault("transfer-encoding"));
            }
            seen.is_chunked = true;
        }
        _ => {}
    }
    Ok(())
}

/// RFC 9112, section 6.3: a list or several fields of one number count as that number.
fn content_length(value: &[u8], before: Option<u64>) -> Result<u64, ResponseFault> {
    let mut all = before;
    for member in value.split(|&byte| byte == b',').map(trim_ows) {
        let length = parse_length(member).ok_or(ResponseFault("content-length"))?;
        if all.is_some_and(|before| before != length) {
            return Err(ResponseFault("more than one content-length"));
        }
        all = Some(length);
    }
    all.ok_or(ResponseFault("content-length"))
}

fn connection(value: &[u8], seen: &mut HeadFields) {
    if value == b"keep-alive" {
        return seen.says_keep_alive = true; // the usual value
    }
    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        seen.says_close |= option.eq_ignore_ascii_case(b"close");
        seen.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str, to_head: bool) -> Result<Option<ResponseHead>, ResponseFault> {
        parse_response(&mut text.as_bytes().to_vec(), to_head, &mut Spans::default())
    }

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
            ("HTTP/1.1 200 OK\r\ncontent-length: 5 ,05\r\nContent-Length: 005\r\n", Length(5), KEEP),
            // Both: chunks count, and the connection is not reused.
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", Chunked, CLOSE),
            // A forbidden body may come late.
            ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n", Length(0), CLOSE),
            ("HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n", Length(0), CLOSE),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n", Length(0), CLOSE),
            ("HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n", Length(0), CLOSE),
            ("HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n", Length(0), CLOSE),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n", Length(0), KEEP),
            ("HTTP/1.1 204 No Content\r\n", Length(0), KEEP),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n", Length(0), KEEP),
            ("HTTP/1.1 304 Not Modified\r\n", Length(0), KEEP),
            ("HTTP/1.1 103 Early Hints\r\n", Length(0), KEEP),
            // Obsolete folding.
            ("HTTP/1.1 200 OK\r\ncontent-length:\r\n\t5\r\nx: y\n z\r\n", Length(5), KEEP),
            ("HTTP/1.1 200 OK\r\nx: y\r\n \r\ntransfer-encoding: \r\n chunked\r\n", Chunked, KEEP),
        ];
        for (lines, framing, keeps_alive) in rows {
            let bytes = format!("{lines}\r\n rest");
            let head = parse_text(&bytes, false).unwrap().unwrap();
            assert_eq!((head.framing, head.keeps_alive), (*framing, *keeps_alive), "{lines}");
            assert_eq!(&bytes[head.len..], " rest", "{lines}");
            for cut in 0..head.len {
                assert_eq!(parse_text(&bytes[..cut], false), Ok(None), "{lines} at {cut}");
            }
            let to_head = parse_text(&bytes, true).unwrap().unwrap();
            assert_eq!(to_head.framing, Length(0), "{lines}");
        }
    }

    #[test]
    fn status_reason_and_fields_are_separated() {
        let mut bytes = *b"HTTP/1.1 418 I'm a \xe2\x98\x95\r\nX-A: \t b \r\nx-empty:\r\n\r\n";
        let mut spans = Spans::default();
        let head = parse_response(&mut bytes, false, &mut spans).unwrap().unwrap();
        assert_eq!((head.status, &bytes[head.reason]), (418, &b"I'm a \xe2\x98\x95"[..]));
        let fields: Vec<_> = spans.of(&bytes).iter().collect();
        assert_eq!(fields, [(&b"X-A"[..], &b"b"[..]), (b"x-empty", b"")]);
    }

    #[test]
    fn ambiguous_responses_are_refused() {
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
            "HTTP/1.1 200 OK\r\n folded: y\r\n",
            "HTTP/1.1 200 OK\r\nx\r\n : y\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n 2\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5,\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5 5\r\n",
            "HTTP/1.1 200 OK\r\nx: a\rb\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n",
        ] {
            let bytes = format!("{lines}\r\n");
            assert!(parse_text(&bytes, false).is_err(), "{lines}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(RESPONSE_HEAD_BYTES_MAX));
        assert!(parse_text(&endless, false).is_err());
        let folded = format!("HTTP/1.1 200 OK\r\nx: y{}", "\r\n z".repeat(RESPONSE_HEAD_BYTES_MAX / 4));
        assert!(parse_text(&folded, false).is_err());
        let long = |len: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(len - 24));
        assert!(parse_text(&long(RESPONSE_HEAD_BYTES_MAX), false).unwrap().is_some());
        assert!(parse_text(&long(RESPONSE_HEAD_BYTES_MAX + 1), false).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(FIELDS_MAX + 1));
        assert!(parse_text(&many, false).is_err());
    }

    #[test]
    fn folded_lines_are_joined_in_place() {
        let mut bytes = *b"HTTP/1.1 200 OK\r\nx: a\r\n b\n\tc\r\n \r\ny: d\r\n\r\n e";
        let mut spans = Spans::default();
        parse_response(&mut bytes, false, &mut spans).unwrap().unwrap();
        let fields: Vec<_> = spans.of(&bytes).iter().collect();
        assert_eq!(fields, [(&b"x"[..], &b"a   b \tc"[..]), (b"y", b"d")]);
        assert!(bytes.ends_with(b"\r\n\r\n e"));
    }

    #[test]
    fn announced_lengths() {
        for (lines, length) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 005\r\n", Some(5)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", None),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n", Some(5)),
            ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n", None),
            ("HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n", None),
            ("HTTP/1.1 200 OK\r\n", None),
        ] {
            for to_head in [false, true] {
                assert_eq!(parse_text(&format!("{lines}\r\n"), to_head).unwrap().unwrap().length, length, "{lines}");
            }
        }
    }
}
