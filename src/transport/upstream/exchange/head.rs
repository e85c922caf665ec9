//! The head of an outgoing request: one description, with an encoder for HTTP/1 and one for HTTP/2.
//!
//! What goes to an upstream is decided once, by the implementation of [`RequestHead`]. A retry on another connection
//! encodes the same description again.

use std::ops::Range;

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri, Version};

use crate::base::fields::Fields;
use crate::transport::http1::encode::{Encoder, write_field};

/// The head of a request to an upstream, independent of the protocol version.
pub(crate) trait RequestHead {
    fn method(&self) -> &Method;

    /// Appends the path and the query, if there is one.
    fn write_target(&self, out: &mut Vec<u8>);

    /// The host and port for `Host` or `:authority`; none to use those of the endpoint.
    fn authority(&self) -> Option<&str>;

    /// Writes all fields but `Host`. Returns how HTTP/1 frames the body.
    fn write_fields(&self, out: &mut impl FieldWriter) -> Encoder;
}

/// Writes the fields of a request in one protocol version.
pub(crate) trait FieldWriter {
    /// Copies the fields of `fields` whose names `keeps` accepts.
    fn copy(&mut self, fields: Fields<'_>, keeps: impl FnMut(&[u8]) -> bool);

    fn field(&mut self, name: &[u8], value: &[u8]);

    /// Writes a field whose value `write` appends.
    fn field_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>));

    /// Writes a field about the HTTP/1 connection. HTTP/2 has no such fields (RFC 9113, section 8.2.2).
    fn connection_field(&mut self, name: &[u8], value: &[u8]);
}

/// Appends the head as HTTP/1 to `out`; `host` is that of the endpoint. Returns how the body is framed.
pub(crate) fn encode_h1(out: &mut Vec<u8>, head: &impl RequestHead, host: &str) -> Encoder {
    out.extend_from_slice(head.method().as_str().as_bytes());
    out.push(b' ');
    head.write_target(out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_field(out, b"host", head.authority().unwrap_or(host).as_bytes());
    let encoder = head.write_fields(&mut H1Fields(out));
    out.extend_from_slice(b"\r\n");
    encoder
}

/// The head as HTTP/2; `host` and `scheme` are those of the endpoint. None if HTTP/2 cannot express it.
pub(crate) fn encode_h2(head: &impl RequestHead, host: &str, scheme: Scheme) -> Option<Request<()>> {
    let mut fields = H2Fields::default();
    head.write_target(&mut fields.bytes);
    let target = 0..fields.bytes.len();
    fields.bytes.extend_from_slice(head.authority().unwrap_or(host).as_bytes());
    let authority = target.end..fields.bytes.len();
    head.write_fields(&mut fields);
    let H2Fields { bytes, fields, is_valid } = fields;
    let bytes = Bytes::from(bytes); // all values share it
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let mut value = HeaderValue::from_maybe_shared(bytes.slice(value)).ok()?;
        // Clients share the compression state of the connection, and none may guess secrets of another (RFC 7541, 7.1).
        value.set_sensitive(name == AUTHORIZATION || name == COOKIE);
        headers.append(name, value);
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(scheme);
    uri.authority = Some(Authority::from_maybe_shared(bytes.slice(authority)).ok()?);
    uri.path_and_query = Some(PathAndQuery::from_maybe_shared(bytes.slice(target)).ok()?);
    let mut request = Request::new(());
    *request.method_mut() = head.method().clone();
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.headers_mut() = headers;
    is_valid.then_some(request)
}

struct H1Fields<'o>(&'o mut Vec<u8>);

impl FieldWriter for H1Fields<'_> {
    fn copy(&mut self, fields: Fields<'_>, keeps: impl FnMut(&[u8]) -> bool) {
        fields.write_lines(self.0, keeps);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        write_field(self.0, name, value);
    }

    fn field_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        write(self.0);
        self.0.extend_from_slice(b"\r\n");
    }

    fn connection_field(&mut self, name: &[u8], value: &[u8]) {
        write_field(self.0, name, value);
    }
}

struct H2Fields {
    /// The target, the authority and all values.
    bytes: Vec<u8>,
    fields: Vec<(HeaderName, Range<usize>)>,
    /// All names so far are valid in HTTP/2.
    is_valid: bool,
}

impl Default for H2Fields {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(1024), fields: Vec::with_capacity(16), is_valid: true }
    }
}

impl FieldWriter for H2Fields {
    fn copy(&mut self, fields: Fields<'_>, mut keeps: impl FnMut(&[u8]) -> bool) {
        for (name, value) in fields.iter().filter(|(name, _)| keeps(name)) {
            self.field(name, value);
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.field_with(name, |out| out.extend_from_slice(value));
    }

    fn field_with(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        match HeaderName::from_bytes(name) {
            Ok(name) => self.fields.push((name, start..self.bytes.len())),
            Err(_) => self.is_valid = false,
        }
    }

    fn connection_field(&mut self, _name: &[u8], _value: &[u8]) {}
}

/// The head of a GET that Weir sends for itself.
#[derive(Debug)]
pub(crate) struct OwnHead<'a> {
    pub(crate) target: &'a str,
}

impl RequestHead for OwnHead<'_> {
    fn method(&self) -> &Method {
        &Method::GET
    }

    fn write_target(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.target.as_bytes());
    }

    fn authority(&self) -> Option<&str> {
        None
    }

    fn write_fields(&self, out: &mut impl FieldWriter) -> Encoder {
        out.field(b"user-agent", b"weir");
        out.connection_field(b"connection", b"close");
        Encoder::Raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Head {
        method: Method,
        target: &'static str,
        authority: Option<&'static str>,
        fields: &'static [(&'static str, &'static str)],
        connection_fields: &'static [(&'static str, &'static str)],
    }

    impl RequestHead for Head {
        fn method(&self) -> &Method {
            &self.method
        }

        fn write_target(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.target.as_bytes());
        }

        fn authority(&self) -> Option<&str> {
            self.authority
        }

        fn write_fields(&self, out: &mut impl FieldWriter) -> Encoder {
            self.fields.iter().for_each(|(name, value)| out.field(name.as_bytes(), value.as_bytes()));
            self.connection_fields
                .iter()
                .for_each(|(name, value)| out.connection_field(name.as_bytes(), value.as_bytes()));
            Encoder::Raw
        }
    }

    fn h1(head: &Head) -> String {
        let mut out = Vec::new();
        encode_h1(&mut out, head, "own.test");
        String::from_utf8(out).unwrap()
    }

    fn h2(head: &Head) -> Option<String> {
        let request = encode_h2(head, "own.test", Scheme::HTTP)?;
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            let mark = if value.is_sensitive() { "!" } else { "" };
            format!(" {name}={}{mark}", String::from_utf8_lossy(value.as_bytes()))
        };
        let fields: String = request.headers().iter().map(field).collect();
        Some(format!("{} {}{fields}", request.method(), request.uri()))
    }

    type Names = &'static [(&'static str, &'static str)];
    /// Method, target, authority, fields, connection fields; the head in HTTP/1 and in HTTP/2.
    type Row = (&'static str, &'static str, Option<&'static str>, Names, Names, &'static str, Option<&'static str>);

    #[test]
    fn both_encoders_write_the_same_head() {
        let secrets: Names =
            &[("X-A", "b: c"), ("cookie", "k"), ("Authorization", "s"), ("content-length", "3"), ("x-a", "2")];
        let chunked: Names = &[("connection", "te"), ("transfer-encoding", "chunked")];
        let rows: [Row; 7] = [
            (
                "GET",
                "/a?b",
                Some("a.test"),
                &[],
                &[],
                "GET /a?b HTTP/1.1\r\nhost: a.test\r\n\r\n",
                Some("GET http://a.test/a?b"),
            ),
            ("GET", "/", None, &[], &[], "GET / HTTP/1.1\r\nhost: own.test\r\n\r\n", Some("GET http://own.test/")),
            (
                "POST",
                "/",
                Some("a:1"),
                secrets,
                &[],
                "POST / HTTP/1.1\r\nhost: a:1\r\nX-A: b: c\r\ncookie: k\r\nAuthorization: s\r\ncontent-length: 3\r\nx-a: 2\r\n\r\n",
                Some("POST http://a:1/ x-a=b: c x-a=2 cookie=k! authorization=s! content-length=3"),
            ),
            (
                "M",
                "/",
                Some("[::1]"),
                &[("te", "trailers"), ("x", " ")],
                chunked,
                "M / HTTP/1.1\r\nhost: [::1]\r\nte: trailers\r\nx:  \r\nconnection: te\r\ntransfer-encoding: chunked\r\n\r\n",
                Some("M http://[::1]/ te=trailers x= "),
            ),
            ("OPTIONS", "*", Some("a"), &[], &[], "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", Some("OPTIONS http://a*")),
            ("GET", "/", Some(""), &[], &[], "GET / HTTP/1.1\r\nhost: \r\n\r\n", None),
            ("GET", "/", Some("a b"), &[], &[], "GET / HTTP/1.1\r\nhost: a b\r\n\r\n", None),
        ];
        for (method, target, authority, fields, connection_fields, expected_h1, expected_h2) in rows {
            let head = Head { method: method.parse().unwrap(), target, authority, fields, connection_fields };
            assert_eq!(h1(&head), expected_h1);
            assert_eq!(h2(&head).as_deref(), expected_h2, "{expected_h1}");
        }
    }
}
