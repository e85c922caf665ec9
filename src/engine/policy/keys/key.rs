//! The hash of a key: 128 bits of SipHash-1-3 under a secret.
//!
//! The text of a key is not stored. Without the secret nobody can search for two keys that collide. By chance, a
//! billion keys collide with probability 2^-69.
//!
//! The hash is the standard one of Aumasson and Bernstein (2012) with 128 bits of output, so other programs can compute
//! it. Its message is the concatenation of all parts. No part is the beginning of another part:
//!
//! | Part | Bytes |
//! |---|---|
//! | absent | 0 |
//! | text | 1, its length in 8 bytes, its bytes |
//! | IPv4 address | 2, the 4 bytes of the address |
//! | IPv6 network | 3, the length of the prefix, the first 8 bytes of the network or, for prefixes above 64, all 16 |
//! | IPv4 network | 8, the length of the prefix, the 4 bytes of the network; of length 32: as an address |
//! | token | 4, the index of the identity in 8 bytes, a text |
//! | fingerprint | 5, a text |
//! | period | 6, the two halves of a key in 8 bytes each, nanoseconds in 8 bytes |
//! | proof | 7 |
//! | answer | 9, the two halves of a key in 8 bytes each |
//! | unreadable | 10 |
//!
//! All numbers are little-endian. Addresses are in network order, and the host bits of a network are zero.

use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv4Addr};

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use smallvec::SmallVec;

use super::part::KeyPart;
use crate::base::opaque::opaque_debug;
use crate::engine::limit::Key;
use crate::engine::policy::body_member::boolean;
use crate::engine::policy::facts::Facts;
use crate::engine::policy::identity::client_ip::Prefixes;
use crate::engine::policy::identity::sources::{Identity, IdentitySource, Principal};
use crate::engine::policy::matching::pattern::parameter;
use crate::engine::policy::matching::values::{AmbiguousValue, as_read, compared, in_cookie, in_header, in_query};
use crate::engine::units::RequestValue;

/// The secret under which keys are hashed.
#[derive(Clone, Copy)]
pub struct KeySecret {
    /// A hasher that has the secret and no message yet.
    empty: SipHasher13,
}

opaque_debug!(KeySecret);

impl KeySecret {
    /// A secret of 16 random bytes.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { empty: SipHasher13::new_with_key(&secret) }
    }

    /// The secret of hashes that are equal in all processes. Anybody can compute them.
    pub(in crate::engine::policy) fn public() -> Self {
        Self::new([0; 16])
    }

    /// The hash of a token of the identity with this index.
    pub fn token(&self, identity: usize, bytes: &[u8]) -> Key {
        let mut message = self.message();
        message.write_numbered(tag::TOKEN, identity);
        message.write_text(bytes);
        message.key()
    }

    /// The key of a client's address alone.
    pub fn of_address(&self, address: IpAddr, prefixes: Prefixes) -> Key {
        let mut message = self.message();
        message.write_address(address, prefixes);
        message.key()
    }

    /// The key of the budget that `key` has for a rate with this period, beside its own budget.
    pub fn of_period(&self, key: Key, period_ns: u64) -> Key {
        let mut message = self.message();
        message.write(&[tag::PERIOD]);
        for number in [key.first, key.second, period_ns] {
            message.write(&number.to_le_bytes());
        }
        message.key()
    }

    /// The key of an answer to a request that has `key` in a limit. `texts` select the answer.
    pub fn of_answer(&self, key: Key, texts: &[Option<&[u8]>]) -> Key {
        let mut message = self.message();
        message.write(&[tag::ANSWER]);
        for number in [key.first, key.second] {
            message.write(&number.to_le_bytes());
        }
        for text in texts {
            match text {
                Some(text) => message.write_text(text),
                None => message.write_absent(),
            }
        }
        message.key()
    }

    /// 32 bits of a hash, by which operators tell secret texts apart. Without the secret nobody can test a guess.
    pub fn fingerprint(&self, bytes: &[u8]) -> u32 {
        let mut start = [tag::FINGERPRINT, tag::TEXT, 0, 0, 0, 0, 0, 0, 0, 0];
        start[2..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let mut message = self.message();
        // In two pieces: each line of the access log may have fingerprints.
        message.write(&start);
        message.write(bytes);
        u32::try_from(message.key().first >> 32).unwrap_or(0)
    }

    /// A hash by which one process proves to another that it has the secret. Without the secret nobody can guess it.
    pub fn proof(&self) -> Key {
        let mut message = self.message();
        message.write(&[tag::PROOF]);
        message.key()
    }

    /// The key of a request from its `parts`. `route` is the matched pattern. `principals` has one entry for each
    /// identity of the policy.
    ///
    /// # Errors
    /// The part that has several values, if its limit refuses several values.
    #[inline]
    pub fn key<'p>(
        &self,
        parts: &'p [KeyPart],
        route: &str,
        facts: &Facts<'_>,
        prefixes: Prefixes,
        principals: &[Principal<'_>],
    ) -> Result<Key, &'p KeyPart> {
        // Most limits have such a key. Its hash stays in registers.
        if let ([KeyPart::Ip], IpAddr::V4(ip), 32) = (parts, facts.client_ip, prefixes.v4) {
            let hash = self.empty.hash(&ipv4(ip));
            return Ok(Key::of_hash(hash.h1, hash.h2));
        }
        self.key_of_parts(parts, route, facts, prefixes, principals)
    }

    /// The percentile of the key of a request, which is equal in all processes. The arguments are those of [`Self::key`].
    ///
    /// # Errors
    /// As [`Self::key`].
    pub fn percentile<'p>(
        parts: &'p [KeyPart],
        route: &str,
        facts: &Facts<'_>,
        prefixes: Prefixes,
        principals: &[Principal<'_>],
    ) -> Result<u8, &'p KeyPart> {
        Ok(Self::public().key_of_parts(parts, route, facts, prefixes, principals)?.percentile())
    }

    #[inline(never)]
    fn key_of_parts<'p>(
        &self,
        parts: &'p [KeyPart],
        route: &str,
        facts: &Facts<'_>,
        prefixes: Prefixes,
        principals: &[Principal<'_>],
    ) -> Result<Key, &'p KeyPart> {
        let mut message = self.message();
        for part in parts {
            let several = |AmbiguousValue| part;
            match part {
                KeyPart::Ip | KeyPart::Network { .. } => {
                    message.write_address(facts.client_ip, part.prefixes(prefixes));
                }
                KeyPart::Path => message.write_text(facts.path.as_bytes()),
                KeyPart::Uri => message.write_uri(facts.path, facts.query),
                KeyPart::Route => message.write_text(route.as_bytes()),
                KeyPart::Parameter(name) => match parameter(route, name, facts.path) {
                    Some(value) => message.write_text(value.as_bytes()),
                    None => message.write_absent(),
                },
                KeyPart::Host => message.write_text(facts.host.as_bytes()),
                KeyPart::Method => message.write_text(facts.method.as_str().as_bytes()),
                KeyPart::Identity(index) => match principals.get(*index).unwrap_or(&Principal::Anonymous) {
                    Principal::Bytes(bytes) => message.write_text(&as_read(bytes)),
                    Principal::Joined(bytes) => message.write_text(&as_read(bytes)),
                    Principal::Claim(claim) => message.write_text(claim.as_bytes()),
                    Principal::Anonymous => message.write_absent(),
                    Principal::Ip => message.write_address(facts.client_ip, prefixes),
                },
                KeyPart::Header(name, repeated) => match in_header(facts.headers, name, *repeated).map_err(several)? {
                    Some(value) => message.write_text(&as_read(&value)),
                    None => message.write_absent(),
                },
                KeyPart::Query(name, repeated) => {
                    let value = in_query(facts.query, name, *repeated).map_err(several)?;
                    message.write_value(value.as_deref());
                }
                KeyPart::Cookie(name, repeated) => {
                    let value = in_cookie(facts.headers, name, *repeated).map_err(several)?;
                    message.write_value(value.as_deref());
                }
                KeyPart::Json(member) => match member.value(facts.body) {
                    RequestValue::Text(text) => message.write_value(Some(&text)),
                    RequestValue::Boolean(value) => message.write_value(Some(boolean(value))),
                    RequestValue::Absent => message.write_absent(),
                    RequestValue::Unreadable => message.write(&[tag::UNREADABLE]),
                },
                KeyPart::Named(_) => message.write_absent(),
            }
        }
        Ok(message.key())
    }

    /// The key that `texts` name, one text for each part. `identities` are those of the policy. `None` if an address is
    /// invalid, or the numbers of parts and texts differ.
    pub fn key_of_texts(
        &self,
        parts: &[KeyPart],
        texts: &[&str],
        prefixes: Prefixes,
        identities: &[Identity],
    ) -> Option<Key> {
        if parts.len() != texts.len() {
            return None;
        }
        let mut message = self.message();
        for (part, text) in parts.iter().zip(texts) {
            match part {
                KeyPart::Ip | KeyPart::Network { .. } => {
                    let prefixes = part.prefixes(prefixes);
                    message.write_address(prefixes.parse(text)?, prefixes);
                }
                KeyPart::Identity(index) => match identities.get(*index).map(|identity| &identity.source) {
                    Some(IdentitySource::Header(..)) => message.write_text(&as_read(text.as_bytes())),
                    Some(source) => message.write_text(source.spelled(text).as_bytes()),
                    None => message.write_text(text.as_bytes()),
                },
                KeyPart::Header(..) => message.write_text(&as_read(text.as_bytes())),
                KeyPart::Query(..) | KeyPart::Cookie(..) | KeyPart::Json(_) => {
                    message.write_value(Some(text.as_bytes()));
                }
                KeyPart::Path
                | KeyPart::Uri
                | KeyPart::Route
                | KeyPart::Parameter(_)
                | KeyPart::Host
                | KeyPart::Method
                | KeyPart::Named(_) => message.write_text(text.as_bytes()),
            }
        }
        Some(message.key())
    }

    /// The key that the text of an override names. `|` separates the texts of several parts, and `#` is before an id.
    /// `None` as for [`KeySecret::key_of_texts`].
    pub fn key_of_text(
        &self,
        parts: &[KeyPart],
        text: &str,
        prefixes: Prefixes,
        identities: &[Identity],
    ) -> Option<Key> {
        if let Some(key) = key_of_marked_id(text).filter(|_| !parts.is_empty()) {
            return Some(key);
        }
        let texts: SmallVec<[&str; 4]> = if parts.len() > 1 { text.split('|').collect() } else { [text][..].into() };
        self.key_of_texts(parts, &texts, prefixes, identities)
    }

    fn message(&self) -> Message {
        Message { hasher: self.empty }
    }
}

/// The key of a text that is `#` and an id.
pub fn key_of_marked_id(text: &str) -> Option<Key> {
    Key::of_id(text.strip_prefix('#')?)
}

/// The first bytes of parts.
mod tag {
    pub(super) const ABSENT: u8 = 0;
    pub(super) const TEXT: u8 = 1;
    pub(super) const IPV4: u8 = 2;
    pub(super) const IPV6: u8 = 3;
    pub(super) const TOKEN: u8 = 4;
    pub(super) const FINGERPRINT: u8 = 5;
    pub(super) const PERIOD: u8 = 6;
    pub(super) const PROOF: u8 = 7;
    pub(super) const IPV4_NETWORK: u8 = 8;
    pub(super) const ANSWER: u8 = 9;
    pub(super) const UNREADABLE: u8 = 10;
}

/// The message to hash, written part by part.
struct Message {
    hasher: SipHasher13,
}

impl Message {
    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    /// Writes a tag and a number.
    fn write_numbered(&mut self, tag: u8, number: usize) {
        self.hasher.write_u8(tag);
        self.hasher.write_u64((number as u64).to_le());
    }

    fn write_absent(&mut self) {
        self.hasher.write_u8(tag::ABSENT);
    }

    fn write_text(&mut self, bytes: &[u8]) {
        self.write_numbered(tag::TEXT, bytes.len());
        self.write(bytes);
    }

    /// Writes the text of a path and a query. A path has no `?`.
    fn write_uri(&mut self, path: &str, query: Option<&str>) {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return self.write_text(path.as_bytes()) };
        self.write_numbered(tag::TEXT, path.len() + 1 + query.len());
        for piece in [path, "?", query] {
            self.write(piece.as_bytes());
        }
    }

    /// Writes the value of a query parameter or a cookie.
    fn write_value(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.write_text(compared(value)),
            None => self.write_absent(),
        }
    }

    fn write_address(&mut self, address: IpAddr, prefixes: Prefixes) {
        match prefixes.network(address) {
            IpAddr::V4(ip) if prefixes.v4 >= 32 => self.write(&ipv4(ip)),
            IpAddr::V4(ip) => {
                self.write(&[tag::IPV4_NETWORK, prefixes.v4]);
                self.write(&ip.octets());
            }
            IpAddr::V6(ip) => {
                let prefix = prefixes.v6.min(128);
                self.write(&[tag::IPV6, prefix]);
                let octets = ip.octets();
                self.write(if prefix > 64 { &octets } else { &octets[..8] });
            }
        }
    }

    fn key(&self) -> Key {
        let hash = self.hasher.finish128();
        Key::of_hash(hash.h1, hash.h2)
    }
}

#[inline]
fn ipv4(ip: Ipv4Addr) -> [u8; 5] {
    let [a, b, c, d] = ip.octets();
    [tag::IPV4, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::api_keys::ApiKeys;
    use crate::engine::policy::{CertificateName, OnMissing, Repeated};
    use http::{HeaderName, Method};

    /// The facts of a request that `key` uses.
    #[derive(Clone, Debug)]
    struct KeyedRequest {
        ip: &'static str,
        path: &'static str,
        route: &'static str,
        host: &'static str,
        method: Method,
        query: Option<&'static str>,
        headers: Vec<(&'static str, &'static [u8])>,
        principals: Vec<Principal<'static>>,
    }

    const NOTHING: KeyedRequest = KeyedRequest {
        ip: "192.0.2.1",
        path: "/",
        route: "",
        host: "",
        method: Method::GET,
        query: None,
        headers: Vec::new(),
        principals: Vec::new(),
    };

    fn key_of(parts: &[KeyPart], prefix: u8, request: &KeyedRequest) -> Key {
        key_under(parts, Prefixes { v4: 32, v6: prefix }, request)
    }

    fn key_under(parts: &[KeyPart], prefixes: Prefixes, request: &KeyedRequest) -> Key {
        let headers: FieldBuf = request.headers.iter().copied().collect();
        let facts = Facts {
            method: &request.method,
            host: request.host,
            path: request.path,
            query: request.query,
            headers: headers.fields(),
            client_ip: request.ip.parse().unwrap(),
            is_free_preflight: false,
            is_proxied: false,
            certificate: None,
            cost: None,
            body: None,
        };
        KeySecret::new([7; 16]).key(parts, request.route, &facts, prefixes, &request.principals).unwrap()
    }

    fn check(parts: &[KeyPart], left: &KeyedRequest, right: &KeyedRequest, equal: bool) {
        let same = key_of(parts, 64, left) == key_of(parts, 64, right);
        assert_eq!(same, equal, "{parts:?}\n{left:?}\n{right:?}");
    }

    #[test]
    fn a_key_is_made_of_its_parts_only() {
        use KeyPart::{Host, Ip, Method as Verb, Path, Route};
        let base = KeyedRequest { path: "/a", route: "/{x}", host: "h", ..NOTHING };
        let others = [
            KeyedRequest { ip: "192.0.2.2", ..base.clone() },
            KeyedRequest { path: "/b", ..base.clone() },
            KeyedRequest { route: "/{y}", ..base.clone() },
            KeyedRequest { host: "i", ..base.clone() },
            KeyedRequest { method: Method::PUT, ..base.clone() },
        ];
        for (at, part) in [Ip, Path, Route, Host, Verb].into_iter().enumerate() {
            for (changed, other) in others.iter().enumerate() {
                check(std::slice::from_ref(&part), &base, other, at != changed);
                check(&[], &base, other, true);
            }
        }
    }

    #[test]
    fn a_parameter_is_the_text_of_its_value() {
        let parts = [KeyPart::Parameter("tenant".into())];
        let of = |path| key_of(&parts, 64, &KeyedRequest { path, route: "/t/{tenant}/{*rest}", ..NOTHING });
        let text = KeySecret::new([7; 16]).key_of_texts(&parts, &["a"], Prefixes::default(), &[]);
        assert_eq!((Some(of("/t/a/")), of("/t/a/b")), (text, of("/t/a/c/d")));
        assert_ne!(of("/t/a/b"), of("/t/b/a"));
    }

    /// Snapshots contain keys, so keys must not change between versions.
    #[test]
    fn keys_of_addresses_are_pinned() {
        for (ip, prefix, first) in [
            ("192.0.2.1", 64, 0xee00_ddb7_aaf5_b108),
            ("2001:db8::1", 64, 0x4832_0449_6e2a_6afc),
            ("2001:db8::2", 64, 0x4832_0449_6e2a_6afc),
            ("2001:db8::1", 65, 0x15d1_4b7f_d0a6_6508),
            ("2001:db8::1", 128, 0xe082_cdd8_2326_8cfc),
        ] {
            let key = key_of(&[KeyPart::Ip], prefix, &KeyedRequest { ip, ..NOTHING });
            assert_eq!(key.first, first, "{ip}/{prefix}");
        }
    }

    /// The value is from another implementation of `SipHash`, without two bits.
    #[test]
    fn the_hash_of_several_texts_is_standard() {
        let parts = [KeyPart::Host, KeyPart::Path];
        let key = KeySecret::new([7; 16]).key_of_texts(&parts, &["h", "/a"], Prefixes::default(), &[]);
        assert_eq!(key, Some(Key { first: 0xf8ff_af9b_447b_b878, second: 0x8ebc_c659_9a8f_b8f2 }));
    }

    #[test]
    fn other_hashes_of_a_secret_differ() {
        let [one, other] = [7, 8].map(|byte| KeySecret::new([byte; 16]));
        let [a, b] =
            ["a", "b"].map(|text| one.key_of_texts(&[KeyPart::Path], &[text], Prefixes::default(), &[]).unwrap());
        let answer = |key, texts: &[Option<&[u8]>]| one.of_answer(key, texts);
        let all = [
            one.proof(),
            other.proof(),
            a,
            b,
            one.of_period(a, 1),
            one.of_period(a, 2),
            one.of_period(b, 1),
            answer(a, &[]),
            answer(b, &[]),
            answer(a, &[None]),
            answer(a, &[None, None]),
            answer(a, &[Some(b"")]),
            answer(a, &[Some(b"ab")]),
            answer(a, &[Some(b"a"), Some(b"b")]),
        ];
        assert_eq!(std::collections::HashSet::from(all).len(), all.len());
    }

    /// Snapshots contain keys of periods, and processes of several versions compare proofs. The values are from another
    /// implementation of `SipHash`, without two bits.
    #[test]
    fn keys_of_periods_and_proofs_are_pinned() {
        let secret = KeySecret::new([7; 16]);
        let key = Key { first: 0xf8ff_af9b_447b_b878, second: 0x8ebc_c659_9a8f_b8f2 };
        let minute = Key { first: 0x3c60_92f1_3104_37f4, second: 0xeb1b_a9da_21b0_285d };
        assert_eq!(secret.of_period(key, 60_000_000_000), minute);
        assert_eq!(secret.proof(), Key { first: 0x53de_2fd2_7f17_cfd0, second: 0x0c08_a768_565a_db23 });
    }

    #[test]
    fn spellings_of_one_value_have_one_key() {
        let name = HeaderName::from_static("x-a");
        for repeated in [Repeated::Reject, Repeated::First, Repeated::Last, Repeated::Join] {
            let header = [KeyPart::Header(name.clone(), repeated)];
            for (value, spelling, equal) in [
                (&b"abc"[..], &b"abc,"[..], true),
                (b"abc", b",abc", true),
                (b"abc", b" , abc\xA0,", true),
                (b"a,b", b"a ,, b", true),
                (b"a,b", b"b,a", false),
                (b"a,b", b"ab", false),
                (b"abc", b"abd", false),
            ] {
                let with_header = |value| KeyedRequest { headers: vec![("x-a", value)], ..NOTHING };
                check(&header, &with_header(value), &with_header(spelling), equal);
                let texts = [value, spelling].map(|text| str::from_utf8(text).unwrap_or("abc"));
                let [named, other] =
                    texts.map(|text| KeySecret::new([7; 16]).key_of_text(&header, text, Prefixes::default(), &[]));
                assert_eq!(named, Some(key_of(&header, 64, &with_header(value))));
                assert_eq!(named == other, equal);
                let joined: std::sync::Arc<[u8]> = spelling.into();
                for principal in [Principal::Bytes(spelling), Principal::Joined(joined)] {
                    let with_identity = |principal| KeyedRequest { principals: vec![principal], ..NOTHING };
                    check(
                        &[KeyPart::Identity(0)],
                        &with_identity(Principal::Bytes(value)),
                        &with_identity(principal),
                        equal,
                    );
                }
            }
        }
    }

    #[test]
    fn every_byte_of_a_verified_value_counts() {
        let (part, secret) = ([KeyPart::Identity(0)], KeySecret::new([7; 16]));
        let name = HeaderName::from_static("x-a");
        let owners = || IdentitySource::ApiKeys {
            header: name.clone(),
            keys: Box::new(ApiKeys::new("keys".into(), Vec::new())),
            is_forwarded: false,
        };
        for (source, spelling, same_request, same_text) in [
            (owners(), "alice,", false, false),
            (owners(), " alice", false, false),
            (owners(), "alice\u{85}", false, false),
            (owners(), "Alice", false, false),
            (IdentitySource::Certificate(CertificateName::SubjectCn), "alice,", false, false),
            (IdentitySource::Certificate(CertificateName::SanUri), "Alice", false, false),
            // Requests have these names in lower case.
            (IdentitySource::Certificate(CertificateName::SanDns), "Alice", false, true),
            (IdentitySource::Certificate(CertificateName::SanDns), "alice ", false, false),
            (IdentitySource::Header(name.clone(), Repeated::Reject), " alice,", true, true),
        ] {
            let is_verified = source.is_verified();
            let identities = [Identity { name: "a".into(), source, on_missing: OnMissing::Ip, is_plain: false }];
            let of_request = |text: &'static str| {
                let principal =
                    if is_verified { Principal::Claim(text.into()) } else { Principal::Bytes(text.as_bytes()) };
                key_of(&part, 64, &KeyedRequest { principals: vec![principal], ..NOTHING })
            };
            let of_text = |text| secret.key_of_text(&part, text, Prefixes::default(), &identities);
            assert_eq!(of_text("alice"), Some(of_request("alice")), "{identities:?}");
            assert_eq!(of_request(spelling) == of_request("alice"), same_request, "{identities:?} {spelling:?}");
            assert_eq!(of_text(spelling) == of_text("alice"), same_text, "{identities:?} {spelling:?}");
        }
    }

    #[test]
    fn a_text_names_all_parts() {
        let secret = KeySecret::new([7; 16]);
        let two = [KeyPart::Host, KeyPart::Path];
        let key = |parts: &[KeyPart], text| secret.key_of_text(parts, text, Prefixes::default(), &[]);
        assert_eq!(key(&two, "h|/a"), secret.key_of_texts(&two, &["h", "/a"], Prefixes::default(), &[]));
        assert!(key(&two, "h|/a").is_some() && key(&two, "h").is_none() && key(&two, "h|/a|b").is_none());
        assert_eq!(key(&two[..1], "h|/a"), secret.key_of_texts(&two[..1], &["h|/a"], Prefixes::default(), &[]));
    }

    #[test]
    fn parts_do_not_merge() {
        let of = |path, host| KeyedRequest { path, host, ..NOTHING };
        let parts = [KeyPart::Path, KeyPart::Host];
        for (left, right, equal) in [
            (of("/ab", "c"), of("/ab", "c"), true),
            (of("/ab", "c"), of("/a", "bc"), false),
            (of("/ab", ""), of("", "/ab"), false),
            (of("", ""), of("\0", ""), false),
            // A value that imitates the separator does not merge two parts.
            (of("/a\u{1}b", "c"), of("/a", "b\u{1}c"), false),
        ] {
            check(&parts, &left, &right, equal);
        }
    }

    #[test]
    fn joined_headers_count_with_all_values_in_order() {
        let of = |headers: &[(&'static str, &'static [u8])]| KeyedRequest { headers: headers.to_vec(), ..NOTHING };
        let [a, b] = ["x-a", "x-b"].map(|name| KeyPart::Header(HeaderName::from_static(name), Repeated::Join));
        for (left, right, equal) in [
            (of(&[("x-a", b"ab"), ("x-b", b"c")]), of(&[("x-a", b"a"), ("x-b", b"bc")]), false),
            (of(&[("x-a", b"1"), ("x-a", b"2")]), of(&[("x-a", b"1"), ("x-b", b"2")]), false),
            (of(&[("x-a", b"1"), ("x-a", b"2")]), of(&[("x-a", b"2"), ("x-a", b"1")]), false),
            (of(&[("x-a", b"1"), ("x-a", b"2")]), of(&[("x-a", b"12")]), false),
            (of(&[("x-a", b"1"), ("x-a", b"2")]), of(&[("x-a", b"1,2")]), true),
            (of(&[("x-a", b"")]), of(&[]), false),
            (of(&[("x-a", b"")]), of(&[("x-b", b"")]), false),
            (of(&[("x-a", b"1"), ("x-c", b"2")]), of(&[("x-a", b"1")]), true),
            (of(&[("X-A", b"1")]), of(&[("x-a", b"1")]), true),
            (of(&[("x-a", b"\xFF")]), of(&[("x-a", b"\xFE")]), false),
        ] {
            check(&[a.clone(), b.clone()], &left, &right, equal);
        }
    }

    #[test]
    fn queries() {
        for (left, right, equal) in [
            (None, Some(""), true),
            (None, Some("b=1"), true),
            (None, Some("k"), false),
            (Some("k"), Some("k="), true),
            (Some("k=1"), Some("a=2&k=1&b=3"), true),
            (Some("k=1&k=2"), Some("k=1"), true),
            (Some("k=2&k=1"), Some("k=1"), false),
            (Some("k=1"), Some("kk=1"), false),
            (Some("k=1=2"), Some("k=1"), false),
            (Some("k=1%3B"), Some("k=1"), false),
            // One value has many spellings.
            (Some("k=1;a=2"), Some("k=1"), true),
            (Some("k=abc"), Some("k=%61b%63"), true),
            (Some("k=abc"), Some("%6B=abc"), true),
            (Some("k=a%2bb"), Some("k=a%2Bb"), true),
            (Some("k=a+b"), Some("k=a%20b"), true),
            (Some("k=a+b"), Some("k=a%2Bb"), false),
            (Some("k=a%2561"), Some("k=a%61"), false),
            (Some("k=1%262"), Some("k=1&2"), false),
            (Some("k=%"), Some("k=%25"), true),
            (Some("k=%zz"), Some("k=%25zz"), true),
            (Some("k=%4"), Some("k=4"), false),
        ] {
            let parts = [KeyPart::Query("k".into(), Repeated::First)];
            check(&parts, &KeyedRequest { query: left, ..NOTHING }, &KeyedRequest { query: right, ..NOTHING }, equal);
        }
    }

    #[test]
    fn uris() {
        for (left, right, equal) in [
            (("/a", None), ("/a", Some("")), true),
            (("/a", Some("b")), ("/a", Some("b")), true),
            (("/a", Some("b")), ("/a", Some("c")), false),
            (("/a", Some("b")), ("/a", None), false),
            (("/ab", None), ("/a", Some("b")), false),
        ] {
            let of = |(path, query)| KeyedRequest { path, query, ..NOTHING };
            check(&[KeyPart::Uri], &of(left), &of(right), equal);
        }
        let named = KeySecret::new([7; 16]).key_of_texts(&[KeyPart::Uri], &["/a?b"], Prefixes::default(), &[]);
        assert_eq!(named, Some(key_of(&[KeyPart::Uri], 64, &KeyedRequest { path: "/a", query: Some("b"), ..NOTHING })));
    }

    #[test]
    fn cookies() {
        let of = |lines: &[&'static [u8]]| KeyedRequest {
            headers: lines.iter().map(|line| ("cookie", *line)).collect(),
            ..NOTHING
        };
        for (left, right, equal) in [
            (of(&[]), of(&[b""]), true),
            (of(&[]), of(&[b"a=1; b=2"]), true),
            (of(&[]), of(&[b"k="]), false),
            (of(&[b"k=1"]), of(&[b"a=2; k=1; b=3"]), true),
            (of(&[b"k=1"]), of(&[b"a=2;k=1;b=3"]), true),
            (of(&[b"k=1"]), of(&[b"a=2", b"k=1"]), true),
            (of(&[b"k=1"]), of(&[b"k=1; k=2"]), true),
            (of(&[b"k=1"]), of(&[b"K=1"]), false),
            (of(&[b"k=1"]), of(&[b"k=2"]), false),
            (of(&[b"k=1=2"]), of(&[b"k=1"]), false),
            // One value has many spellings.
            (of(&[b"k=1"]), of(&[b" k = 1 ; a=2"]), true),
            (of(&[b"k=1"]), of(&[b"k=\"1\""]), true),
            (of(&[b"k=1"]), of(&[b"k=%31"]), true),
            (of(&[b"k=1"]), of(&[b"k=\"1"]), false),
            (of(&[b"k=\""]), of(&[b"k="]), false),
            (of(&[b"k=a+b"]), of(&[b"k=a%20b"]), false),
            // Bytes that are not UTF-8 do not hide the cookie beside them.
            (of(&[b"k=1"]), of(&[b"a=\xFF; k=1"]), true),
            (of(&[b"k=\xFF"]), of(&[b"k=\xFE"]), false),
        ] {
            check(&[KeyPart::Cookie("k".into(), Repeated::First)], &left, &right, equal);
        }
    }

    #[test]
    fn identities() {
        let of =
            |ip, principals: &[Principal<'static>]| KeyedRequest { ip, principals: principals.to_vec(), ..NOTHING };
        let (one, two) = ("192.0.2.1", "192.0.2.2");
        for (left, right, equal) in [
            (of(one, &[Principal::Bytes(b"a")]), of(two, &[Principal::Bytes(b"a")]), true),
            (of(one, &[Principal::Bytes(b"a")]), of(one, &[Principal::Bytes(b"b")]), false),
            (of(one, &[Principal::Bytes(b"a")]), of(one, &[Principal::Claim("a".into())]), true),
            (of(one, &[Principal::Bytes(b"a")]), of(one, &[Principal::Joined((*b"a").into())]), true),
            (of(one, &[Principal::Bytes(b"")]), of(one, &[Principal::Anonymous]), false),
            (of(one, &[Principal::Anonymous]), of(two, &[Principal::Anonymous]), true),
            (of(one, &[Principal::Anonymous]), of(one, &[]), true),
            (of(one, &[Principal::Ip]), of(two, &[Principal::Ip]), false),
            (of(one, &[Principal::Ip]), of(one, &[Principal::Ip]), true),
            (of(one, &[Principal::Ip]), of(one, &[Principal::Bytes(&[192, 0, 2, 1])]), false),
        ] {
            check(&[KeyPart::Identity(0)], &left, &right, equal);
        }
    }

    #[test]
    fn ipv4_addresses_by_network() {
        for (part, v4, left, right, equal) in [
            (KeyPart::Ip, 24, "192.0.2.1", "192.0.2.255", true),
            (KeyPart::Ip, 24, "192.0.2.1", "192.0.3.1", false),
            (KeyPart::Ip, 32, "192.0.2.1", "192.0.2.2", false),
            (KeyPart::Network { v4: 24, v6: None }, 32, "192.0.2.1", "192.0.2.255", true),
            (KeyPart::Network { v4: 24, v6: None }, 16, "192.0.2.1", "192.0.3.1", false),
            (KeyPart::Network { v4: 32, v6: None }, 16, "192.0.2.1", "192.0.2.2", false),
            (KeyPart::Network { v4: 24, v6: None }, 32, "2001:db8::1", "2001:db8::2", true),
            (KeyPart::Network { v4: 24, v6: None }, 32, "2001:db8:0:1::", "2001:db8::", false),
            (KeyPart::Network { v4: 24, v6: Some(48) }, 32, "2001:db8:0:1::", "2001:db8::", true),
            (KeyPart::Network { v4: 24, v6: Some(48) }, 32, "192.0.2.0", "c000:200::", false),
        ] {
            let prefixes = Prefixes { v4, ..Prefixes::default() };
            let parts = [part];
            let of = |ip| key_under(&parts, prefixes, &KeyedRequest { ip, ..NOTHING });
            assert_eq!(of(left) == of(right), equal, "{parts:?} /{v4} {left} {right}");
            for ip in [left, right] {
                let shown = parts[0].prefixes(prefixes).shown(ip.parse().unwrap());
                for text in [ip, &shown] {
                    let key = KeySecret::new([7; 16]).key_of_text(&parts, text, prefixes, &[]);
                    assert_eq!(key, Some(of(ip)), "{parts:?} /{v4} {text}");
                }
            }
        }
    }

    #[test]
    fn addresses_by_network() {
        for (prefix, left, right, equal) in [
            (64, "192.0.2.1", "192.0.2.1", true),
            (0, "192.0.2.1", "192.0.2.2", false),
            (64, "0.0.0.0", "::", false),
            (0, "0.0.0.0", "::", false),
            (64, "2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true),
            (64, "2001:db8::1", "2001:db8:0:1::1", false),
            (0, "2001:db8::1", "fe80::1", true),
            (1, "7fff::", "8000::", false),
            (1, "8000::", "ffff::", true),
            (48, "2001:db8:7:1::", "2001:db8:7:2::", true),
            (127, "2001:db8::2", "2001:db8::3", true),
            (127, "2001:db8::1", "2001:db8::2", false),
            (128, "2001:db8::2", "2001:db8::3", false),
            (128, "2001:db8::2", "2001:db8::2", true),
            (255, "2001:db8::2", "2001:db8::3", false),
        ] {
            let of = |ip| key_of(&[KeyPart::Ip], prefix, &KeyedRequest { ip, ..NOTHING });
            assert_eq!(of(left) == of(right), equal, "/{prefix} {left} {right}");
        }
    }

    #[test]
    fn the_secret_changes_keys_and_is_not_printed() {
        let [one, two] = [[1; 16], [2; 16]].map(KeySecret::new);
        assert_ne!(one.token(0, b"x"), two.token(0, b"x"));
        assert_eq!(one.token(0, b"x"), one.token(0, b"x"));
        assert_eq!(format!("{one:?}"), "KeySecret");
    }

    #[test]
    fn token_hashes_differ_from_keys() {
        assert_ne!(KeySecret::new([7; 16]).token(0, b""), key_of(&[], 64, &NOTHING));
    }
}
