//! Client certificates: which are accepted, and their identities.

use std::net::SocketAddr;

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::beside::tls_address;
use super::{BOTH, HOST, Lab};
use crate::ops::replace;
use crate::support::{Cert, Client, NEVER, Upstream, Weir, connect_tls, over_h2_tls, trusting};

const FAILED: &str = "weir_tls_handshakes_failed_total";

/// The status of a request with this client certificate; none without a session.
fn status(lab: &Lab, own: Option<&Cert>) -> Option<u16> {
    status_at(lab.weir.address(), lab, own)
}

fn status_at(address: SocketAddr, lab: &Lab, own: Option<&Cert>) -> Option<u16> {
    let mut client = connect_tls(address, &trusting(&[&lab.cert], BOTH, &["http/1.1"], own), HOST).ok()?;
    // In TLS 1.3 the handshake of a client ends before its certificate is verified.
    let sent = std::io::Write::write_all(client.stream(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    sent.ok().and_then(|()| client.try_answer()).map(|answer| answer.status)
}

fn limit(identity: &str) -> String {
    format!("{identity}\n[[limit]]\nname = \"l\"\nkey = [\"device\"]\nrate = \"1/h\"\nburst = 2\n")
}

#[test]
fn a_required_certificate_must_be_valid() {
    let (authority, stranger) = (Cert::authority(), Cert::authority());
    let certs = [("clients", &authority)];
    for (option, without) in
        [("", None), (", client_auth = \"required\"", None), (", client_auth = \"optional\"", Some(200))]
    {
        let lab = Lab::with(Upstream::start(), &format!("client_ca = \"clients.pem\"{option}"), "", NEVER, &certs);
        let good = authority.client("device-1", &[], &[]);
        let foreign = stranger.client("device-1", &[], &[]);
        let own = Cert::of_hosts(&["device-1"]);
        for version in [&TLS12, &TLS13] {
            let config = trusting(&[&lab.cert], &[version], &[], Some(&good));
            assert_eq!(connect_tls(lab.weir.address(), &config, HOST).unwrap().get("/").status, 200);
        }
        assert_eq!(status(&lab, Some(&good)), Some(200));
        assert_eq!(status(&lab, None), without, "{option}");
        assert_eq!(status(&lab, Some(&foreign)), None);
        assert_eq!(status(&lab, Some(&own)), None);
        let failed = if without.is_some() { 2.0 } else { 3.0 };
        assert_eq!(lab.weir.wait_for_metric(FAILED, |count| count >= failed), failed);
    }
}

#[test]
fn the_names_in_a_certificate_are_identities() {
    let authority = Cert::authority();
    let certs = [("clients", &authority)];
    let lab_of = |name: &str, on_missing: &str| {
        let identity = format!("[identity.device]\ntls = \"{name}\"\non_missing = \"{on_missing}\"");
        let tls = "client_ca = \"clients.pem\", client_auth = \"optional\"";
        Lab::with(Upstream::start(), tls, "", &limit(&identity), &certs)
    };
    let first = authority.client("cn-1", &["dns-1.test"], &["spiffe://test/1"]);
    let renewed = authority.client("cn-1", &["dns-1.test"], &["spiffe://test/1"]);
    let second = authority.client("cn-2", &["dns-2.test"], &["spiffe://test/2"]);
    let nameless = authority.client("", &[], &[]);
    let several = authority.client("cn-3", &["a.test", "b.test"], &["spiffe://test/3"]);
    for (name, of_several) in [("subject_cn", 200), ("san_dns", 401), ("san_uri", 200)] {
        let lab = lab_of(name, "reject");
        for (own, expected) in [
            (Some(&first), 200),
            (Some(&renewed), 200),
            (Some(&first), 429),
            (Some(&second), 200),
            (Some(&nameless), 401),
            (Some(&several), of_several),
            (None, 401),
        ] {
            assert_eq!(status(&lab, own), Some(expected), "{name}");
        }
        // Over HTTP/2, and in a further session.
        let config = trusting(&[&lab.cert], BOTH, &["h2"], Some(&second));
        for expected in [200, 429] {
            over_h2_tls(lab.weir.address(), config.clone(), HOST, async |mut client, _| {
                assert_eq!(client.get("/").await.unwrap().status, expected, "{name}");
            });
        }
    }
    let lab = lab_of("subject_cn", "anonymous");
    assert_eq!([(); 3].map(|()| status(&lab, None)), [Some(200), Some(200), Some(429)]);
    assert_eq!(status(&lab, Some(&first)), Some(200));
}

/// Names are compared byte by byte, but those of the DNS in lower case.
#[test]
fn a_list_names_one_certificate() {
    let authority = Cert::authority();
    let first = authority.client("Acme, Inc.", &["a.test"], &[]);
    let second = authority.client("Acme,Inc.", &["b.test"], &[]);
    for (name, denied, expected) in [
        ("subject_cn", "Acme, Inc.", [403, 200, 429]),
        ("subject_cn", "Acme,Inc.,", [200, 200, 429]),
        ("subject_cn", "acme,inc.", [200, 200, 429]),
        ("san_dns", "A.Test", [403, 200, 429]),
    ] {
        let rest = format!(
            "[identity.device]\ntls = \"{name}\"\n[access]\ndeny.identity.device = \"{denied}\"\n\
             [[limit]]\nname = \"l\"\nkey = [\"device\"]\nrate = \"1/h\"\n"
        );
        let lab = Lab::with(Upstream::start(), "client_ca = \"clients.pem\"", "", &rest, &[("clients", &authority)]);
        let found = [&first, &second, &second].map(|own| status(&lab, Some(own)).unwrap());
        assert_eq!(found, expected, "{name} {denied}");
    }
}

/// A resumed session would skip the check of the certificate, which may have expired.
#[test]
fn a_session_with_a_client_certificate_is_not_resumed() {
    let authority = Cert::authority();
    for client_auth in ["required", "optional"] {
        let option = format!("client_ca = \"clients.pem\", client_auth = \"{client_auth}\"");
        let lab = Lab::with(Upstream::start(), &option, "", NEVER, &[("clients", &authority)]);
        let own = authority.client("device", &[], &[]);
        for version in [&TLS12, &TLS13] {
            let config = trusting(&[&lab.cert], &[version], &[], Some(&own));
            for _ in 0..3 {
                let mut client = connect_tls(lab.weir.address(), &config, HOST).unwrap();
                assert_eq!(client.get("/").status, 200);
                let kind = client.stream().conn.handshake_kind();
                assert_eq!(kind, Some(HandshakeKind::Full), "{client_auth} {version:?}");
            }
        }
    }
}

#[test]
fn another_authority_ends_old_sessions() {
    let (old, new) = (Cert::authority(), Cert::authority());
    let lab = Lab::with(Upstream::start(), "client_ca = \"clients.pem\"", "", NEVER, &[("clients", &old)]);
    let own = old.client("device", &[], &[]);
    let config = trusting(&[&lab.cert], BOTH, &[], Some(&own));
    let ask = || {
        let mut client = connect_tls(lab.weir.address(), &config, HOST).ok()?;
        let sent = std::io::Write::write_all(client.stream(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        sent.ok().and_then(|()| client.try_answer()).map(|answer| answer.status)
    };
    assert_eq!(ask(), Some(200));
    replace(&lab.weir.folder().join("clients.pem"), &new.pem);
    lab.weir.wait_until("the new authority", || status(&lab, Some(&new.client("device", &[], &[]))) == Some(200));
    assert_eq!(ask(), None, "the old authority is trusted no more");
}

/// A configuration with another address asks for no certificate there. The listener has its first address until a restart.
#[test]
fn another_address_opens_nothing_before_a_restart() {
    const CLIENTS: &str = "client_ca = \"clients.pem\"";
    const LISTEN: &str = "listen = \"127.0.0.1:0\"\nworkers";
    const BESIDE: &str = "listen = [\"127.0.0.1:0\"]";
    let authority = Cert::authority();
    let own = authority.client("device-1", &[], &[]);
    let lab = Lab::with(Upstream::start(), CLIENTS, "", NEVER, &[("clients", &authority)]);
    let text = std::fs::read_to_string(lab.weir.config_file()).unwrap();
    let moved = |text: &str| text.replace(LISTEN, &LISTEN.replace(".1:", ".2:"));
    let without = moved(&text.replace(&format!(", {CLIENTS}"), ""));
    let plain = moved(&Weir::config(&lab.upstream, "", NEVER));
    for (reloads, other) in [&without, &plain, &without].into_iter().enumerate() {
        replace(&lab.weir.config_file(), other);
        lab.weir.wait_for_lines("\"reloaded\"", reloads + 1);
        assert_eq!([status(&lab, None), status(&lab, Some(&own))], [None, Some(200)], "{other}");
        let answer = Client::connect(lab.weir.address()).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer();
        assert!(answer.is_none(), "{other}");
    }
    replace(&lab.weir.config_file(), &text.replace(&format!(", {CLIENTS}"), ""));
    lab.weir.wait_until("no certificate is needed", || status(&lab, None) == Some(200));

    // A listener with TLS beside one without keeps its certificates, too.
    let lab = Lab::with(Upstream::start(), &format!("{BESIDE}, {CLIENTS}"), "", NEVER, &[("clients", &authority)]);
    let address = tls_address(&lab.weir);
    let text = std::fs::read_to_string(lab.weir.config_file()).unwrap();
    replace(&lab.weir.config_file(), &text.replace(&format!("{BESIDE}, {CLIENTS}"), &BESIDE.replace(".1:", ".2:")));
    lab.weir.wait_for_line("\"reloaded\"");
    assert_eq!([status_at(address, &lab, None), status_at(address, &lab, Some(&own))], [None, Some(200)]);
}
