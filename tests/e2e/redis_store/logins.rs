//! Plain connections, TLS, users and passwords.

use weir::engine::limit::Key;
use weir::engine::store::backend::{Failure, Unavailable};
use weir::fleet::stores::driver::{NodeAddress, RemoteSettings, Topology};
use weir::transport::net::tls::StoreTls;

use super::lab::{Lab, at_once, charge, key, login, ring, ring_with, settings, ten, until};
use crate::support::{Cert, Redis};

#[tokio::test]
async fn a_node_decides_all_charges_of_a_request_or_none() {
    let redis = Redis::start();
    let lab = Lab::deciding(ring(&[redis.address()])).await;
    let (ten, two) = (ten(), at_once(2));
    let request = [charge("a", key(1), &ten, 4), charge("b", key(2), &two, 1)];
    let mut receipts = Vec::new();
    for _ in 0..2 {
        let answers = lab.all(&request).await;
        assert!(answers.is_admitted);
        receipts.extend(answers.outcomes.into_iter().filter_map(|outcome| outcome.unwrap().receipt));
    }
    let denied = lab.all(&request).await;
    assert!(!denied.is_admitted && denied.outcomes.iter().all(|outcome| !outcome.as_ref().unwrap().is_charged));
    assert_eq!(lab.left(1).await, Ok(2));
    for receipt in receipts {
        lab.store.give_back(receipt);
    }
    lab.until_left(1, 10).await;
    let name = |limit: &str, Key { first, second }: Key| format!("weir:{{{limit}:{first:016x}{second:016x}}}");
    until(async || (!redis.keys().contains(&name("b", key(2)))).then_some(())).await;
    let clients = redis.call(&["CLIENT", "LIST"]);
    let named = clients.text().lines().filter(|line| line.contains(" name=weir-") && line.contains(" resp=3"));
    assert!(named.count() >= 2, "{clients:?}");
}

#[tokio::test]
async fn users_need_their_password() {
    let redis = Redis::with("user weir on >secret ~weir:* +@all\nuser default off");
    let with = |login| ring_with(&[redis.address()], login);
    Lab::deciding(with(login(Some("weir"), "secret"))).await;
    for wrong in [login(Some("weir"), "Secret"), login(Some("wier"), "secret"), login(None, "secret")] {
        let lab = Lab::start(with(wrong));
        until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
        assert!(lab.metric("weir_store_errors_total{kind=\"login\",store=\"main\"}") >= 1.0);
        assert_eq!(lab.metric(&format!("weir_store_up{{node=\"{}\",store=\"main\"}}", redis.address())), 0.0);
    }
    // The password is corrected while Weir runs.
    let lab = Lab::start(with(login(Some("weir"), "new")));
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    redis.call(&["ACL", "SETUSER", "weir", ">new"]);
    lab.until_it_decides().await;
}

#[tokio::test]
async fn a_password_alone_is_of_the_default_user() {
    let redis = Redis::with("requirepass secret");
    Lab::deciding(ring_with(&[redis.address()], login(None, "secret"))).await;
    let lab = Lab::start(ring(&[redis.address()]));
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    assert!(lab.metric("weir_store_errors_total{kind=\"login\",store=\"main\"}") >= 1.0);
}

#[tokio::test]
async fn a_user_without_rights_decides_nothing() {
    for rights in ["~weir:* +@all -evalsha", "~other:* +@all", "~weir:* +@all -set"] {
        let redis = Redis::with(&format!("user weir on >secret {rights}"));
        let lab = Lab::start(ring_with(&[redis.address()], login(Some("weir"), "secret")));
        let denials = "weir_store_errors_total{kind=\"permission\",store=\"main\"}";
        until(async || (lab.metric(denials) >= 1.0).then_some(())).await;
        let refused = [Unavailable::Down, Unavailable::Cold, Unavailable::Error(Failure::Permission)];
        assert!(refused.contains(&lab.one(1).await.unwrap_err()), "{rights}");
    }
}

#[tokio::test]
async fn tls_trusts_the_authorities_of_the_settings() {
    let cert = Cert::of_hosts(&["localhost"]);
    let redis = Redis::with_tls(&cert, "");
    let settings = settings(Topology::Ring(vec![NodeAddress::tcp("localhost", redis.address().port())]));
    let tls = |cert: &Cert| Some(StoreTls::new(Some(cert.pem.as_bytes().into()), None));
    Lab::deciding(RemoteSettings { tls: tls(&cert), ..settings.clone() }).await;
    for wrong in [tls(&Cert::of_hosts(&["localhost"])), None] {
        let lab = Lab::start(RemoteSettings { tls: wrong, ..settings.clone() });
        until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
    }
    // The name of the certificate counts.
    let lab = Lab::start(RemoteSettings { tls: tls(&cert), ..ring(&[redis.address()]) });
    until(async || (lab.one(1).await == Err(Unavailable::Down)).then_some(())).await;
}
