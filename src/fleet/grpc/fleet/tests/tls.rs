//! TLS between replicas, and its change by a reload.

use super::*;
use crate::transport::net::tls::ServerCertificate;

/// A certificate of an authority, or of none, and TLS with it.
fn tls(authority: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>, trusted: &str) -> PeerTls {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a-name".into()]).unwrap().signed_by(&key, authority).unwrap();
    let own = ServerCertificate::new(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).ok().unwrap();
    PeerTls::new(own, trusted.as_bytes()).unwrap()
}

fn authority() -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
}

/// A reload that changes TLS ends the connections that either side opened before.
#[tokio::test]
async fn connections_have_the_tls_of_the_last_reload() {
    let [one, other] = [authority(), authority()].map(|authority| tls(&authority, &authority.pem()));
    for is_listener_first in [true, false] {
        let listener = Start::with(&[]).run_on(Start::listener());
        let dialer = Start::with(&[&listener.address.to_string()]).run_on(Start::listener());
        met(&[&listener, &dialer]).await;
        let both = if is_listener_first { [&listener, &dialer] } else { [&dialer, &listener] };
        for tls in [Some(&one), Some(&other), None] {
            for (member, is_last) in both.into_iter().zip([false, true]) {
                let settings = FleetSettings { tls: tls.cloned(), ..(**member.hub.settings.load()).clone() };
                member.hub.reload(settings);
                until("their connections fit", || both.iter().all(|one| one.connected() == usize::from(is_last))).await;
            }
        }
    }
}

#[tokio::test]
async fn both_sides_need_a_certificate_of_the_authority() {
    let (fleet, foreign) = (authority(), authority());
    let of = |members: &[&Member], tls: Option<PeerTls>| {
        let members = members.iter().map(|member| member.address.to_string()).collect();
        Start { members, tls, ..Start::with(&[]) }.run_on(Start::listener())
    };
    let first = of(&[], Some(tls(&fleet, &fleet.pem())));
    let second = of(&[&first], Some(tls(&fleet, &fleet.pem())));
    met(&[&first, &second]).await;
    second.charge(1, 2);
    until("its charge is made", || first.heard(1) == 2).await;
    let strangers = [
        of(&[&first], None),
        of(&[&first], Some(tls(&foreign, &fleet.pem()))),
        of(&[&first], Some(tls(&fleet, &foreign.pem()))),
    ];
    until("all are refused", || first.hub.metrics.refused_stranger.get() >= 3).await;
    assert_eq!((first.connected(), strangers.each_ref().map(Member::connected)), (1, [0; 3]));
}
