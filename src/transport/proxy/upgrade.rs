//! The change of a connection to another protocol (RFC 9110, section 7.8): request and agreement.
//!
//! A request is forwarded as an upgrade only if the configuration allows the protocol. The 101 of the upstream is
//! accepted only if it matches the request.
//!
//! Not here: the bytes after the change.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;

use super::settings::Settings;
use crate::base::fields::Fields;
use crate::transport::http1::hop;
use crate::transport::upstream::{Exchange, ExchangeError};

const WEBSOCKET: &str = "websocket";
/// The suffix that a server appends to the key of a handshake (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key, and its length in base64.
const NONCE_LEN: usize = 16;
const KEY_LEN: usize = 24;
/// Length of a SHA-1 in base64.
const ACCEPT_LEN: usize = 28;

/// A change of protocol that is forwarded to the upstream.
#[derive(Clone, Debug)]
pub(super) struct Upgrade<'v> {
    /// The name of the protocol in the configuration.
    pub(super) protocol: &'v str,
    /// The required value of Sec-WebSocket-Accept, if it is a WebSocket.
    pub(super) accept: Option<[u8; ACCEPT_LEN]>,
    /// The key of the handshake, if Weir made it.
    pub(super) key: Option<[u8; KEY_LEN]>,
}

impl Upgrade<'static> {
    /// The protocol of an extended CONNECT (RFC 8441, section 4). HTTP/2 has no handshake, so Weir makes one. None if
    /// no route allows the protocol; whether the route of the request does is checked later.
    pub(super) fn connect(protocol: &str, settings: &Settings) -> Option<Box<Self>> {
        if takes_connect(settings) { Self::handshake(protocol) } else { None }
    }

    pub(super) fn handshake(protocol: &str) -> Option<Box<Self>> {
        if protocol != WEBSOCKET {
            return None;
        }
        let (mut nonce, mut key) = ([0; NONCE_LEN], [0; KEY_LEN]);
        getrandom::fill(&mut nonce).ok()?;
        STANDARD.encode_slice(nonce, &mut key).ok()?;
        Some(Box::new(Self { protocol: WEBSOCKET, accept: Some(accept(&key)?), key: Some(key) }))
    }
}

/// Whether HTTP/2 clients may send an extended CONNECT.
pub(super) fn takes_connect(settings: &Settings) -> bool {
    let name = WEBSOCKET.as_bytes();
    settings.upstreams.iter().any(|upstream| upstream.upgrades.find(name).is_some())
        || settings.routes.as_ref().is_some_and(|routes| routes.allow_upgrade(name))
}

impl<'v> Upgrade<'v> {
    /// The change to `protocol` in a request with these fields. None if it is a WebSocket without a valid handshake.
    pub(super) fn new(protocol: &'v str, method: &Method, fields: Fields<'_>) -> Option<Self> {
        let accept = if protocol == WEBSOCKET { Some(accept_of(method, fields)?) } else { None };
        Some(Self { protocol, accept, key: None })
    }

    /// Whether the fields of a 101 agree to this change.
    fn is_confirmed_by(&self, fields: Fields<'_>) -> bool {
        let is = |found: &[u8], wanted: &[u8]| found.eq_ignore_ascii_case(wanted);
        hop::connection_says(fields, b"upgrade")
            && is_only(fields.members("upgrade"), |found| is(found, self.protocol.as_bytes()))
            && self.accept.is_none_or(|accept| is_only(fields.all("sec-websocket-accept"), |found| found == accept))
    }
}

/// Checks the 101 of the exchange against the request, and returns the protocol.
///
/// # Errors
///
/// If the 101 does not match.
pub(super) fn confirm<'v>(upgrade: Option<&Upgrade<'v>>, exchange: &Exchange) -> Result<&'v str, ExchangeError> {
    let fields = exchange.response().map_or(Fields::NONE, |(_, _, fields)| fields);
    let confirmed = upgrade.filter(|upgrade| upgrade.is_confirmed_by(fields));
    exchange.record_switch(confirmed.is_some());
    confirmed.map(|upgrade| upgrade.protocol).ok_or(ExchangeError::Switched)
}

fn is_only<'b>(mut all: impl Iterator<Item = &'b [u8]>, is_it: impl Fn(&[u8]) -> bool) -> bool {
    all.next().is_some_and(is_it) && all.next().is_none()
}

/// The answer to the key of a handshake; none if the handshake is invalid (RFC 6455, section 4.2.1).
fn accept_of(method: &Method, fields: Fields<'_>) -> Option<[u8; ACCEPT_LEN]> {
    let mut keys = fields.all("sec-websocket-key");
    let key = keys
        .next()
        .filter(|key| key.len() == KEY_LEN && STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == NONCE_LEN))?;
    if method != Method::GET || keys.next().is_some() {
        return None;
    }
    accept(key)
}

fn accept(key: &[u8]) -> Option<[u8; ACCEPT_LEN]> {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    let mut accept = [0; ACCEPT_LEN];
    let len = STANDARD.encode_slice(hash, &mut accept).ok()?;
    (len == ACCEPT_LEN).then_some(accept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn fields(lines: &str) -> FieldBuf {
        let lines = lines.split(" | ").filter_map(|line| line.split_once(':'));
        lines.map(|(name, value)| (name, value.trim())).collect()
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn a_101_must_match() {
        let requested = fields(&format!("connection: upgrade | upgrade: websocket | {KEY}"));
        let upgrade = Upgrade::new("websocket", &Method::GET, requested.fields()).unwrap();
        let good = format!("connection: Upgrade | upgrade: WebSocket | {ACCEPT}");
        let rows = [
            (good.clone(), true),
            (good.replace("connection: Upgrade | ", ""), false),
            (good.replace("connection: Upgrade", "connection: keep-alive"), false),
            (good.replace("upgrade: WebSocket | ", ""), false),
            (good.replace("WebSocket", "x"), false),
            (good.replace("WebSocket", "websocket, x"), false),
            (format!("{good} | upgrade: websocket"), false),
            (good.replace("s3p", "S3p"), false),
            (format!("{good} | {ACCEPT}"), false),
            ("connection: upgrade | upgrade: websocket".to_owned(), false),
        ];
        for (lines, expected) in rows {
            assert_eq!(upgrade.is_confirmed_by(fields(&lines).fields()), expected, "{lines}");
        }
    }
}
