//! The head of a request as HTTP/2 has it.
//!
//! What goes to an upstream is decided once and written as HTTP/1 has it (`forward.rs`); this makes the same of it for
//! HTTP/2. So both protocols say the same, and a request that goes out once more is made of the same bytes.

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};

/// That of `head`, which Weir wrote; none if there is no way to say it.
pub(crate) fn request(head: &[u8], scheme: Scheme) -> Option<Request<()>> {
    // All values share it.
    let bytes = Bytes::copy_from_slice(head);
    let mut lines = lines(&bytes);
    let (method, rest) = split(&bytes, lines.next()?, b' ')?;
    let (target, _) = split(&bytes, rest, b' ')?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&bytes[method]).ok()?;
    *request.version_mut() = Version::HTTP_2;
    let (mut authority, headers) = (None, request.headers_mut());
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = split(&bytes, line, b':')?;
        let value = value.start + 1..value.end; // the one space that is written before it
        match &bytes[name.clone()] {
            b"host" => authority = Some(Authority::from_maybe_shared(bytes.slice(value)).ok()?),
            name if is_for_h1(name) => {}
            name => {
                let name = HeaderName::from_bytes(name).ok()?;
                let mut value = HeaderValue::from_maybe_shared(bytes.slice(value)).ok()?;
                // Clients share the state of the compression: none may find out what others send (RFC 7541, 7.1).
                value.set_sensitive(name == AUTHORIZATION || name == COOKIE);
                headers.append(name, value);
            }
        }
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(scheme);
    uri.authority = Some(authority?);
    uri.path_and_query = Some(PathAndQuery::from_maybe_shared(bytes.slice(target)).ok()?);
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    Some(request)
}

/// Puts another host into a head that names one.
pub(crate) fn replace_host(head: &mut Vec<u8>, host: &str) {
    let Some(line) = memchr::memmem::find(head, b"\r\nhost: ") else { return };
    let start = line + b"\r\nhost: ".len();
    let Some(len) = memchr::memchr(b'\r', &head[start..]) else { return };
    head.splice(start..start + len, host.bytes());
}

/// What HTTP/2 says by frames (RFC 9113, section 8.2.2).
fn is_for_h1(name: &[u8]) -> bool {
    [&b"connection"[..], b"transfer-encoding", b"upgrade"].iter().any(|other| name.eq_ignore_ascii_case(other))
}

type Span = std::ops::Range<usize>;

fn lines(bytes: &[u8]) -> impl Iterator<Item = Span> {
    let ends = memchr::memmem::find_iter(bytes, b"\r\n");
    ends.scan(0, |start, end| Some(std::mem::replace(start, end + 2)..end))
}

/// What lies before and behind the first `at` in a place.
fn split(bytes: &[u8], span: Span, at: u8) -> Option<(Span, Span)> {
    let len = memchr::memchr(at, &bytes[span.clone()])?;
    Some((span.start..span.start + len, span.start + len + 1..span.end))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn said(head: &str) -> Option<String> {
        let request = request(head.as_bytes(), Scheme::HTTP)?;
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            let mark = if value.is_sensitive() { "!" } else { "" };
            format!(" {name}={}{mark}", String::from_utf8_lossy(value.as_bytes()))
        };
        let fields: String = request.headers().iter().map(field).collect();
        Some(format!("{} {}{fields}", request.method(), request.uri()))
    }

    #[test]
    fn it_says_the_same() {
        let rows = [
            ("GET /a?b HTTP/1.1\r\nhost: a.test\r\n\r\n", Some("GET http://a.test/a?b")),
            (
                "POST / HTTP/1.1\r\nhost: a:1\r\nX-A: b: c\r\ncookie: k\r\nAuthorization: s\r\ncontent-length: 3\r\n\r\n",
                Some("POST http://a:1/ x-a=b: c cookie=k! authorization=s! content-length=3"),
            ),
            (
                "M / HTTP/1.1\r\nhost: [::1]\r\nte: trailers\r\nconnection: te\r\ntransfer-encoding: chunked\r\nx:  \r\n\r\n",
                Some("M http://[::1]/ te=trailers x= "),
            ),
            ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", Some("OPTIONS http://a*")),
            ("GET / HTTP/1.1\r\n\r\n", None),
            ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", None),
        ];
        for (head, expected) in rows {
            assert_eq!(said(head).as_deref(), expected, "{head}");
        }
    }
}
