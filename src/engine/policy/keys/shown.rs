//! Keys in readable form, without secrets.
//!
//! Paths, addresses and claims of verified tokens are shown whole. A header or a query parameter may be a credential of
//! the client. So at most four of its characters are shown, and a fingerprint ([`KeySecret::fingerprint`]) that
//! distinguishes two values. Cookies and headers for credentials are shown as fingerprints alone. The values of an identity
//! may be declared plain.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};

use super::key::KeySecret;
use super::part::KeyPart;
use crate::base::digits::hex;
use crate::base::visible::is_hidden;
use crate::engine::policy::body_member::boolean;
use crate::engine::policy::compiled::{Applied, Policy};
use crate::engine::policy::facts::Facts;
use crate::engine::policy::identity::sources::{Identity, IdentitySource, Principal};
use crate::engine::policy::matching::pattern::parameter;
use crate::engine::policy::matching::values::{as_read, compared, in_cookie, in_header, in_query};
use crate::engine::units::RequestValue;

/// The maximum length of the text of one part, in bytes.
pub const SHOWN_BYTES_MAX: usize = 128;

/// The text of a part that the request does not have.
const ABSENT: &str = "(none)";
/// The text of a member of a body that cannot be read.
const UNREADABLE: &str = "(unreadable)";
const PREFIX_CHARS_MAX: usize = 4;
/// The bytes of a path before a query. The rest of a part has room for the masked query, with its characters escaped.
const URI_PATH_BYTES_MAX: usize = SHOWN_BYTES_MAX - 28;

/// The headers whose values are never shown.
pub const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

impl Policy {
    /// The name of a part, as in the configuration.
    pub fn part_name<'p>(&'p self, part: &'p KeyPart) -> Cow<'p, str> {
        match part {
            KeyPart::Ip => "ip".into(),
            KeyPart::Network { v4, v6: None } => format!("ip/{v4}").into(),
            KeyPart::Network { v4, v6: Some(v6) } => format!("ip/{v4}/{v6}").into(),
            KeyPart::Path => "path".into(),
            KeyPart::Uri => "uri".into(),
            KeyPart::Route => "route".into(),
            KeyPart::Parameter(name) => format!("path:{name}").into(),
            KeyPart::Host => "host".into(),
            KeyPart::Method => "method".into(),
            KeyPart::Identity(index) => self.identities.get(*index).map_or("", |identity| &identity.name).into(),
            KeyPart::Header(name, _) => format!("header:{name}").into(),
            KeyPart::Query(name, _) => format!("query:{name}").into(),
            KeyPart::Cookie(name, _) => format!("cookie:{name}").into(),
            KeyPart::Json(member) => format!("json:{}", member.pointer).into(),
            KeyPart::Named(name) => format!("name:{name}").into(),
        }
    }

    /// The message for a request with several values of this part.
    pub fn several(&self, part: &KeyPart) -> String {
        format!("{} has several values", self.part_name(part))
    }

    /// The text of each part of a request's key, in order. Each has at most [`SHOWN_BYTES_MAX`] bytes. Control
    /// characters, `|`, `\` and invalid UTF-8 are written as `\xNN`. `principals` has one entry for each identity.
    pub fn shown<'s>(
        &'s self,
        secret: &'s KeySecret,
        applied: &Applied<'s>,
        facts: &'s Facts<'_>,
        principals: &'s [Principal<'_>],
    ) -> impl Iterator<Item = String> + 's {
        let route = applied.route;
        applied.limit.key.iter().map(move |part| {
            let mut text = String::new();
            self.write_part(&mut text, part, secret, (route, facts), principals);
            text
        })
    }

    /// Appends the texts of [`Policy::shown`], with `|` between them.
    pub fn write_shown(
        &self,
        out: &mut String,
        secret: &KeySecret,
        applied: &Applied<'_>,
        facts: &Facts<'_>,
        principals: &[Principal<'_>],
    ) {
        for (index, part) in applied.limit.key.iter().enumerate() {
            if index > 0 {
                out.push('|');
            }
            self.write_part(out, part, secret, (applied.route, facts), principals);
        }
    }

    fn write_part(
        &self,
        out: &mut String,
        part: &KeyPart,
        secret: &KeySecret,
        (route, facts): (&str, &Facts<'_>),
        principals: &[Principal<'_>],
    ) {
        match part {
            KeyPart::Ip | KeyPart::Network { .. } => {
                part.prefixes(self.client_ip.prefixes).write(out, facts.client_ip);
            }
            KeyPart::Path => escape(out, facts.path.as_bytes()),
            KeyPart::Uri => write_uri(out, secret, facts.path, facts.query.unwrap_or_default()),
            KeyPart::Route => escape(out, route.as_bytes()),
            KeyPart::Parameter(name) => match parameter(route, name, facts.path) {
                Some(value) => escape(out, value.as_bytes()),
                None => out.push_str(ABSENT),
            },
            KeyPart::Host => escape(out, facts.host.as_bytes()),
            KeyPart::Method => escape(out, facts.method.as_str().as_bytes()),
            KeyPart::Identity(index) => {
                let principal = principals.get(*index).unwrap_or(&Principal::Anonymous);
                self.write_principal(out, secret, *index, principal, facts.client_ip);
            }
            KeyPart::Header(name, several) => match in_header(facts.headers, name, *several).ok().flatten() {
                Some(value) => write_header(out, secret, name, &value),
                None => out.push_str(ABSENT),
            },
            KeyPart::Query(name, several) => match in_query(facts.query, name, *several).ok().flatten() {
                Some(value) => write_masked(out, secret, compared(&value)),
                None => out.push_str(ABSENT),
            },
            KeyPart::Cookie(name, several) => match in_cookie(facts.headers, name, *several).ok().flatten() {
                Some(value) => write_fingerprint(out, secret, compared(&value)),
                None => out.push_str(ABSENT),
            },
            KeyPart::Json(member) => match member.value(facts.body) {
                RequestValue::Text(text) => write_masked(out, secret, compared(&text)),
                RequestValue::Boolean(value) => escape(out, boolean(value)),
                RequestValue::Absent => out.push_str(ABSENT),
                RequestValue::Unreadable => out.push_str(UNREADABLE),
            },
            KeyPart::Named(_) => out.push_str(ABSENT),
        }
    }

    /// Appends the text of the identity at `index`, as in [`Policy::shown`].
    pub fn write_principal(
        &self,
        out: &mut String,
        secret: &KeySecret,
        index: usize,
        principal: &Principal<'_>,
        client: IpAddr,
    ) {
        match principal {
            Principal::Claim(claim) => self.write_identity(out, secret, index, claim.as_bytes()),
            Principal::Bytes(bytes) => self.write_identity(out, secret, index, bytes),
            Principal::Joined(bytes) => self.write_identity(out, secret, index, bytes),
            Principal::Anonymous => out.push_str(ABSENT),
            Principal::Ip => self.client_ip.prefixes.write(out, client),
        }
    }

    /// The text of one part that an operator names. Like [`Policy::shown`] it shows no secret. Parts that cannot be
    /// secret are shown whole.
    pub fn shown_text(&self, secret: &KeySecret, part: &KeyPart, text: &str) -> String {
        let mut shown = String::new();
        let out = &mut shown;
        match part {
            KeyPart::Ip | KeyPart::Network { .. } => {
                let prefixes = part.prefixes(self.client_ip.prefixes);
                match prefixes.parse(text) {
                    Some(ip) => prefixes.write(out, ip),
                    None => escape(out, text.as_bytes()),
                }
            }
            KeyPart::Path | KeyPart::Route | KeyPart::Host | KeyPart::Method => out.push_str(text),
            KeyPart::Uri => {
                let (path, query) = text.split_once('?').unwrap_or((text, ""));
                write_uri(out, secret, path, query);
            }
            KeyPart::Parameter(_) | KeyPart::Named(_) => escape(out, text.as_bytes()),
            KeyPart::Identity(index) => match self.identities.get(*index).map(|identity| &identity.source) {
                Some(IdentitySource::Jwt { .. } | IdentitySource::ApiKeys { .. }) => out.push_str(text),
                Some(source) => self.write_identity(out, secret, *index, source.spelled(text).as_bytes()),
                None => write_fingerprint(out, secret, text.as_bytes()),
            },
            KeyPart::Header(name, _) => write_header(out, secret, name, text.as_bytes()),
            KeyPart::Query(..) | KeyPart::Json(_) => write_masked(out, secret, compared(text.as_bytes())),
            KeyPart::Cookie(..) => write_fingerprint(out, secret, compared(text.as_bytes())),
        }
        shown
    }

    fn write_identity(&self, out: &mut String, secret: &KeySecret, index: usize, bytes: &[u8]) {
        let Some(Identity { source, is_plain, .. }) = self.identities.get(index) else {
            return write_fingerprint(out, secret, bytes);
        };
        match source {
            IdentitySource::Header(..) if *is_plain => escape(out, &as_read(bytes)),
            IdentitySource::Header(name, _) => write_header(out, secret, name, bytes),
            IdentitySource::Certificate(_) if !is_plain => write_fingerprint(out, secret, bytes),
            IdentitySource::Certificate(_) | IdentitySource::Jwt { .. } | IdentitySource::ApiKeys { .. } => {
                escape(out, bytes);
            }
        }
    }
}

impl KeySecret {
    /// A possible secret in readable form: its first characters, at most half of them, and a fingerprint.
    pub fn masked(&self, value: &[u8]) -> String {
        let mut shown = String::new();
        write_masked(&mut shown, self, compared(value));
        shown
    }
}

fn write_header(out: &mut String, secret: &KeySecret, name: &HeaderName, value: &[u8]) {
    let value = &as_read(value);
    if CREDENTIALS.contains(name) { write_fingerprint(out, secret, value) } else { write_masked(out, secret, value) }
}

/// Appends the path, and after `?` the masked query, which may have credentials.
fn write_uri(out: &mut String, secret: &KeySecret, path: &str, query: &str) {
    if query.is_empty() {
        return escape(out, path.as_bytes());
    }
    escape(out, path.as_bytes().get(..URI_PATH_BYTES_MAX).unwrap_or(path.as_bytes()));
    out.push('?');
    write_masked(out, secret, query.as_bytes());
}

/// Appends the first characters of a [`compared`] value, at most half of them, and a fingerprint.
fn write_masked(out: &mut String, secret: &KeySecret, value: &[u8]) {
    escape(out, value.get(..PREFIX_CHARS_MAX.min(value.len() / 2)).unwrap_or_default());
    out.push_str("..");
    write_fingerprint(out, secret, value);
}

/// Appends the fingerprint of a [`compared`] value.
fn write_fingerprint(out: &mut String, secret: &KeySecret, value: &[u8]) {
    out.push('#');
    let digits = hex::<8>(secret.fingerprint(value).into());
    out.push_str(str::from_utf8(&digits).unwrap_or_default());
}

/// Appends as much of a text as fits into one part.
fn escape(out: &mut String, bytes: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'|' | b'\\');
    if let Ok(text) = str::from_utf8(bytes)
        && text.len() <= SHOWN_BYTES_MAX
        && bytes.iter().all(is_plain)
    {
        return out.push_str(text);
    }
    let most = out.len() + SHOWN_BYTES_MAX;
    let mut push = |piece: &str| {
        let fits = out.len() + piece.len() <= most;
        if fits {
            out.push_str(piece);
        }
        fits
    };
    let mut buffer = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            buffer.clear();
            if is_hidden(character) || matches!(character, '|' | '\\') {
                let mut utf8 = [0; 4];
                for byte in character.encode_utf8(&mut utf8).bytes() {
                    let _ = write!(buffer, "\\x{byte:02x}"); // writing to a string cannot fail
                }
            } else {
                buffer.push(character);
            }
            if !push(&buffer) {
                return;
            }
        }
        for byte in chunk.invalid() {
            buffer.clear();
            let _ = write!(buffer, "\\x{byte:02x}");
            if !push(&buffer) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::api_keys::ApiKeys;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::policy::testing::limit;
    use crate::engine::policy::{CertificateName, Identity, Limit, OnMissing, Repeated};

    const SECRET: [u8; 16] = [7; 16];

    /// The text of a key with one part for a request with these headers.
    fn shown(part: KeyPart, headers: &[(&str, &[u8])], query: Option<&str>, principals: &[Principal<'_>]) -> String {
        let identity = |name: &str, source| Identity {
            name: name.into(),
            source,
            on_missing: OnMissing::Ip,
            is_plain: name.starts_with("plain"),
        };
        let [partner, auth] = [HeaderName::from_static("x-partner"), AUTHORIZATION]
            .map(|header| IdentitySource::Header(header, Repeated::Reject));
        let plain = IdentitySource::Header(HeaderName::from_static("x-partner"), Repeated::Reject);
        let keys = Box::new(ApiKeys::new("keys".into(), Vec::new()));
        let owner = IdentitySource::ApiKeys { header: AUTHORIZATION, keys, is_forwarded: false };
        let [name, plain_name] = [CertificateName::SubjectCn; 2].map(IdentitySource::Certificate);
        let sources = [
            ("partner", partner),
            ("auth", auth),
            ("plain", plain),
            ("owner", owner),
            ("name", name),
            ("plain-name", plain_name),
        ];
        let identities = Vec::from(sources.map(|(name, source)| identity(name, source)));
        let limits = vec![Limit { key: vec![part], ..limit("l", &[]) }];
        let policy = Policy::new(
            limits,
            identities,
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() },
        );
        let headers: FieldBuf = headers.iter().copied().collect();
        let facts = Facts {
            method: &Method::GET,
            host: "h",
            path: "/a",
            query,
            headers: headers.fields(),
            client_ip: "2001:db8::1".parse().unwrap(),
            is_free_preflight: false,
            is_proxied: false,
            certificate: None,
            cost: None,
            body: None,
        };
        let applied = policy.applies(0, &facts).unwrap();
        policy.shown(&KeySecret::new(SECRET), &applied, &facts, principals).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn secrets_are_masked() {
        let hash = |text: &str| format!("#{:08x}", KeySecret::new(SECRET).fingerprint(text.as_bytes()));
        let header = |name: &'static str| KeyPart::Header(HeaderName::from_static(name), Repeated::Reject);
        let secret: &[u8] = b"sk-0123456789";
        let masked = format!("sk-0..{}", hash("sk-0123456789"));
        let at = |index: usize, principal: Principal<'static>| {
            let mut principals = vec![Principal::Anonymous; index];
            principals.push(principal);
            principals
        };
        let claim = |text: &str| Principal::Claim(Arc::from(text));
        for (part, headers, query, principals, expected) in [
            (KeyPart::Ip, &[][..], None, &[][..], "2001:db8::/64".to_owned()),
            (KeyPart::Path, &[], None, &[], "/a".to_owned()),
            (KeyPart::Uri, &[], None, &[], "/a".to_owned()),
            (KeyPart::Uri, &[], Some("sk-0123456789"), &[], format!("/a?{masked}")),
            (header("x-api-key"), &[("X-Api-Key", secret)], None, &[], masked.clone()),
            (header("x-api-key"), &[("x-api-key", &b"abc"[..])], None, &[], format!("a..{}", hash("abc"))),
            (header("x-api-key"), &[], None, &[], ABSENT.to_owned()),
            (header("authorization"), &[("authorization", secret)], None, &[], hash("sk-0123456789")),
            (header("cookie"), &[("cookie", secret)], None, &[], hash("sk-0123456789")),
            (
                KeyPart::Cookie("s".into(), Repeated::Reject),
                &[("cookie", &b"s=abcdefgh"[..])],
                None,
                &[],
                hash("abcdefgh"),
            ),
            (KeyPart::Query("k".into(), Repeated::Reject), &[], Some("k=sk-0123456789"), &[], masked.clone()),
            (KeyPart::Query("k".into(), Repeated::Reject), &[], Some("j=1"), &[], ABSENT.to_owned()),
            (KeyPart::Identity(3), &[], None, &at(3, claim("a|b\n")), "a\\x7cb\\x0a".to_owned()),
            (KeyPart::Identity(4), &[], None, &at(4, claim("Acme, Inc.,")), hash("Acme, Inc.,")),
            (KeyPart::Identity(5), &[], None, &at(5, claim("Acme, Inc.,")), "Acme, Inc.,".to_owned()),
            (KeyPart::Identity(0), &[], None, &[Principal::Bytes(secret)], masked),
            (KeyPart::Identity(1), &[], None, &[Principal::Anonymous, Principal::Bytes(secret)], hash("sk-0123456789")),
            (
                KeyPart::Identity(2),
                &[],
                None,
                &[Principal::Anonymous, Principal::Anonymous, Principal::Bytes(b" sk-0123456789|\x1b ")],
                "sk-0123456789\\x7c\\x1b".to_owned(),
            ),
            (KeyPart::Identity(0), &[], None, &[Principal::Anonymous], ABSENT.to_owned()),
            (KeyPart::Identity(0), &[], None, &[Principal::Ip], "2001:db8::/64".to_owned()),
        ] {
            assert_eq!(
                shown(part.clone(), headers, query, principals),
                expected,
                "{part:?} {headers:?} {query:?} {principals:?}"
            );
        }
    }

    #[test]
    fn parts_have_their_configured_names() {
        let identities = vec![Identity {
            name: "seller".into(),
            source: IdentitySource::Header(COOKIE, Repeated::Reject),
            on_missing: OnMissing::Ip,
            is_plain: false,
        }];
        let policy = Policy::new(
            Vec::new(),
            identities,
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() },
        );
        for (part, name) in [
            (KeyPart::Identity(0), "seller"),
            (KeyPart::Header(COOKIE, Repeated::Reject), "header:cookie"),
            (KeyPart::Query("Q".into(), Repeated::Reject), "query:Q"),
            (KeyPart::Cookie("c".into(), Repeated::Reject), "cookie:c"),
            (KeyPart::Route, "route"),
        ] {
            assert_eq!(policy.part_name(&part), name);
        }
    }

    proptest! {
        #[test]
        fn texts_are_short_and_printable(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut shown = String::new();
            escape(&mut shown, &bytes);
            prop_assert!(shown.len() <= SHOWN_BYTES_MAX);
            prop_assert!(!shown.contains(|c: char| is_hidden(c) || c == '|'));
        }
    }
}
