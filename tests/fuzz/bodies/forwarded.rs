//! `X-Forwarded-For` and `Forwarded` lines, one each line: whose address a client has by one or the other.

use std::net::IpAddr;

use ipnet::IpNet;
use weir::base::fields::{FieldBuf, Fields};
use weir::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};

pub fn run(bytes: &[u8]) {
    let mut headers = FieldBuf::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.strip_prefix(b"f:") {
            Some(value) => headers.push(b"forwarded", value),
            None => headers.push(b"x-forwarded-for", line),
        }
    }
    let forged: [(&[u8], &[u8]); 2] = [(b"x-forwarded-for", b"203.0.113.99"), (b"forwarded", b"for=203.0.113.99")];
    check(AddressHeader::XForwardedFor, headers.fields(), forged[0], forged[1]);
    check(AddressHeader::Forwarded, headers.fields(), forged[1], forged[0]);
}

fn check(header: AddressHeader, headers: Fields<'_>, forged: (&[u8], &[u8]), other: (&[u8], &[u8])) {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().expect("a network"), "fd00::/8".parse().expect("a network")];
    let rules = ClientIpRules { trusted, header, prefixes: Prefixes::default() };
    let ask = |peer: &str, headers: Fields<'_>| rules.client_ip(peer.parse().expect("an address"), headers);
    // Whom nobody trusts is who it is, whatever it says.
    assert_eq!(ask("192.0.2.1", headers), "192.0.2.1".parse::<IpAddr>().expect("an address"));
    let found = ask("10.0.0.1", headers);
    assert_eq!(found, found.to_canonical());
    assert_eq!(found, ask("::ffff:10.0.0.1", headers));
    // What a client puts to the left of itself changes nothing, nor does anything in the header that is not believed.
    let with = |fields: &[(&[u8], &[u8])], behind: &[(&[u8], &[u8])]| {
        let all: FieldBuf = fields.iter().copied().chain(headers.iter()).chain(behind.iter().copied()).collect();
        ask("10.0.0.1", all.fields())
    };
    if !rules.is_trusted(found) {
        assert_eq!(with(&[forged], &[]), found);
    }
    assert_eq!(with(&[other], &[other]), found);
    // What the proxy in front adds at the right end is what counts.
    assert_eq!(with(&[], &[forged]), "203.0.113.99".parse::<IpAddr>().expect("an address"));
}
