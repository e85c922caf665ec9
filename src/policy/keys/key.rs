//! Whose budget: the parts of a key, hashed to 128 bits under a secret of this process.
//!
//! The text of a key is never kept. SipHash-1-3 with a secret key makes two keys that collide
//! impossible to look for from outside; by chance, a billion keys collide with probability 2^-69.
//!
//! Each part says by its first word how many follow, and the parts of a limit are always the same. So of two
//! keys that differ neither is the beginning of the other, as `siphash` asks.

use std::net::{IpAddr, Ipv4Addr};

use smallvec::SmallVec;

use super::part::KeyPart;
use super::siphash::{SipHasher, halves};
use crate::limit::Key;
use crate::policy::facts::Facts;
use crate::policy::identity::client_ip::unmap;
use crate::policy::identity::who::Who;
use crate::policy::matching::values::{Repeated, Several, compared, in_cookie, in_header, in_query, list};

/// The secret under which keys are hashed.
#[derive(Clone, Copy)]
pub struct KeySecret {
    template: SipHasher,
}

impl std::fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySecret")
    }
}

impl KeySecret {
    /// From 16 random bytes.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { template: SipHasher::new(secret) }
    }

    /// The hash of a token of the `identity`-th identity.
    pub fn token(&self, identity: usize, bytes: &[u8]) -> Key {
        let hasher = tagged(self.template, tag::TOKEN, identity as u64);
        finish(text(hasher, bytes))
    }

    /// The key of a client's address alone.
    pub fn of_address(&self, address: IpAddr, ipv6_prefix: u8) -> Key {
        finish(ip(self.template, address, ipv6_prefix))
    }

    /// A few bits of a hash, by which people tell texts apart that they are not to read. Without the secret nobody can
    /// try which text has it.
    pub fn fingerprint(&self, bytes: &[u8]) -> u32 {
        let Key { first, .. } = finish(text(tagged(self.template, tag::FINGERPRINT, 0), bytes));
        u32::try_from(first >> 32).unwrap_or(0)
    }

    /// The key that `parts` of a request make; `route` is the pattern that matched its path. `who` has one entry for each identity of the policy.
    ///
    /// # Errors
    /// The part that the request has several times, which the limit does not allow.
    #[inline]
    pub fn key<'p>(
        &self,
        parts: &'p [KeyPart],
        route: &str,
        facts: &Facts<'_>,
        ipv6_prefix: u8,
        who: &[Who<'_>],
    ) -> Result<Key, &'p KeyPart> {
        // By far the most limits have such a key, and so its hash does not leave the registers.
        if let ([KeyPart::Ip], IpAddr::V4(ip)) = (parts, facts.client_ip) {
            return Ok(finish(ipv4(self.template, ip)));
        }
        self.key_of_parts(parts, route, facts, ipv6_prefix, who)
    }

    #[inline(never)]
    fn key_of_parts<'p>(
        &self,
        parts: &'p [KeyPart],
        route: &str,
        facts: &Facts<'_>,
        ipv6_prefix: u8,
        who: &[Who<'_>],
    ) -> Result<Key, &'p KeyPart> {
        let add = |hasher, part: &'p KeyPart| {
            let hashed = match part {
                KeyPart::Ip => Ok(ip(hasher, facts.client_ip, ipv6_prefix)),
                KeyPart::Path => Ok(text(hasher, facts.path.as_bytes())),
                KeyPart::Route => Ok(text(hasher, route.as_bytes())),
                KeyPart::Host => Ok(text(hasher, facts.host.as_bytes())),
                KeyPart::Method => Ok(text(hasher, facts.method.as_str().as_bytes())),
                KeyPart::Identity(index) => Ok(match who.get(*index).unwrap_or(&Who::Anonymous) {
                    Who::Bytes(bytes) => text(hasher, compared(bytes)),
                    Who::Joined(bytes) => text(hasher, compared(bytes)),
                    Who::Claim(claim) => text(hasher, compared(claim.as_bytes())),
                    Who::Anonymous => tagged(hasher, tag::ABSENT, 0),
                    Who::Ip => ip(hasher, facts.client_ip, ipv6_prefix),
                }),
                KeyPart::Header(name, several) => {
                    in_header(facts.headers, name, *several).map(|value| header(hasher, value.as_deref()))
                }
                KeyPart::Query(name, several) => {
                    in_query(facts.query, name, *several).map(|value| optional(hasher, value.as_deref()))
                }
                KeyPart::Cookie(name, several) => {
                    in_cookie(facts.headers, name, *several).map(|value| optional(hasher, value.as_deref()))
                }
            };
            hashed.map_err(|Several| part)
        };
        parts.iter().try_fold(self.template, add).map(finish)
    }
}

impl KeySecret {
    /// The key of a request whose parts read so, in the order of `parts`; none if an address is not one, or there are
    /// more or fewer texts than parts. For those who name a key in writing.
    pub fn key_of_texts(&self, parts: &[KeyPart], texts: &[&str], ipv6_prefix: u8) -> Option<Key> {
        if parts.len() != texts.len() {
            return None;
        }
        let hashed = parts.iter().zip(texts).try_fold(self.template, |hasher, (part, value)| match part {
            KeyPart::Ip => value.parse().ok().map(|address| ip(hasher, unmap(address), ipv6_prefix)),
            KeyPart::Header(_, Repeated::Join) => Some(header(hasher, Some(&list([value.as_bytes()])))),
            KeyPart::Header(..) => Some(header(hasher, Some(value.as_bytes()))),
            KeyPart::Identity(_) | KeyPart::Query(..) | KeyPart::Cookie(..) => {
                Some(optional(hasher, Some(value.as_bytes())))
            }
            _ => Some(text(hasher, value.as_bytes())),
        });
        hashed.map(finish)
    }

    /// The same of one text: with several parts they stand in it with `|` between them.
    pub fn key_of_text(&self, parts: &[KeyPart], text: &str, ipv6_prefix: u8) -> Option<Key> {
        let texts: SmallVec<[&str; 4]> = if parts.len() > 1 { text.split('|').collect() } else { [text][..].into() };
        self.key_of_texts(parts, &texts, ipv6_prefix)
    }
}

/// What stands before each part, so that no two lists of parts have the same bytes.
mod tag {
    pub(super) const ABSENT: u8 = 0;
    pub(super) const TEXT: u8 = 1;
    pub(super) const IPV4: u8 = 2;
    pub(super) const IPV6: u8 = 3;
    pub(super) const VALUES: u8 = 4;
    pub(super) const TOKEN: u8 = 5;
    pub(super) const FINGERPRINT: u8 = 6;
}

// Hashers are taken and given back by value, so that they can stay in registers.

#[inline]
fn finish(hasher: SipHasher) -> Key {
    let (first, second) = hasher.finish();
    Key { first, second }
}

/// A tag and a number below 2^56 in one word.
#[inline]
fn tagged(hasher: SipHasher, tag: u8, number: u64) -> SipHasher {
    hasher.word(u64::from(tag) | number << 8)
}

fn text(hasher: SipHasher, bytes: &[u8]) -> SipHasher {
    tagged(hasher, tag::TEXT, bytes.len() as u64).bytes(bytes)
}

fn optional(hasher: SipHasher, value: Option<&[u8]>) -> SipHasher {
    match value {
        Some(value) => text(hasher, compared(value)),
        None => tagged(hasher, tag::ABSENT, 0),
    }
}

/// A header counts its lines, as it did when all of them were hashed: state that is kept in files stays good.
fn header(hasher: SipHasher, value: Option<&[u8]>) -> SipHasher {
    match value {
        Some(value) => text(tagged(hasher, tag::VALUES, 1), compared(value)),
        None => tagged(hasher, tag::VALUES, 0),
    }
}

#[inline]
fn ipv4(hasher: SipHasher, ip: Ipv4Addr) -> SipHasher {
    tagged(hasher, tag::IPV4, ip.to_bits().into())
}

fn ip(hasher: SipHasher, ip: IpAddr, ipv6_prefix: u8) -> SipHasher {
    match ip {
        IpAddr::V4(ip) => ipv4(hasher, ip),
        IpAddr::V6(ip) => {
            let prefix = ipv6_prefix.min(128);
            let network = u128::from(ip).checked_shr(u32::from(128 - prefix)).unwrap_or(0);
            let [low, high] = halves(network);
            let hasher = tagged(hasher, tag::IPV6, prefix.into()).word(low);
            if prefix > 64 { hasher.word(high) } else { hasher }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fields::FieldBuf;
    use http::{HeaderName, Method};

    /// A request, as `key` may look at it.
    #[derive(Clone, Debug)]
    struct Request {
        ip: &'static str,
        path: &'static str,
        route: &'static str,
        host: &'static str,
        method: Method,
        query: Option<&'static str>,
        headers: Vec<(&'static str, &'static [u8])>,
        who: Vec<Who<'static>>,
    }

    const NOTHING: Request = Request {
        ip: "192.0.2.1",
        path: "/",
        route: "",
        host: "",
        method: Method::GET,
        query: None,
        headers: Vec::new(),
        who: Vec::new(),
    };

    fn key_of(parts: &[KeyPart], prefix: u8, request: &Request) -> Key {
        let headers: FieldBuf = request.headers.iter().copied().collect();
        let facts = Facts {
            method: &request.method,
            host: request.host,
            path: request.path,
            query: request.query,
            headers: headers.fields(),
            client_ip: request.ip.parse().unwrap(),
            is_free_preflight: false,
            certificate: None,
        };
        KeySecret::new([7; 16]).key(parts, request.route, &facts, prefix, &request.who).unwrap()
    }

    fn check(parts: &[KeyPart], left: &Request, right: &Request, equal: bool) {
        let same = key_of(parts, 64, left) == key_of(parts, 64, right);
        assert_eq!(same, equal, "{parts:?}\n{left:?}\n{right:?}");
    }

    #[test]
    fn a_key_is_made_of_its_parts_only() {
        use KeyPart::{Host, Ip, Method as Verb, Path, Route};
        let base = Request { path: "/a", route: "/{x}", host: "h", ..NOTHING };
        let others = [
            Request { ip: "192.0.2.2", ..base.clone() },
            Request { path: "/b", ..base.clone() },
            Request { route: "/{y}", ..base.clone() },
            Request { host: "i", ..base.clone() },
            Request { method: Method::PUT, ..base.clone() },
        ];
        for (at, part) in [Ip, Path, Route, Host, Verb].into_iter().enumerate() {
            for (changed, other) in others.iter().enumerate() {
                check(std::slice::from_ref(&part), &base, other, at != changed);
                check(&[], &base, other, true);
            }
        }
    }

    /// Snapshots hold keys, so a key must stay the same from version to version.
    #[test]
    fn keys_of_addresses_are_pinned() {
        for (ip, prefix, first) in [
            ("192.0.2.1", 64, 0x9b3b_27ae_8da3_d335),
            ("2001:db8::1", 64, 0x6f90_6fe6_4f1d_3e26),
            ("2001:db8::2", 64, 0x6f90_6fe6_4f1d_3e26),
            ("2001:db8::1", 65, 0xa5e8_9f53_cb18_da1a),
            ("2001:db8::1", 128, 0x1aa5_b289_0eda_6c06),
        ] {
            let key = key_of(&[KeyPart::Ip], prefix, &Request { ip, ..NOTHING });
            assert_eq!(key.first, first, "{ip}/{prefix}");
        }
    }

    #[test]
    fn a_text_names_all_parts() {
        let secret = KeySecret::new([7; 16]);
        let two = [KeyPart::Host, KeyPart::Path];
        let key = |parts: &[KeyPart], text| secret.key_of_text(parts, text, 64);
        assert_eq!(key(&two, "h|/a"), secret.key_of_texts(&two, &["h", "/a"], 64));
        assert!(key(&two, "h|/a").is_some() && key(&two, "h").is_none() && key(&two, "h|/a|b").is_none());
        assert_eq!(key(&two[..1], "h|/a"), secret.key_of_texts(&two[..1], &["h|/a"], 64));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |path, host| Request { path, host, ..NOTHING };
        let parts = [KeyPart::Path, KeyPart::Host];
        for (left, right, equal) in [
            (of("/ab", "c"), of("/ab", "c"), true),
            (of("/ab", "c"), of("/a", "bc"), false),
            (of("/ab", ""), of("", "/ab"), false),
            (of("", ""), of("\0", ""), false),
            // Nor if a value imitates what stands between parts.
            (of("/a\u{1}b", "c"), of("/a", "b\u{1}c"), false),
        ] {
            check(&parts, &left, &right, equal);
        }
    }

    #[test]
    fn headers_that_are_joined_count_with_all_values_in_order() {
        let of = |headers: &[(&'static str, &'static [u8])]| Request { headers: headers.to_vec(), ..NOTHING };
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
            check(&parts, &Request { query: left, ..NOTHING }, &Request { query: right, ..NOTHING }, equal);
        }
    }

    #[test]
    fn cookies() {
        let of = |lines: &[&'static [u8]]| Request {
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
            // Bytes that are no text do not hide the cookie beside them.
            (of(&[b"k=1"]), of(&[b"a=\xFF; k=1"]), true),
            (of(&[b"k=\xFF"]), of(&[b"k=\xFE"]), false),
        ] {
            check(&[KeyPart::Cookie("k".into(), Repeated::First)], &left, &right, equal);
        }
    }

    #[test]
    fn identities() {
        let of = |ip, who: &[Who<'static>]| Request { ip, who: who.to_vec(), ..NOTHING };
        let (one, two) = ("192.0.2.1", "192.0.2.2");
        for (left, right, equal) in [
            (of(one, &[Who::Bytes(b"a")]), of(two, &[Who::Bytes(b"a")]), true),
            (of(one, &[Who::Bytes(b"a")]), of(one, &[Who::Bytes(b"b")]), false),
            (of(one, &[Who::Bytes(b"a")]), of(one, &[Who::Claim("a".into())]), true),
            (of(one, &[Who::Bytes(b"a")]), of(one, &[Who::Joined((*b"a").into())]), true),
            (of(one, &[Who::Bytes(b"")]), of(one, &[Who::Anonymous]), false),
            (of(one, &[Who::Anonymous]), of(two, &[Who::Anonymous]), true),
            (of(one, &[Who::Anonymous]), of(one, &[]), true),
            (of(one, &[Who::Ip]), of(two, &[Who::Ip]), false),
            (of(one, &[Who::Ip]), of(one, &[Who::Ip]), true),
            (of(one, &[Who::Ip]), of(one, &[Who::Bytes(&[192, 0, 2, 1])]), false),
        ] {
            check(&[KeyPart::Identity(0)], &left, &right, equal);
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
            let of = |ip| key_of(&[KeyPart::Ip], prefix, &Request { ip, ..NOTHING });
            assert_eq!(of(left) == of(right), equal, "/{prefix} {left} {right}");
        }
    }

    #[test]
    fn the_secret_counts_and_does_not_show() {
        let [one, two] = [[1; 16], [2; 16]].map(KeySecret::new);
        assert_ne!(one.token(0, b"x"), two.token(0, b"x"));
        assert_eq!(one.token(0, b"x"), one.token(0, b"x"));
        assert_eq!(format!("{one:?}"), "KeySecret");
    }

    #[test]
    fn opaque_bytes_are_no_key_of_a_request() {
        assert_ne!(KeySecret::new([7; 16]).token(0, b""), key_of(&[], 64, &NOTHING));
    }
}
