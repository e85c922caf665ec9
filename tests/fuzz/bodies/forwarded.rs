//! `X-Forwarded-For` and `Forwarded` lines, one each line: whose address a client has.

use std::net::IpAddr;

use ipnet::IpNet;
use weir::policy::FieldBuf;
use weir::policy::client_ip::ClientIpRules;

pub fn run(bytes: &[u8]) {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().expect("a network"), "fd00::/8".parse().expect("a network")];
    let rules = ClientIpRules { trusted, ipv6_prefix: 64 };
    let mut headers = FieldBuf::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.strip_prefix(b"f:") {
            Some(value) => headers.push(b"forwarded", value),
            None => headers.push(b"x-forwarded-for", line),
        }
    }
    let ask = |peer: &str| rules.client_ip(peer.parse().expect("an address"), headers.fields());
    // Whom nobody trusts is who it is, whatever it says.
    assert_eq!(ask("192.0.2.1"), "192.0.2.1".parse::<IpAddr>().expect("an address"));
    let found = ask("10.0.0.1");
    assert_eq!(found, found.to_canonical());
    assert_eq!(found, ask("::ffff:10.0.0.1"));
    // What a client puts to the left of itself changes nothing.
    if !rules.is_trusted(found) {
        let mut forged = FieldBuf::default();
        forged.push(b"x-forwarded-for", b"203.0.113.99");
        for (name, value) in headers.fields().iter() {
            forged.push(name, value);
        }
        assert_eq!(rules.client_ip("10.0.0.1".parse().expect("an address"), forged.fields()), found);
    }
}
