//! A request as the data path sees it, for every protocol.

use http::{Method, Uri};

use super::upgrade::Upgrade;
use crate::base::fields::Fields;
use crate::engine::policy::upgrades::Upgrades;
use crate::transport::http1::{self, Framing, RequestHead, hop};

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http10,
    Http11,
    Http2,
}

impl HttpVersion {
    /// The name, as in the first line of HTTP/1.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// A request, borrowed from the bytes received.
#[derive(Clone, Debug)]
pub(super) struct Request<'b> {
    pub(super) version: HttpVersion,
    pub(super) method: Method,
    pub(super) target: Target<'b>,
    pub(super) fields: Fields<'b>,
    /// The framing of its body, as forwarded.
    pub(super) framing: Framing,
    /// The protocol of an extended CONNECT (RFC 8441), if it is supported. The rest of the request is then that of a
    /// GET.
    pub(super) connect: Option<Box<Upgrade<'static>>>,
}

/// The parts of a request target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'b> {
    /// As sent; `/` if an absolute target has none.
    pub(super) path: &'b str,
    /// As sent, without `?`.
    pub(super) query: Option<&'b str>,
    /// Of an absolute target, or `:authority`.
    pub(super) authority: Option<&'b str>,
    /// The scheme of an absolute target, or `:scheme`.
    pub(super) scheme: Option<&'b str>,
}

impl<'b> Request<'b> {
    /// The request of an HTTP/1 head in `bytes`. `uri` keeps the scheme and the authority of an absolute target.
    pub(super) fn of_h1(head: &RequestHead, bytes: &'b [u8], fields: Fields<'b>, uri: &'b mut Uri) -> Option<Self> {
        let text = str::from_utf8(bytes.get(head.target.clone())?).ok()?;
        let target = if text.starts_with('/') || text == "*" {
            Target::in_origin_form(text)
        } else {
            let (origin, rest) = text.split_at_checked(http1::origin_len(text.as_bytes()))?;
            *uri = origin.parse().ok()?;
            let Target { path, query, .. } = Target::in_origin_form(rest);
            let path = if path.is_empty() { "/" } else { path };
            Target { path, query, ..Target::of(uri) }
        };
        Some(Self {
            version: if head.is_http_11 { HttpVersion::Http11 } else { HttpVersion::Http10 },
            method: method(bytes.get(head.method.clone())?)?,
            target,
            fields,
            framing: head.framing,
            connect: None,
        })
    }

    /// The first requested change of protocol that is allowed. None if the request must be forwarded like any other.
    #[inline]
    pub(super) fn upgrade<'v>(&self, allowed: &'v Upgrades) -> Option<Box<Upgrade<'v>>> {
        if allowed.is_empty() { None } else { self.connect.clone().or_else(|| self.requested_upgrade(allowed)) }
    }

    /// A request with a body changes nothing: its body could be parsed as the new protocol, and the reverse.
    fn requested_upgrade<'v>(&self, allowed: &'v Upgrades) -> Option<Box<Upgrade<'v>>> {
        let may = self.version == HttpVersion::Http11 && self.is_bodyless();
        if !may || !hop::connection_says(self.fields, b"upgrade") {
            return None;
        }
        let protocol = self.fields.members("upgrade").find_map(|wanted| allowed.find(wanted))?;
        Upgrade::new(protocol, &self.method, self.fields).map(Box::new)
    }

    /// Whether it is an extended CONNECT to a protocol that is not allowed. It cannot be forwarded as another request.
    pub(super) fn is_refused_connect(&self, allowed: &Upgrades) -> bool {
        self.connect.as_ref().is_some_and(|connect| allowed.find(connect.protocol.as_bytes()).is_none())
    }

    /// Whether the client waits for 100 Continue before it sends the body. HTTP/1.0 has no such expectation (RFC 9110,
    /// section 10.1.1).
    pub(super) fn expects_continue(&self) -> bool {
        let is_wanted = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        !self.is_bodyless() && self.version != HttpVersion::Http10 && self.fields.first("expect").is_some_and(is_wanted)
    }

    /// Whether it has no body.
    pub(super) fn is_bodyless(&self) -> bool {
        self.framing == Framing::Length(0)
    }
}

fn method(name: &[u8]) -> Option<Method> {
    if name == b"GET" {
        return Some(Method::GET); // the usual method
    }
    Method::from_bytes(name).ok()
}

impl<'b> Target<'b> {
    /// The path and query of a target that has nothing else.
    pub(super) fn in_origin_form(text: &'b str) -> Self {
        let path_len = memchr::memchr(b'?', text.as_bytes()).unwrap_or(text.len());
        Self { path: &text[..path_len], query: text.get(path_len + 1..), authority: None, scheme: None }
    }

    /// The target of a parsed URI.
    fn of(uri: &'b Uri) -> Self {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        Self { path: uri.path(), query: uri.query(), authority, scheme: uri.scheme_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";

    fn fields(lines: &str) -> FieldBuf {
        let mut fields = FieldBuf::default();
        for (name, value) in lines.split(" | ").filter_map(|line| line.split_once(':')) {
            fields.push(name.as_bytes(), value.trim().as_bytes());
        }
        fields
    }

    fn request(fields: &FieldBuf) -> Request<'_> {
        Request {
            version: HttpVersion::Http11,
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
    fn allowed_upgrades_are_forwarded() {
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
            // No valid handshake.
            ("connection: upgrade | upgrade: websocket", &["websocket"], None),
            (&twice, &["websocket"], None),
            (&short, &["websocket"], None),
            (&not_base64, &["websocket"], None),
            // The version is a part of the name.
            ("connection: upgrade | upgrade: x/2", &["x/1", "x"], None),
            ("connection: upgrade | upgrade: X/1", &["x/1"], Some("x/1")),
        ];
        for (lines, names, expected) in rows {
            let (fields, allowed) = (fields(lines), allowed(names));
            let upgrade = request(&fields).upgrade(&allowed);
            assert_eq!(upgrade.map(|upgrade| upgrade.protocol), *expected, "{lines} of {names:?}");
        }
    }

    #[test]
    fn some_requests_cannot_upgrade() {
        let (fields, allowed) =
            (fields(&format!("connection: upgrade | upgrade: websocket | {KEY}")), allowed(&["websocket"]));
        let is_upgrade = |change: &dyn Fn(&mut Request<'_>)| {
            let mut request = request(&fields);
            change(&mut request);
            request.upgrade(&allowed).is_some()
        };
        assert!(is_upgrade(&|_| {}));
        assert!(!is_upgrade(&|request| request.framing = Framing::Length(1)));
        assert!(!is_upgrade(&|request| request.framing = Framing::Chunked));
        assert!(!is_upgrade(&|request| request.version = HttpVersion::Http10));
        assert!(!is_upgrade(&|request| request.version = HttpVersion::Http2));
        assert!(!is_upgrade(&|request| request.method = Method::POST));
    }

    #[test]
    fn a_connect_has_a_handshake_of_its_own() {
        let allowed = allowed(&["x", "websocket"]);
        let [one, other] = [(); 2].map(|()| Upgrade::handshake("websocket").unwrap());
        assert_ne!(one.key, other.key);
        let key = String::from_utf8(one.key.unwrap().to_vec()).unwrap();
        let requested = fields(&format!("connection: upgrade | upgrade: websocket | sec-websocket-key: {key}"));
        assert_eq!(request(&requested).upgrade(&allowed).unwrap().accept, one.accept);
        assert!(Upgrade::handshake("x").is_none() && Upgrade::handshake("WebSocket").is_none());
    }

    /// Unlike an upgrade, it cannot be forwarded as another request.
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
            assert_eq!(request.is_refused_connect(allowed), is_refused, "{allowed:?}");
        }
    }
}
