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
use crate::base::visible::is_hidden;
use crate::engine::policy::compiled::{Applied, Policy};
use crate::engine::policy::facts::Facts;
use crate::engine::policy::identity::principal::Principal;
use crate::engine::policy::identity::sources::{Identity, IdentitySource};
use crate::engine::policy::matching::values::{as_read, compared, in_cookie, in_header, in_query};

/// The maximum length of the text of one part, in bytes.
pub const SHOWN_BYTES_MAX: usize = 128;

/// The text of a part that the request does not have.
const ABSENT: &str = "(none)";
const PREFIX_CHARS_MAX: usize = 4;

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
            KeyPart::Route => "route".into(),
            KeyPart::Host => "host".into(),
            KeyPart::Method => "method".into(),
            KeyPart::Identity(index) => self.identities.get(*index).map_or("", |identity| &identity.name).into(),
            KeyPart::Header(name, _) => format!("header:{name}").into(),
            KeyPart::Query(name, _) => format!("query:{name}").into(),
            KeyPart::Cookie(name, _) => format!("cookie:{name}").into(),
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
        let (route, absent) = (applied.route, || ABSENT.to_owned());
        applied.limit.key.iter().map(move |part| match part {
            KeyPart::Ip | KeyPart::Network { .. } => part.prefixes(self.client_ip.prefixes).shown(facts.client_ip),
            KeyPart::Path => escaped(facts.path.as_bytes()),
            KeyPart::Route => escaped(route.as_bytes()),
            KeyPart::Host => escaped(facts.host.as_bytes()),
            KeyPart::Method => escaped(facts.method.as_str().as_bytes()),
            KeyPart::Identity(index) => {
                let principal = principals.get(*index).unwrap_or(&Principal::Anonymous);
                self.shown_principal(secret, *index, principal, facts.client_ip)
            }
            KeyPart::Header(name, several) => {
                let value = in_header(facts.headers, name, *several).ok().flatten();
                value.map_or_else(absent, |value| of_header(secret, name, &value))
            }
            KeyPart::Query(name, several) => {
                let value = in_query(facts.query, name, *several).ok().flatten();
                value.map_or_else(absent, |value| masked(secret, &value))
            }
            KeyPart::Cookie(name, several) => {
                let value = in_cookie(facts.headers, name, *several).ok().flatten();
                value.map_or_else(absent, |value| fingerprint(secret, &value))
            }
            KeyPart::Named(_) => absent(),
        })
    }

    /// The text of the identity at `index`, as in [`Policy::shown`].
    pub fn shown_principal(
        &self,
        secret: &KeySecret,
        index: usize,
        principal: &Principal<'_>,
        client: IpAddr,
    ) -> String {
        match principal {
            Principal::Claim(claim) => escaped(claim.as_bytes()),
            Principal::Bytes(bytes) => self.shown_identity(secret, index, bytes),
            Principal::Joined(bytes) => self.shown_identity(secret, index, bytes),
            Principal::Anonymous => ABSENT.to_owned(),
            Principal::Ip => self.client_ip.prefixes.shown(client),
        }
    }

    /// The text of one part that an operator names. Like [`Policy::shown`] it shows no secret. Parts that cannot be
    /// secret are shown whole.
    pub fn shown_text(&self, secret: &KeySecret, part: &KeyPart, text: &str) -> String {
        match part {
            KeyPart::Ip | KeyPart::Network { .. } => {
                let prefixes = part.prefixes(self.client_ip.prefixes);
                prefixes.parse(text).map_or_else(|| escaped(text.as_bytes()), |ip| prefixes.shown(ip))
            }
            KeyPart::Path | KeyPart::Route | KeyPart::Host | KeyPart::Method => text.to_owned(),
            KeyPart::Named(_) => escaped(text.as_bytes()),
            KeyPart::Identity(index) => match self.identities.get(*index).map(|identity| &identity.source) {
                Some(IdentitySource::Jwt { .. }) => text.to_owned(),
                _ => self.shown_identity(secret, *index, text.as_bytes()),
            },
            KeyPart::Header(name, _) => of_header(secret, name, text.as_bytes()),
            KeyPart::Query(..) => masked(secret, text.as_bytes()),
            KeyPart::Cookie(..) => fingerprint(secret, text.as_bytes()),
        }
    }

    fn shown_identity(&self, secret: &KeySecret, index: usize, bytes: &[u8]) -> String {
        match self.identities.get(index) {
            Some(Identity { is_plain: true, .. }) => escaped(compared(&as_read(bytes))),
            Some(Identity { source: IdentitySource::Header(name, _), .. }) => of_header(secret, name, bytes),
            _ => fingerprint(secret, &as_read(bytes)),
        }
    }
}

impl KeySecret {
    /// A possible secret in readable form: its first characters, at most half of them, and a fingerprint.
    pub fn masked(&self, value: &[u8]) -> String {
        masked(self, value)
    }
}

fn of_header(secret: &KeySecret, name: &HeaderName, value: &[u8]) -> String {
    let value = &as_read(value);
    if CREDENTIALS.contains(name) { fingerprint(secret, value) } else { masked(secret, value) }
}

/// The first characters, at most half of them, and a fingerprint.
fn masked(secret: &KeySecret, value: &[u8]) -> String {
    let value = compared(value);
    let prefix = value.get(..PREFIX_CHARS_MAX.min(value.len() / 2)).unwrap_or_default();
    format!("{}..{}", escaped(prefix), fingerprint(secret, value))
}

fn fingerprint(secret: &KeySecret, value: &[u8]) -> String {
    format!("#{:08x}", secret.fingerprint(compared(value)))
}

fn escaped(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let mut push = |piece: &str| {
        let fits = shown.len() + piece.len() <= SHOWN_BYTES_MAX;
        if fits {
            shown.push_str(piece);
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
                return shown;
            }
        }
        for byte in chunk.invalid() {
            buffer.clear();
            let _ = write!(buffer, "\\x{byte:02x}");
            if !push(&buffer) {
                return shown;
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
    use crate::engine::policy::testing::limit;
    use crate::engine::policy::{Identity, Limit, OnMissing, Repeated};

    const SECRET: [u8; 16] = [7; 16];

    /// The text of a key with one part for a request with these headers.
    fn shown(part: KeyPart, headers: &[(&str, &[u8])], query: Option<&str>, principals: &[Principal<'_>]) -> String {
        let identity = |name: &str, header: HeaderName| Identity {
            name: name.into(),
            source: IdentitySource::Header(header, Repeated::Reject),
            on_missing: OnMissing::Ip,
            is_plain: name == "plain",
        };
        let header = HeaderName::from_static("x-partner");
        let identities =
            vec![identity("partner", header.clone()), identity("auth", AUTHORIZATION), identity("plain", header)];
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
            certificate: None,
            cost: None,
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
        let claim = |text: &str| [Principal::Claim(Arc::from(text))];
        for (part, headers, query, principals, expected) in [
            (KeyPart::Ip, &[][..], None, &[][..], "2001:db8::/64".to_owned()),
            (KeyPart::Path, &[], None, &[], "/a".to_owned()),
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
            (KeyPart::Identity(0), &[], None, &claim("a|b\n"), "a\\x7cb\\x0a".to_owned()),
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
            let shown = escaped(&bytes);
            prop_assert!(shown.len() <= SHOWN_BYTES_MAX);
            prop_assert!(!shown.contains(|c: char| is_hidden(c) || c == '|'));
        }
    }
}
