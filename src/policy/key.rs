//! Whose budget: the parts of a key, hashed to 128 bits under a secret of this process.
//!
//! The text of a key is never kept. SipHash-1-3 with a secret key makes two keys that collide
//! impossible to look for from outside; by chance, a billion keys collide with probability 2^-69.

use std::hash::Hasher;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::{Applied, Facts};
use crate::limit::Key;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address; IPv6 by its network.
    Ip,
    /// The normalised path, without the query.
    Path,
    /// The pattern that matched.
    Route,
    /// The host, lower-cased, without its port.
    Host,
    /// The method.
    Method,
    /// An identity, by its index in the policy.
    Identity(usize),
    /// All values of a header, in order.
    Header(HeaderName),
    /// The first value of a query parameter, as sent.
    Query(Box<str>),
    /// The first cookie of this name, as sent.
    Cookie(Box<str>),
}

/// Who a request turned out to be from, for one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// A value, from a header.
    Bytes(&'a [u8]),
    /// A value, from a verified claim.
    Claim(std::sync::Arc<str>),
    /// Nobody in particular.
    Anonymous,
    /// Nobody; its address stands in.
    Ip,
}

/// The secret under which keys are hashed.
#[derive(Clone, Copy)]
pub struct KeySecret {
    template: SipHasher13,
}

impl std::fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySecret")
    }
}

impl KeySecret {
    /// From 16 random bytes.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { template: SipHasher13::new_with_key(&secret) }
    }

    /// The hash of a token of the `identity`-th identity.
    pub fn token(&self, identity: usize, bytes: &[u8]) -> Key {
        let mut hasher = self.template;
        hasher.write_u8(tag::TOKEN);
        hasher.write_usize(identity);
        hasher.write(bytes);
        finish(&hasher)
    }

    /// The key of a request under a limit that applies to it. `who` has one entry for each identity of the policy.
    pub fn key(&self, applied: &Applied<'_>, facts: &Facts<'_>, ipv6_prefix: u8, who: &[Who<'_>]) -> Key {
        let mut hasher = self.template;
        for part in &applied.limit.key {
            match part {
                KeyPart::Ip => write_ip(&mut hasher, facts.client_ip, ipv6_prefix),
                KeyPart::Path => write(&mut hasher, tag::TEXT, facts.path.as_bytes()),
                KeyPart::Route => write(&mut hasher, tag::TEXT, applied.route.as_bytes()),
                KeyPart::Host => write(&mut hasher, tag::TEXT, facts.host.as_bytes()),
                KeyPart::Method => write(&mut hasher, tag::TEXT, facts.method.as_str().as_bytes()),
                KeyPart::Identity(index) => match who.get(*index).unwrap_or(&Who::Anonymous) {
                    Who::Bytes(bytes) => write(&mut hasher, tag::TEXT, bytes),
                    Who::Claim(text) => write(&mut hasher, tag::TEXT, text.as_bytes()),
                    Who::Anonymous => hasher.write_u8(tag::ABSENT),
                    Who::Ip => write_ip(&mut hasher, facts.client_ip, ipv6_prefix),
                },
                KeyPart::Header(name) => write_header(&mut hasher, facts.headers, name),
                KeyPart::Query(name) => {
                    write_optional(&mut hasher, facts.query.and_then(|query| find(query, '&', name)))
                }
                KeyPart::Cookie(name) => write_optional(&mut hasher, cookie(facts.headers, name)),
            }
        }
        finish(&hasher)
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
}

fn finish(hasher: &SipHasher13) -> Key {
    let hash = hasher.finish128();
    Key { halves: [hash.h1, hash.h2] }
}

fn write(hasher: &mut SipHasher13, tag: u8, bytes: &[u8]) {
    hasher.write_u8(tag);
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
}

fn write_optional(hasher: &mut SipHasher13, text: Option<&str>) {
    match text {
        Some(text) => write(hasher, tag::TEXT, text.as_bytes()),
        None => hasher.write_u8(tag::ABSENT),
    }
}

fn write_ip(hasher: &mut SipHasher13, ip: IpAddr, ipv6_prefix: u8) {
    match ip {
        IpAddr::V4(ip) => {
            hasher.write_u8(tag::IPV4);
            hasher.write(&ip.octets());
        }
        IpAddr::V6(ip) => {
            let host_bits = u32::from(128 - ipv6_prefix.min(128));
            let network = u128::from(ip).checked_shr(host_bits).unwrap_or(0);
            hasher.write_u8(tag::IPV6);
            hasher.write_u128(network);
        }
    }
}

fn write_header(hasher: &mut SipHasher13, headers: &HeaderMap, name: &HeaderName) {
    let values = headers.get_all(name);
    hasher.write_u8(tag::VALUES);
    hasher.write_usize(values.iter().count());
    for value in &values {
        write(hasher, tag::TEXT, value.as_bytes());
    }
}

/// The value of `name` among `name=value` pairs; a pair without `=` has an empty one.
fn find<'t>(pairs: &'t str, separator: char, name: &str) -> Option<&'t str> {
    pairs.split(separator).find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (found.trim_ascii() == name).then_some(value)
    })
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get_all(header::COOKIE).iter().find_map(|line| find(line.to_str().ok()?, ';', name))
}
