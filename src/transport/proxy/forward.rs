//! The head of a request as the upstream gets it, described by the parts of the client's request.

use std::io::Write;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;
use smallvec::SmallVec;

use super::context::RequestContext;
use super::own_fields::is_ours;
use super::replay::Replayed;
use super::request::{HttpVersion, Request};
use super::request_id::REQUEST_ID;
use super::service::RoutedRequest;
use super::trace_context::{self, TRACEPARENT, TRACESTATE};
use super::upgrade::Upgrade;
use crate::base::fields::Fields;
use crate::engine::policy::client_ip::AddressHeader;
use crate::engine::policy::forwarded;
use crate::transport::http1::Framing;
use crate::transport::http1::encode::{Encoder, Trailers};
use crate::transport::http1::hop::{self, ConnectionOptions};
use crate::transport::upstream::location::LocationRewrite;
use crate::transport::upstream::{Checkout, Exchange, FieldWriter, RequestHead, RequestTraits};

/// The key of a WebSocket handshake (RFC 6455, section 11.3.1).
const KEY: &[u8] = b"sec-websocket-key";

/// The encodings of a response that the client takes (RFC 9110, section 12.5.3).
const ACCEPT_ENCODING: &[u8] = b"accept-encoding";

/// The head of an admitted request as the upstream gets it.
pub(super) struct ForwardedHead<'a, 'v> {
    pub(super) context: &'a RequestContext<'v>,
    pub(super) request: &'a Request<'a>,
    pub(super) admitted: &'a RoutedRequest<'a, 'v>,
}

impl RequestContext<'_> {
    /// Begins the exchange with the upstream on the connection of `checkout`.
    pub(super) fn begin(
        &self,
        checkout: Checkout,
        head: &ForwardedHead<'_, '_>,
        source: &mut impl Replayed,
    ) -> Exchange {
        self.was_queued.set(checkout.was_queued);
        let &ForwardedHead { request, admitted, .. } = head;
        let traits = RequestTraits {
            is_head: request.method == Method::HEAD,
            has_body: !request.is_bodyless(),
            max_body: admitted.max_body,
            added_bytes: admitted.added_bytes,
            expects_continue: request.expects_continue() && source.expect_continue(),
            may_retry: request.is_bodyless() && request.method.is_safe(),
            may_switch: admitted.upgrade.is_some(),
            authenticates_connection: admitted.authenticates_connection && admitted.upgrade.is_none(),
            passes_trailers: !request.is_bodyless() && head.passes_trailers(),
        };
        let mut requirements = admitted.requirements.clone();
        requirements.is_exclusive |= admitted.authenticates_connection;
        let timeouts = Rc::clone(&self.config.timeouts);
        let exchange = Exchange::new(&admitted.upstream, checkout, head, traits, requirements, timeouts);
        match admitted.rewrite.filter(|rewrite| rewrite.locations) {
            None => exchange,
            Some(rewrite) => {
                let (rewrite, authority) = (Arc::clone(rewrite), admitted.authority.into());
                exchange.with_locations(LocationRewrite { rewrite, authority })
            }
        }
    }
}

impl RequestHead for ForwardedHead<'_, '_> {
    fn method(&self) -> &Method {
        &self.request.method
    }

    fn write_target(&self, out: &mut Vec<u8>) {
        let RoutedRequest { path, query, rewrite, .. } = self.admitted;
        let (start, rest) = rewrite.map_or(("", &**path), |rewrite| rewrite.apply(path));
        out.extend_from_slice(start.as_bytes());
        out.extend_from_slice(rest.as_bytes());
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
    }

    fn authority(&self) -> Option<&str> {
        let RoutedRequest { authority, upstream, .. } = self.admitted;
        Some(*authority).filter(|authority| !upstream.rewrites_host() && !authority.is_empty())
    }

    fn write_fields(&self, out: &mut impl FieldWriter) -> Encoder {
        let Self { context, request, admitted } = *self;
        let (id, trace, upgrade) = (context.id(), context.trace.get(), admitted.upgrade.as_deref());
        let identity_headers = &context.config.running.live.policy.identity_headers;
        let named = ConnectionOptions::of(request.fields);
        let has_key = upgrade.is_some_and(|upgrade| upgrade.key.is_some());
        let is_key = |name: &[u8]| has_key && name.eq_ignore_ascii_case(KEY);
        let (version, keeps_x) = (request.version, self.keeps_x());
        out.copy(request.fields, |name| {
            !hop::is_hop_by_hop(name)
                && !is_ours(name, version, keeps_x)
                && (!named.contains(name) || context.is_read(name))
                && !is_key(name)
                && !identity_headers.iter().any(|header| header.is_read_from(name))
                && !self.is_replaced(name)
        });
        for (name, value) in &admitted.identity_fields {
            out.field(name.as_str().as_bytes(), value);
        }
        if let Some(id) = id {
            out.field(REQUEST_ID.as_bytes(), id.as_bytes());
        }
        if let Some(trace) = trace {
            out.field_with(TRACEPARENT.as_bytes(), |out| trace_context::write(out, &trace));
        }
        if admitted.reads_body {
            out.field(ACCEPT_ENCODING, b"identity");
        }
        if version == HttpVersion::Http2 {
            join_cookies(out, request.fields);
        }
        if let Some(Upgrade { protocol, key, .. }) = upgrade {
            out.connection_field(b"connection", b"upgrade");
            out.connection_field(b"upgrade", protocol.as_bytes());
            if let Some(key) = key {
                out.field(KEY, key);
            }
        } else if hop::takes_trailers(request.fields) {
            out.field(b"te", b"trailers");
            out.connection_field(b"connection", b"te");
        }
        let encoder = match request.framing {
            Framing::Chunked => {
                out.connection_field(b"transfer-encoding", b"chunked");
                // A service of HTTP/1 cannot say that it accepts trailers.
                let trailers =
                    if self.passes_trailers() { Trailers::announced(request.fields) } else { Trailers::None };
                Encoder::Chunked(trailers)
            }
            // The number, not its spelling: another reader may take `010` for 8.
            Framing::Length(length) if length > 0 || request.fields.contains("content-length") => {
                out.field(
                    b"content-length",
                    itoa::Buffer::new().format(length.saturating_add_signed(admitted.added_bytes)).as_bytes(),
                );
                Encoder::Raw
            }
            _ => Encoder::Raw,
        };
        self.write_forwarded(out);
        encoder
    }
}

impl ForwardedHead<'_, '_> {
    /// Whether trailers are passed on. A service may merge them into the header, and take one for an identity or a plan.
    fn passes_trailers(&self) -> bool {
        let policy = &self.context.config.running.live.policy;
        policy.identity_headers.is_empty()
            && !policy.read_headers().any(|name| hop::may_trail(name.as_str().as_bytes()))
    }

    /// Whether an id, a trace or another field of Weir stands in place of this field. The state of a trace that Weir has
    /// begun would be that of another one.
    #[inline]
    fn is_replaced(&self, name: &[u8]) -> bool {
        let is = |lower: &str| name.eq_ignore_ascii_case(lower.as_bytes());
        match name.len() {
            10 => is(TRACESTATE) && self.context.trace.get().is_some_and(|trace| trace.parent == 0),
            11 => is(TRACEPARENT) && self.context.trace.get().is_some(),
            12 => is(REQUEST_ID) && self.context.id().is_some(),
            15 => self.admitted.reads_body && name.eq_ignore_ascii_case(ACCEPT_ENCODING),
            _ => false,
        }
    }

    /// Writes the fields that name the client. Untrusted values are replaced. Of a trusted proxy only the field in
    /// `believed` is continued: it may pass on other fields as its client wrote them.
    fn write_forwarded(&self, out: &mut impl FieldWriter) {
        let (fields, authority, keeps_x) = (self.request.fields, self.admitted.authority, self.keeps_x());
        out.field_with(b"x-forwarded-for", |out| {
            if keeps_x {
                write_x_members(out, fields);
            } else if let Some(client) = self.client_behind_proxy() {
                let _ = write!(out, "{client}, ");
            }
            out.extend_from_slice(self.context.peer.text.as_bytes());
        });
        if !keeps_x || !fields.contains("x-forwarded-proto") {
            out.field(b"x-forwarded-proto", self.proto());
        }
        if !authority.is_empty() && (!keeps_x || !fields.contains("x-forwarded-host")) {
            out.field(b"x-forwarded-host", authority.as_bytes());
        }
        if self.context.config.running.settings.forwarded {
            out.field_with(b"forwarded", |out| {
                if self.admitted.believed == Some(AddressHeader::Forwarded) {
                    write_elements(out, fields);
                } else if let Some(client) = self.client_behind_proxy() {
                    write_node(out, client);
                    out.extend_from_slice(b", ");
                }
                self.write_element(out);
            });
        }
    }

    /// Our element (RFC 7239, section 4): IPv6 addresses and hosts are quoted. Writing to memory does not fail.
    fn write_element(&self, out: &mut Vec<u8>) {
        write_node(out, self.context.peer.ip);
        if !self.admitted.authority.is_empty() {
            let _ = write!(out, ";host=\"{}\"", self.admitted.authority);
        }
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(self.proto());
    }

    /// The scheme of the request.
    fn proto(&self) -> &'static [u8] {
        if self.context.peer.is_tls { b"https" } else { b"http" }
    }

    /// Whether the X-Forwarded-* fields of the peer are passed on.
    fn keeps_x(&self) -> bool {
        self.admitted.believed == Some(AddressHeader::XForwardedFor)
    }

    /// The client's address, if the peer is a proxy.
    fn client_behind_proxy(&self) -> Option<IpAddr> {
        Some(self.admitted.client).filter(|client| *client != self.context.peer.ip)
    }
}

/// Joins the lines into which HTTP/2 may split cookies (RFC 9113, section 8.2.3).
fn join_cookies(out: &mut impl FieldWriter, fields: Fields<'_>) {
    let mut lines = fields.all("cookie");
    if let Some(first) = lines.next() {
        out.field_with(b"cookie", |out| {
            out.extend_from_slice(first);
            for line in lines {
                out.extend_from_slice(b"; ");
                out.extend_from_slice(line);
            }
        });
    }
}

/// The members of X-Forwarded-For, ready for one more. Only the client can have written bytes that are not ASCII, so
/// such a member is dropped; what proxies added to its line stays.
fn write_x_members(out: &mut Vec<u8>, fields: Fields<'_>) {
    for member in fields.members("x-forwarded-for").filter(|member| !member.is_empty() && member.is_ascii()) {
        out.extend_from_slice(member);
        out.extend_from_slice(b", ");
    }
}

/// The well-formed elements of Forwarded, ready for one more.
fn write_elements(out: &mut Vec<u8>, fields: Fields<'_>) {
    for line in fields.all("forwarded") {
        let from_the_right: SmallVec<[&[u8]; 8]> = forwarded::well_formed(line).collect();
        for element in from_the_right.iter().rev() {
            out.extend_from_slice(element);
            out.extend_from_slice(b", ");
        }
    }
}

fn write_node(out: &mut Vec<u8>, ip: IpAddr) {
    let _ = match ip {
        IpAddr::V4(ip) => write!(out, "for={ip}"),
        IpAddr::V6(ip) => write!(out, "for=\"[{ip}]\""),
    };
}
