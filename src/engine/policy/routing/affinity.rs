//! Endpoint affinity: requests with one client address, or one value of a key part, go to one endpoint.
//!
//! This hash has no secret, unlike the hash of keys: every Weir sends such requests to the same endpoint, also after a
//! restart. A client that chooses the hashed value can choose an endpoint, and nothing else.

use std::net::IpAddr;

use siphasher::sip128::SipHasher13;

use crate::engine::policy::facts::Facts;
use crate::engine::policy::keys::part::KeyPart;
use crate::engine::policy::matching::values::{Repeated, as_read, compared, in_cookie, in_header, in_query};

/// The hash of the value of `part`, or of its first value. Without a value it is the hash of the client's address, so
/// that such requests do not all go to one endpoint.
pub fn affinity(part: &KeyPart, facts: &Facts<'_>) -> u64 {
    const FIRST: Repeated = Repeated::First;
    let hash = |value: &[u8]| text(compared(value));
    let found = match part {
        KeyPart::Path => return text(facts.path.as_bytes()),
        KeyPart::Host => return text(facts.host.as_bytes()),
        KeyPart::Header(name, _) => {
            in_header(facts.headers, name, FIRST).map(|value| value.map(|value| text(&as_read(&value))))
        }
        KeyPart::Query(name, _) => in_query(facts.query, name, FIRST).map(|value| value.as_deref().map(hash)),
        KeyPart::Cookie(name, _) => in_cookie(facts.headers, name, FIRST).map(|value| value.as_deref().map(hash)),
        KeyPart::Ip
        | KeyPart::Network { .. }
        | KeyPart::Uri
        | KeyPart::Route
        | KeyPart::Parameter(_)
        | KeyPart::Method
        | KeyPart::Identity(_)
        | KeyPart::Json(_)
        | KeyPart::Named(_) => Ok(None),
    };
    found.ok().flatten().unwrap_or_else(|| address(facts))
}

/// The hash of a text, equal in every process: the first 64 bits of SipHash-1-3-128 with a fixed key.
pub fn text(bytes: &[u8]) -> u64 {
    SipHasher13::new_with_key(b"weir's endpoints").hash(bytes).h1
}

fn address(facts: &Facts<'_>) -> u64 {
    match facts.client_ip {
        IpAddr::V4(ip) => text(&ip.octets()),
        // A host may use any address of its network (RFC 4291, section 2.5.1).
        IpAddr::V6(ip) => text(&ip.octets()[..8]),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Method};

    use super::*;
    use crate::base::fields::FieldBuf;

    /// The hash of a request from `ip` for `path?query` with these fields.
    fn of(part: &KeyPart, ip: &str, path: &str, query: Option<&str>, fields: &[(&str, &str)]) -> u64 {
        let mut headers = FieldBuf::default();
        for (name, value) in fields {
            headers.push(name.as_bytes(), value.as_bytes());
        }
        let client_ip = ip.parse().unwrap_or(IpAddr::from([0; 4]));
        let headers = headers.fields();
        affinity(
            part,
            &Facts {
                method: &Method::GET,
                host: "h",
                path,
                query,
                headers,
                client_ip,
                is_free_preflight: false,
                is_proxied: false,
                certificate: None,
                cost: None,
                body: None,
            },
        )
    }

    #[test]
    fn equal_values_have_equal_hashes() {
        let header = KeyPart::Header(HeaderName::from_static("x-user"), Repeated::First);
        let (query, cookie) =
            (KeyPart::Query("user".into(), Repeated::First), KeyPart::Cookie("user".into(), Repeated::First));
        let ip = of(&KeyPart::Ip, "192.0.2.1", "/", None, &[]);
        assert_eq!(ip, of(&KeyPart::Ip, "192.0.2.1", "/other", Some("q"), &[("x-user", "1")]));
        assert_ne!(ip, of(&KeyPart::Ip, "192.0.2.2", "/", None, &[]));
        let v6 = |ip| of(&KeyPart::Ip, ip, "/", None, &[]);
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::ffff:1"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));

        let user = of(&header, "192.0.2.1", "/", None, &[("x-user", "1")]);
        assert_eq!(user, of(&header, "192.0.2.2", "/a", None, &[("X-User", "1")]));
        assert_eq!(user, of(&query, "192.0.2.2", "/", Some("a=b&user=%31"), &[]));
        assert_eq!(user, of(&cookie, "192.0.2.2", "/", None, &[("cookie", "a=b; user=1")]));
        for part in [&header, &query, &cookie] {
            assert_eq!(of(part, "192.0.2.1", "/", None, &[]), ip, "without it the address counts");
        }
        assert_eq!(
            of(&KeyPart::Path, "192.0.2.1", "/a", None, &[]),
            of(&KeyPart::Path, "192.0.2.2", "/a", Some("b"), &[])
        );
    }

    /// Hashes are equal in all versions, so that several Weirs agree.
    #[test]
    fn hashes_are_pinned() {
        assert_eq!(text(b""), 17_122_903_869_460_495_372);
        assert_eq!(text(b"http://10.0.0.1:8000"), 9_182_797_108_058_936_313);
    }
}
