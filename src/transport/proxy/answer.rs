//! Writers of response heads: of the upstream's responses, and of Weir's own.

use http::Method;

use super::date::Date;
use super::request::{HttpVersion, Request};
use crate::base::fields::{FieldBuf, Fields};
use crate::engine::gate::{Budgets, Standing};
use crate::transport::http1::encode::{Encoder, Trailers, write_field};
use crate::transport::http1::hop::{self, ConnectionOptions};
use crate::transport::http1::{Framing, ResponseHead};
use crate::transport::http2::Block;
use crate::transport::respond::{self, Disposition, HeaderSink, Profiles, Reply};
use crate::transport::upstream::location::{self, LocationRewrite};

/// The properties of a request that decide the form of its response.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent properties
pub(super) struct ResponseForm {
    pub(super) version: HttpVersion,
    pub(super) is_head: bool,
    /// It has an Origin, so that a script in a browser may have sent it.
    pub(super) has_origin: bool,
    pub(super) is_grpc: bool,
    takes_trailers: bool,
    /// The client wants to keep the connection.
    pub(super) keeps_alive: bool,
}

impl ResponseForm {
    /// The traits of `request`.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let fields = request.fields;
        let keeps_alive = match request.version {
            HttpVersion::Http10 => hop::connection_says(fields, b"keep-alive"),
            _ => !hop::connection_says(fields, b"close"),
        };
        Self {
            version: request.version,
            is_head: request.method == Method::HEAD,
            has_origin: fields.contains("origin"),
            is_grpc: respond::is_grpc(&request.method, fields),
            takes_trailers: hop::takes_trailers(fields),
            keeps_alive,
        }
    }

    /// The traits of a request whose head is refused.
    pub(super) fn unreadable() -> Self {
        Self {
            version: HttpVersion::Http11,
            is_head: false,
            has_origin: false,
            is_grpc: false,
            takes_trailers: false,
            keeps_alive: false,
        }
    }
}

/// The head of a response from the upstream.
pub(super) struct UpstreamResponse<'a> {
    pub(super) head: &'a ResponseHead,
    /// The bytes of the reason in `head`.
    pub(super) reason: &'a [u8],
    pub(super) fields: Fields<'a>,
    /// The standing of the client at the tightest limit.
    pub(super) standing: Option<&'a Standing<'a>>,
    /// The budgets to list.
    pub(super) budgets: Budgets<'a>,
    pub(super) profiles: Profiles,
    /// The rewrite of locations, and the name of the endpoint.
    pub(super) back: Option<(&'a LocationRewrite, &'a str)>,
}

impl<'a> UpstreamResponse<'a> {
    /// Whether a field of the upstream is forwarded, by name. Hop-by-hop fields, and those that Weir writes, are not.
    fn passes(&self) -> impl Fn(&[u8]) -> bool + use<'a> {
        let (named, profiles, is_limited) =
            (ConnectionOptions::of(self.fields), self.profiles, self.standing.is_some());
        let is_turned = self.back.is_some();
        let is_retired = self.budgets.iter().any(|budget| budget.retirement().is_some());
        move |name| {
            !(hop::is_hop_by_hop(name)
                || name.eq_ignore_ascii_case(b"content-length")
                || (is_limited && respond::is_limit_header(profiles, name))
                || (is_retired && respond::is_retirement_header(name))
                || (is_turned && location::is_location(name))
                || named.contains(name))
        }
    }

    /// Writes the fields about limits.
    pub(super) fn write_limits(&self, form: ResponseForm, sink: &mut impl HeaderSink) {
        if let Some(standing) = self.standing {
            respond::limit_headers(sink, self.profiles, standing, &self.budgets, Disposition::Forwarded);
        }
        if form.has_origin {
            respond::expose(sink, self.profiles);
        }
    }

    /// The fields that the client gets, without those of Weir.
    pub(super) fn forwarded_fields(&self) -> FieldBuf {
        let (passes, mut forwarded) = (self.passes(), FieldBuf::default());
        for (name, value) in
            self.fields.iter().filter(|(name, _)| passes(name) && !name.eq_ignore_ascii_case(b"trailer"))
        {
            forwarded.push(name, value);
        }
        if let Some((back, host)) = self.back {
            back.each(self.fields, host, |name, value| forwarded.push(name, value));
        }
        forwarded
    }

    /// Writes the status line, the forwarded fields, and the parsed length.
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

    /// Writes the head for HTTP/1 as a switch to `protocol`.
    pub(super) fn write_switch(&self, out: &mut Vec<u8>, form: ResponseForm, protocol: &str, date: &Date) {
        self.write_begin(out);
        if !self.fields.contains("date") {
            date.write(out);
        }
        out.extend_from_slice(b"connection: upgrade\r\n");
        write_field(out, b"upgrade", protocol.as_bytes());
        self.write_limits(form, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the head for HTTP/1, and returns the encoder of the body. Sets `keeps_alive` to false if the end of the
    /// connection ends the body.
    pub(super) fn write_h1(
        &self,
        out: &mut Vec<u8>,
        form: ResponseForm,
        date: &Date,
        keeps_alive: &mut bool,
    ) -> Encoder {
        self.write_begin(out);
        let has_length = matches!(self.head.framing, Framing::Length(_));
        let encoder = if has_length || form.version == HttpVersion::Http10 {
            *keeps_alive &= has_length;
            Encoder::Raw
        } else {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Encoder::Chunked(if form.takes_trailers { Trailers::All } else { Trailers::None })
        };
        if !self.fields.contains("date") {
            date.write(out);
        }
        write_connection(out, form, *keeps_alive);
        self.write_limits(form, out);
        out.extend_from_slice(b"\r\n");
        encoder
    }

    /// Writes its fields for HTTP/2, without those about limits. A response that accepts a tunnel has no handshake there
    /// (RFC 8441, section 5).
    pub(super) fn write_h2(&self, block: &mut Block<'_>, is_tunnel: bool) {
        let passes = self.passes();
        let is_handshake = |name: &[u8]| is_tunnel && name.eq_ignore_ascii_case(b"sec-websocket-accept");
        for (name, value) in self.fields.iter().filter(|(name, _)| passes(name) && !is_handshake(name)) {
            block.field(name, value);
        }
        if let Some(length) = self.head.length {
            block.field(b"content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        if let Some((back, host)) = self.back {
            back.each(self.fields, host, |name, value| block.field(name, value));
        }
    }
}

/// Writes a response of Weir for HTTP/1, with its body. Returns the length of the body.
pub(super) fn write_own_h1(
    out: &mut Vec<u8>,
    own: &impl Reply,
    form: ResponseForm,
    profiles: Profiles,
    date: &Date,
    keeps_alive: bool,
) -> usize {
    let status = own.status();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
    own.write_headers(out, profiles);
    if form.has_origin {
        respond::expose(out, profiles);
    }
    date.write(out);
    write_connection(out, form, keeps_alive);
    // The length is inserted once the body is written.
    out.extend_from_slice(b"content-length: ");
    let length_at = out.len();
    out.extend_from_slice(b"\r\n\r\n");
    let body_at = out.len();
    own.write_body(out);
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(out.len() - body_at);
    if form.is_head {
        out.truncate(body_at);
    }
    let written = out.len() - body_at;
    out.extend_from_slice(digits.as_bytes());
    out[length_at..].rotate_right(digits.len());
    written
}

/// Writes an interim response (RFC 9110, section 15.2).
pub(super) fn write_interim(out: &mut Vec<u8>, status: u16, reason: &[u8], fields: Fields<'_>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    fields.write_lines(out, interim_fields(fields));
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields of an interim response for HTTP/2.
pub(super) fn write_interim_h2(block: &mut Block<'_>, fields: Fields<'_>) {
    let passes = interim_fields(fields);
    fields.iter().filter(|(name, _)| passes(name)).for_each(|(name, value)| block.field(name, value));
}

/// Selects the fields of an interim response that are passed on. It has no length (RFC 9110, section 8.6).
fn interim_fields(fields: Fields<'_>) -> impl Fn(&[u8]) -> bool {
    let named = ConnectionOptions::of(fields);
    move |name| !hop::is_hop_by_hop(name) && !name.eq_ignore_ascii_case(b"content-length") && !named.contains(name)
}

/// Writes Connection if it differs from the default of the version.
pub(super) fn write_connection(out: &mut Vec<u8>, form: ResponseForm, keeps_alive: bool) {
    if !keeps_alive {
        out.extend_from_slice(b"connection: close\r\n");
    } else if form.version == HttpVersion::Http10 {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
}
