//! The change of a connection to another protocol (RFC 9110, section 7.8), as it is asked for and agreed to.
//!
//! What a client asks for is sent on only if the configuration allows it. What the upstream answers is believed only
//! if it fits that. Not here: the bytes that flow afterwards.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::request::{Protocol, Request};
use super::settings::Settings;
use crate::fields::Fields;
use crate::http1::hop;
use crate::policy::upgrades::Upgrades;
use crate::upstream::{Exchange, ExchangeError};

const WEBSOCKET: &str = "websocket";
/// What a server adds to the key of a handshake (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key, and how long they are in base64.
const NONCE_LEN: usize = 16;
const KEY_LEN: usize = 24;
/// Base64 of a SHA-1.
const ACCEPT_LEN: usize = 28;

/// A change of protocol that goes on to the upstream.
#[derive(Clone, Debug)]
pub(super) struct Upgrade<'v> {
    /// As the configuration names it.
    pub(super) protocol: &'v str,
    /// What the upstream must say if it is a WebSocket.
    accept: Option<[u8; ACCEPT_LEN]>,
    /// The key of the handshake, if that is ours and not the client's.
    pub(super) key: Option<[u8; KEY_LEN]>,
}

impl Upgrade<'static> {
    /// What an extended CONNECT asks for (RFC 8441, section 4), with a handshake of our own: HTTP/2 has none.
    /// None if it cannot be had anywhere; whether its route allows it is seen later.
    pub(super) fn connect(protocol: &str, settings: &Settings) -> Option<Box<Self>> {
        if takes_connect(settings) { Self::handshake(protocol) } else { None }
    }

    fn handshake(protocol: &str) -> Option<Box<Self>> {
        if protocol != WEBSOCKET {
            return None;
        }
        let (mut nonce, mut key) = ([0; NONCE_LEN], [0; KEY_LEN]);
        getrandom::fill(&mut nonce).ok()?;
        STANDARD.encode_slice(nonce, &mut key).ok()?;
        Some(Box::new(Self { protocol: WEBSOCKET, accept: Some(accept(&key)?), key: Some(key) }))
    }
}

/// Whether clients that speak HTTP/2 are told that they may ask.
pub(super) fn takes_connect(settings: &Settings) -> bool {
    let name = WEBSOCKET.as_bytes();
    settings.upstreams.iter().any(|upstream| upstream.upgrades.find(name).is_some())
        || settings.routes.as_ref().is_some_and(|routes| routes.allow_upgrade(name))
}

impl<'v> Upgrade<'v> {
    /// The first of those that a request asks for and may have; none if it must go on as any other request.
    #[inline]
    pub(super) fn of(request: &Request<'_>, allowed: &'v Upgrades) -> Option<Box<Self>> {
        if allowed.is_empty() { None } else { request.connect.clone().or_else(|| Self::asked(request, allowed)) }
    }

    /// Whether the request is a CONNECT to what may not be had here, so that it is no request at all.
    pub(super) fn is_refused(request: &Request<'_>, allowed: &Upgrades) -> bool {
        request.connect.as_ref().is_some_and(|connect| allowed.find(connect.protocol.as_bytes()).is_none())
    }

    /// A body could be taken for the new protocol, and the other way round; so a request with one changes nothing.
    fn asked(request: &Request<'_>, allowed: &'v Upgrades) -> Option<Box<Self>> {
        let fields = request.fields;
        let may = request.protocol == Protocol::Http11 && request.is_bodyless();
        if !may || !hop::connection_says(fields, b"upgrade") {
            return None;
        }
        let protocol = fields.members("upgrade").find_map(|wanted| allowed.find(wanted))?;
        let accept = if protocol == WEBSOCKET { Some(accept_of(request)?) } else { None };
        Some(Box::new(Self { protocol, accept, key: None }))
    }

    /// Whether these fields of a 101 agree to it.
    fn is_confirmed_by(&self, fields: Fields<'_>) -> bool {
        let is = |found: &[u8], wanted: &[u8]| found.eq_ignore_ascii_case(wanted);
        hop::connection_says(fields, b"upgrade")
            && is_only(fields.members("upgrade"), |found| is(found, self.protocol.as_bytes()))
            && self.accept.is_none_or(|accept| is_only(fields.all("sec-websocket-accept"), |found| found == accept))
    }
}

/// Holds the 101 that has come against what was asked for. Gives the protocol if it fits.
pub(super) fn confirm<'v>(upgrade: Option<&Upgrade<'v>>, exchange: &Exchange) -> Result<&'v str, ExchangeError> {
    let fields = exchange.response().map_or(Fields::NONE, |(_, _, fields)| fields);
    let confirmed = upgrade.filter(|upgrade| upgrade.is_confirmed_by(fields));
    exchange.judge_switch(confirmed.is_some());
    confirmed.map(|upgrade| upgrade.protocol).ok_or(ExchangeError::Switched)
}

fn is_only<'b>(mut all: impl Iterator<Item = &'b [u8]>, is_it: impl Fn(&[u8]) -> bool) -> bool {
    all.next().is_some_and(is_it) && all.next().is_none()
}

/// The answer to the one key of a handshake; none if there is no handshake (RFC 6455, section 4.2.1).
fn accept_of(request: &Request<'_>) -> Option<[u8; ACCEPT_LEN]> {
    let mut keys = request.fields.all("sec-websocket-key");
    let key = keys
        .next()
        .filter(|key| key.len() == KEY_LEN && STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == NONCE_LEN))?;
    if request.method != http::Method::GET || keys.next().is_some() {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use http::Method;

    use super::*;
    use crate::fields::FieldBuf;
    use crate::http1::Framing;
    use crate::proxy::request::Target;

    const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn fields(lines: &str) -> FieldBuf {
        let mut fields = FieldBuf::default();
        for (name, value) in lines.split(" | ").filter_map(|line| line.split_once(':')) {
            fields.push(name.as_bytes(), value.trim().as_bytes());
        }
        fields
    }

    fn request(fields: &FieldBuf) -> Request<'_> {
        Request {
            protocol: Protocol::Http11,
            method: Method::GET,
            target: Target { path: "/", query: None, authority: None, scheme: None },
            fields: fields.fields(),
            framing: Framing::Length(0),
            connect: None,
        }
    }

    fn allowed(names: &[&str]) -> Upgrades {
        Upgrades(names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn what_is_asked_for_goes_on_if_it_may() {
        let websocket = format!("connection: Upgrade | upgrade: WebSocket | {KEY}");
        let twice = format!("{websocket} | {KEY}");
        let short = websocket.replace("==", "");
        let not_base64 = websocket.replace("==", "!!");
        let listed = format!("connection: keep-alive, upgrade | upgrade: h2c, x/1, websocket | {KEY}");
        let rows: &[(&str, &[&str], Option<&str>)] = &[
            (&websocket, &["websocket"], Some("websocket")),
            (&websocket, &["x/1"], None),
            (&websocket, &[], None),
            (&listed, &["websocket"], Some("websocket")),
            (&listed, &["websocket", "x/1"], Some("x/1")),
            (&websocket.replace("connection: Upgrade", "connection: close"), &["websocket"], None),
            (&websocket.replace("connection: Upgrade | ", ""), &["websocket"], None),
            // Not the handshake that it says it is.
            ("connection: upgrade | upgrade: websocket", &["websocket"], None),
            (&twice, &["websocket"], None),
            (&short, &["websocket"], None),
            (&not_base64, &["websocket"], None),
            // The version is part of the name.
            ("connection: upgrade | upgrade: x/2", &["x/1", "x"], None),
            ("connection: upgrade | upgrade: X/1", &["x/1"], Some("x/1")),
        ];
        for (lines, names, expected) in rows {
            let (fields, allowed) = (fields(lines), allowed(names));
            let upgrade = Upgrade::of(&request(&fields), &allowed);
            assert_eq!(upgrade.map(|upgrade| upgrade.protocol), *expected, "{lines} of {names:?}");
        }
    }

    #[test]
    fn some_requests_change_nothing() {
        let (fields, allowed) =
            (fields(&format!("connection: upgrade | upgrade: websocket | {KEY}")), allowed(&["websocket"]));
        let is_upgrade = |change: &dyn Fn(&mut Request<'_>)| {
            let mut request = request(&fields);
            change(&mut request);
            Upgrade::of(&request, &allowed).is_some()
        };
        assert!(is_upgrade(&|_| {}));
        assert!(!is_upgrade(&|request| request.framing = Framing::Length(1)));
        assert!(!is_upgrade(&|request| request.framing = Framing::Chunked));
        assert!(!is_upgrade(&|request| request.protocol = Protocol::Http10));
        assert!(!is_upgrade(&|request| request.protocol = Protocol::Http2));
        assert!(!is_upgrade(&|request| request.method = Method::POST));
    }

    #[test]
    fn a_connect_has_a_handshake_of_its_own() {
        let allowed = allowed(&["x", "websocket"]);
        let [one, other] = [(); 2].map(|()| Upgrade::handshake("websocket").unwrap());
        assert_ne!(one.key, other.key);
        let key = String::from_utf8(one.key.unwrap().to_vec()).unwrap();
        let asked = fields(&format!("connection: upgrade | upgrade: websocket | sec-websocket-key: {key}"));
        assert_eq!(Upgrade::of(&request(&asked), &allowed).unwrap().accept, one.accept);
        assert!(Upgrade::handshake("x").is_none() && Upgrade::handshake("WebSocket").is_none());
    }

    /// It cannot go on as any other request, as an upgrade that is not allowed does.
    #[test]
    fn a_connect_is_refused_where_it_is_not_allowed() {
        let (fields, websocket) = (FieldBuf::default(), allowed(&["x", "websocket"]));
        let connect = Request { connect: Upgrade::handshake("websocket"), ..request(&fields) };
        for (request, allowed, is_refused) in [
            (&connect, &websocket, false),
            (&connect, &allowed(&["x"]), true),
            (&connect, &Upgrades::default(), true),
            (&request(&fields), &Upgrades::default(), false),
        ] {
            assert_eq!(Upgrade::is_refused(request, allowed), is_refused, "{allowed:?}");
        }
    }

    /// With the example of RFC 6455, section 1.3.
    #[test]
    fn an_answer_must_fit() {
        let asked = fields(&format!("connection: upgrade | upgrade: websocket | {KEY}"));
        let allowed = allowed(&["websocket"]);
        let upgrade = Upgrade::of(&request(&asked), &allowed).unwrap();
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
