//! The head of a request for the upstream, written from the parts of the client's head.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use smallvec::SmallVec;

use super::context::RequestContext;
use super::request::{HttpVersion, Request};
use super::service::RoutedRequest;
use super::settings::Settings;
use super::upgrade::Upgrade;
use crate::fields::Fields;
use crate::http1::Framing;
use crate::http1::encode::{Encoder, write_field};
use crate::http1::hop::{self, ConnectionOptions};
use crate::net::peer::Peer;
use crate::policy::client_ip::AddressHeader;
use crate::policy::forwarded;
use crate::upstream::location::LocationRewrite;
use crate::upstream::{Checkout, Exchange, RequestTraits};

/// The field with the key of a WebSocket handshake (RFC 6455, section 11.3.1).
const KEY: &[u8] = b"sec-websocket-key";

/// The peer that sent the request, and the client behind it.
struct Sender<'a> {
    /// Address of the peer; IPv4-mapped addresses are IPv4.
    peer: IpAddr,
    /// The address as text.
    peer_text: &'a str,
    /// Whether the peer uses TLS.
    is_tls: bool,
    /// The field in which a trusted proxy names its client; none of other peers.
    believed: Option<AddressHeader>,
    /// Address of the client: of the peer, or of the client behind a trusted proxy.
    client: IpAddr,
}

impl Sender<'_> {
    /// The scheme of the request.
    fn proto(&self) -> &'static [u8] {
        if self.is_tls { b"https" } else { b"http" }
    }

    /// Whether its X-Forwarded-* are forwarded.
    fn keeps_x(&self) -> bool {
        self.believed == Some(AddressHeader::XForwardedFor)
    }

    /// The client, if it differs from the peer.
    fn behind(&self) -> Option<IpAddr> {
        Some(self.client).filter(|client| *client != self.peer)
    }
}

/// The parts of the head that differ from the client's head.
struct HeadParts<'a> {
    /// The path for the upstream, in two parts.
    path: (&'a str, &'a str),
    /// The escaped query, without `?`.
    query: Option<&'a str>,
    /// The value of `Host`, if it is not the client's.
    own_host: Option<&'a str>,
    /// Host and port as sent; empty if there are none.
    authority: &'a str,
    /// The requested change of protocol.
    upgrade: Option<&'a Upgrade<'a>>,
    sender: Sender<'a>,
}

impl RequestContext<'_> {
    /// Begins the exchange with the upstream on the connection of `checkout`.
    pub(super) fn begin(
        &self,
        checkout: Checkout,
        request: &Request<'_>,
        admitted: &RoutedRequest<'_, '_>,
    ) -> Exchange {
        self.was_queued.set(checkout.was_queued);
        let settings = &self.config.running.settings;
        let &RoutedRequest { ref path, ref query, authority, believed, client, upstream, rewrite, ref upgrade, .. } =
            admitted;
        let Peer { ip, text, is_tls, .. } = self.peer;
        let sent = RequestTraits {
            is_head: request.method == Method::HEAD,
            has_body: !request.is_bodyless(),
            max_body: admitted.max_body,
            expects_continue: request.expects_continue(),
            may_repeat: request.is_bodyless() && request.method.is_safe(),
            may_switch: upgrade.is_some(),
            has_own_host: upstream.rewrites_host() || authority.is_empty(),
        };
        let mut requirements = admitted.requirements.clone();
        requirements.is_exclusive |= hop::authenticates_connection(request.fields);
        let exchange = Exchange::new(upstream, checkout, sent, requirements, &settings.timeouts, |out, host| {
            let sender = Sender { peer: *ip, peer_text: text, is_tls: *is_tls, believed, client };
            let path = rewrite.map_or(("", &**path), |rewrite| rewrite.apply(path));
            let own_host = Some(host).filter(|_| sent.has_own_host);
            let parts =
                HeadParts { path, query: query.as_deref(), own_host, authority, upgrade: upgrade.as_deref(), sender };
            write_head(out, request, &parts, settings)
        });
        match rewrite.filter(|rewrite| rewrite.locations) {
            None => exchange,
            Some(rewrite) => {
                exchange.with_locations(LocationRewrite { rewrite: Arc::clone(rewrite), authority: authority.into() })
            }
        }
    }
}

/// Writes the head to `out`, and returns the encoder of the body.
fn write_head(out: &mut Vec<u8>, request: &Request<'_>, parts: &HeadParts<'_>, settings: &Settings) -> Encoder {
    let HeadParts { path: (start, rest), query, own_host, authority, upgrade, sender } = parts;
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(rest.as_bytes());
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_field(out, b"host", own_host.unwrap_or(authority).as_bytes());

    let named = ConnectionOptions::of(request.fields);
    let has_key = upgrade.is_some_and(|upgrade| upgrade.key.is_some());
    let is_key = |name: &[u8]| has_key && name.eq_ignore_ascii_case(KEY);
    let (version, keeps_x) = (request.version, sender.keeps_x());
    request.fields.write_lines(out, |name| {
        !hop::is_hop_by_hop(name) && !is_ours(name, version, keeps_x) && !named.contains(name) && !is_key(name)
    });
    if version == HttpVersion::Http2 {
        join_cookies(out, request.fields);
    }
    if let Some(Upgrade { protocol, key, .. }) = upgrade {
        out.extend_from_slice(b"connection: upgrade\r\n");
        write_field(out, b"upgrade", protocol.as_bytes());
        if let Some(key) = key {
            write_field(out, KEY, key);
        }
    } else if hop::takes_trailers(request.fields) {
        out.extend_from_slice(b"te: trailers\r\nconnection: te\r\n");
    }
    let encoder = match request.framing {
        Framing::Chunked => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Encoder::chunked(request.fields, true)
        }
        // The number, not its spelling: another reader may parse `010` as 8.
        Framing::Length(length) if length > 0 || request.fields.contains("content-length") => {
            write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
            Encoder::Raw
        }
        _ => Encoder::Raw,
    };
    write_forwarded(out, request.fields, authority, sender, settings.forwarded);
    out.extend_from_slice(b"\r\n");
    encoder
}

/// Whether a field is not copied: Weir writes it, or does not trust it.
#[inline]
fn is_ours(name: &[u8], version: HttpVersion, keeps_x: bool) -> bool {
    let is = |lower: &[u8]| name.eq_ignore_ascii_case(lower);
    match name.len() {
        4 => is(b"host"),
        6 if version == HttpVersion::Http2 => is(b"cookie"),
        6 if version == HttpVersion::Http10 => is(b"expect"), // RFC 9110, section 10.1.1
        9 => is(b"forwarded"),
        14 => is(b"content-length"),
        15 => is(b"x-forwarded-for"),
        16 => !keeps_x && is(b"x-forwarded-host"),
        17 => !keeps_x && is(b"x-forwarded-proto"),
        _ => false,
    }
}

/// Joins the cookie fields that HTTP/2 may split (RFC 9113, section 8.2.3).
fn join_cookies(out: &mut Vec<u8>, fields: Fields<'_>) {
    let mut lines = fields.all("cookie");
    if let Some(first) = lines.next() {
        out.extend_from_slice(b"cookie: ");
        out.extend_from_slice(first);
        for line in lines {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(line);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes X-Forwarded-* and Forwarded. Values that are not trusted are replaced, not continued. A trusted proxy
/// forwards unchanged what it does not write itself, so its other fields are replaced, too.
fn write_forwarded(out: &mut Vec<u8>, fields: Fields<'_>, authority: &str, sender: &Sender<'_>, rfc7239: bool) {
    out.extend_from_slice(b"x-forwarded-for: ");
    let keeps_x = sender.keeps_x();
    if keeps_x {
        write_x_members(out, fields);
    } else if let Some(client) = sender.behind() {
        let _ = write!(out, "{client}, ");
    }
    out.extend_from_slice(sender.peer_text.as_bytes());
    out.extend_from_slice(b"\r\n");
    if !keeps_x || !fields.contains("x-forwarded-proto") {
        write_field(out, b"x-forwarded-proto", sender.proto());
    }
    if !authority.is_empty() && (!keeps_x || !fields.contains("x-forwarded-host")) {
        write_field(out, b"x-forwarded-host", authority.as_bytes());
    }
    if rfc7239 {
        out.extend_from_slice(b"forwarded: ");
        if sender.believed == Some(AddressHeader::Forwarded) {
            write_elements(out, fields);
        } else if let Some(client) = sender.behind() {
            write_node(out, client);
            out.extend_from_slice(b", ");
        }
        write_element(out, sender, authority);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes the members of X-Forwarded-For, ready for one more. Only the client can have written bytes that are not
/// ASCII. Such a member is dropped; what proxies added to the field stays.
fn write_x_members(out: &mut Vec<u8>, fields: Fields<'_>) {
    for member in fields.members("x-forwarded-for").filter(|member| !member.is_empty() && member.is_ascii()) {
        out.extend_from_slice(member);
        out.extend_from_slice(b", ");
    }
}

/// Writes the well-formed elements of Forwarded, ready for one more.
fn write_elements(out: &mut Vec<u8>, fields: Fields<'_>) {
    for line in fields.all("forwarded") {
        let from_the_right: SmallVec<[&[u8]; 8]> = forwarded::well_formed(line).collect();
        for element in from_the_right.iter().rev() {
            out.extend_from_slice(element);
            out.extend_from_slice(b", ");
        }
    }
}

/// Writes Weir's element (RFC 7239, section 4). IPv6 addresses and hosts are quoted. A write to memory does not fail.
fn write_element(out: &mut Vec<u8>, sender: &Sender<'_>, host: &str) {
    write_node(out, sender.peer);
    if !host.is_empty() {
        let _ = write!(out, ";host=\"{host}\"");
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(sender.proto());
}

fn write_node(out: &mut Vec<u8>, ip: IpAddr) {
    let _ = match ip {
        IpAddr::V4(ip) => write!(out, "for={ip}"),
        IpAddr::V6(ip) => write!(out, "for=\"[{ip}]\""),
    };
}
