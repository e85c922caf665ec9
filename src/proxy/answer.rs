//! The heads of answers as the client gets them: the upstream's, and Weir's own.

use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT};
use http::{HeaderMap, Method, Response, StatusCode};

use super::date::Date;
use super::request::{Protocol, Request};
use crate::fields::Fields;
use crate::gate::{Budgets, Standing};
use crate::http1::encode::{Encoder, write_field};
use crate::http1::hop::{self, Named};
use crate::http1::{Framing, ResponseHead};
use crate::respond::{self, Disposition, HeaderSink, Profiles};
use crate::upstream::location::{self, LocationRewrite};

/// What of a request decides how its answers look, kept until they are written.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Asked {
    pub(super) protocol: Protocol,
    pub(super) is_head: bool,
    /// It comes from a script in a browser.
    has_origin: bool,
    pub(super) is_grpc: bool,
    takes_trailers: bool,
    /// The client wants the connection kept.
    pub(super) keeps_alive: bool,
}

impl Asked {
    /// What this request says of it.
    pub(super) fn by(request: &Request<'_>) -> Self {
        let fields = request.fields;
        let keeps_alive = match request.protocol {
            Protocol::Http10 => hop::connection_says(fields, b"keep-alive"),
            _ => !hop::connection_says(fields, b"close"),
        };
        Self {
            protocol: request.protocol,
            is_head: request.method == Method::HEAD,
            has_origin: fields.contains("origin"),
            is_grpc: respond::is_grpc(&request.method, fields),
            takes_trailers: hop::takes_trailers(fields),
            keeps_alive,
        }
    }

    /// Of a request that cannot be read.
    pub(super) fn nothing() -> Self {
        Self {
            protocol: Protocol::Http11,
            is_head: false,
            has_origin: false,
            is_grpc: false,
            takes_trailers: false,
            keeps_alive: false,
        }
    }
}

/// The head of an answer from the upstream.
pub(super) struct Upstream<'a> {
    pub(super) head: &'a ResponseHead,
    /// Of which head it is.
    pub(super) reason: &'a [u8],
    pub(super) fields: Fields<'a>,
    /// Where the client stands.
    pub(super) standing: Option<&'a Standing<'a>>,
    /// What is listed of that.
    pub(super) budgets: Budgets<'a>,
    pub(super) profiles: Profiles,
    /// How places that it names are changed back, and what the endpoint is called.
    pub(super) back: Option<(&'a LocationRewrite, &'a str)>,
}

impl<'a> Upstream<'a> {
    /// Which of the upstream's fields go on, by name: all but what is for its connection, or is written anew.
    fn passes(&self) -> impl Fn(&[u8]) -> bool + use<'a> {
        let (named, profiles, is_limited) = (Named::by(self.fields), self.profiles, self.standing.is_some());
        let is_turned = self.back.is_some();
        move |name| {
            !(hop::is_hop_by_hop(name)
                || name.eq_ignore_ascii_case(b"content-length")
                || (is_limited && respond::is_limit_header(profiles, name))
                || (is_turned && location::is_location(name))
                || named.contains(name))
        }
    }

    fn write_limits(&self, asked: Asked, sink: &mut impl HeaderSink) {
        if let Some(standing) = self.standing {
            respond::limit_headers(sink, self.profiles, standing, &self.budgets, Disposition::Forwarded);
        }
        if asked.has_origin {
            respond::expose(sink, self.profiles);
        }
    }

    /// Writes the status line, the fields of the upstream that go on, and the length as it was understood.
    fn write_begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.head.status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.reason);
        out.extend_from_slice(b"\r\n");
        self.fields.write_lines(out, self.passes());
        if let Some(length) = self.head.length {
            write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        if let Some((back, host)) = self.back {
            back.each(self.fields, host, |name, value| write_field(out, name, value));
        }
    }

    /// Writes it for HTTP/1 as the agreement to change to `protocol`.
    pub(super) fn write_switch(&self, out: &mut Vec<u8>, asked: Asked, protocol: &str, date: &Date) {
        self.write_begin(out);
        if !self.fields.contains("date") {
            date.write(out);
        }
        out.extend_from_slice(b"connection: upgrade\r\n");
        write_field(out, b"upgrade", protocol.as_bytes());
        self.write_limits(asked, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes it for HTTP/1, and says how the body is to be written. `keeps_alive` becomes false if the end of the
    /// connection is the end of the body.
    pub(super) fn write_h1(&self, out: &mut Vec<u8>, asked: Asked, date: &Date, keeps_alive: &mut bool) -> Encoder {
        self.write_begin(out);
        let has_length = matches!(self.head.framing, Framing::Length(_));
        let encoder = if has_length || asked.protocol == Protocol::Http10 {
            *keeps_alive &= has_length;
            Encoder::Raw
        } else {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Encoder::chunked(self.fields, asked.takes_trailers)
        };
        if !self.fields.contains("date") {
            date.write(out);
        }
        write_connection(out, asked, *keeps_alive);
        self.write_limits(asked, out);
        out.extend_from_slice(b"\r\n");
        encoder
    }

    /// The agreement to become a tunnel for HTTP/2 (RFC 8441, section 5).
    pub(super) fn write_tunnel<B>(&self, body: B, asked: Asked) -> Response<B> {
        let mut response = self.write_h2(body, asked);
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        response
    }

    /// Writes it for HTTP/2, around `body`.
    pub(super) fn write_h2<B>(&self, body: B, asked: Asked) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.head.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        let passes = self.passes();
        let mut append = |name: &[u8], value: &[u8]| {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        };
        for (name, value) in self.fields.iter().filter(|(name, _)| passes(name)) {
            append(name, value);
        }
        if let Some(length) = self.head.length {
            append(b"content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        if let Some((back, host)) = self.back {
            back.each(self.fields, host, append);
        }
        self.write_limits(asked, headers);
        response
    }
}

/// Writes an answer of our own for HTTP/1, with its body.
pub(super) fn write_own_h1(
    out: &mut Vec<u8>,
    own: &respond::Answer<'_>,
    asked: Asked,
    profiles: Profiles,
    date: &Date,
    keeps_alive: bool,
) {
    let status = own.status();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
    own.write_headers(out, profiles);
    if asked.has_origin {
        respond::expose(out, profiles);
    }
    date.write(out);
    write_connection(out, asked, keeps_alive);
    // The length is known once the body is written: it is put where it was left out.
    out.extend_from_slice(b"content-length: ");
    let length_at = out.len();
    out.extend_from_slice(b"\r\n\r\n");
    let body_at = out.len();
    own.write_body(out);
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(out.len() - body_at);
    if asked.is_head {
        out.truncate(body_at);
    }
    out.splice(length_at..length_at, digits.bytes());
}

/// Writes an answer of our own for HTTP/2.
pub(super) fn write_own_h2(own: &respond::Answer<'_>, asked: Asked, profiles: Profiles) -> Response<Vec<u8>> {
    let mut body = Vec::new();
    own.write_body(&mut body);
    let mut headers = HeaderMap::new();
    own.write_headers(&mut headers, profiles);
    if asked.has_origin {
        respond::expose(&mut headers, profiles);
    }
    headers.put("content-length", itoa::Buffer::new().format(body.len()));
    if asked.is_head {
        body.clear();
    }
    let mut response = Response::new(body);
    *response.status_mut() = own.status();
    *response.headers_mut() = headers;
    response
}

/// Writes an interim answer (RFC 9110, section 15.2).
pub(super) fn write_interim(out: &mut Vec<u8>, status: u16, reason: &[u8], fields: Fields<'_>) {
    let named = Named::by(fields);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    let is_length = |name: &[u8]| name.eq_ignore_ascii_case(b"content-length"); // RFC 9110, section 8.6
    fields.write_lines(out, |name| !hop::is_hop_by_hop(name) && !is_length(name) && !named.contains(name));
    out.extend_from_slice(b"\r\n");
}

/// Says what becomes of the connection, if that is not what the client takes for granted.
fn write_connection(out: &mut Vec<u8>, asked: Asked, keeps_alive: bool) {
    if !keeps_alive {
        out.extend_from_slice(b"connection: close\r\n");
    } else if asked.protocol == Protocol::Http10 {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
}
