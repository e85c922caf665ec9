//! Replicas with connections on the loopback address, and strangers.

mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use super::dial::ORIGIN;
use super::handshake::{Greetings, NONCE_BYTES, ProcessId, Refusal, Side, hello};
use super::hub::{FleetParts, Hub};
use super::listen::PROOF;
use super::settings::{FleetSettings, MemberSource};
use super::status::{FleetView, MemberView};
use super::{accept, flush, run};
use crate::base::telemetry::Metrics;
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::Key;
use crate::engine::policy::FleetSecret;
use crate::engine::store::stream::message::{BanChange, Cursor, LimitCharges, LimitStates, Message, States};
use crate::engine::store::stream::{Ledger, Link, Taken, Timing};
use crate::fleet::etcd::Sender;
use crate::fleet::grpc::proto::weir::v1::Hello;
use crate::fleet::grpc::proto::weir::v1::fleet_client::FleetClient;
use crate::transport::net::tls::PeerTls;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdeX";
const OTHER_SECRET: &[u8] = b"0123456789abcdef0123456789abcdeY";
const MS: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// The charges of a replica: those that it makes, and those that it hears of, by the number of the key.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Charges>>);

#[derive(Debug, Default)]
struct Charges {
    own: Vec<(u64, i64)>,
    heard: BTreeMap<u64, i64>,
}

impl Ledger for Book {
    fn take(&mut self, _: Timestamp) -> Taken {
        let mut charges = LimitCharges::of("a", None);
        for (number, units) in self.0.lock().unwrap().own.drain(..) {
            charges.push(Key::of_hash(number << 2, 0), units);
        }
        let limits = if charges.units.is_empty() { vec![] } else { vec![charges] };
        Taken { limits, bans: Vec::new(), is_complete: true }
    }

    fn charge(&mut self, charges: &LimitCharges, _: Timestamp, _: Timestamp) {
        for (key, units) in charges.each() {
            *self.0.lock().unwrap().heard.entry(key.first >> 2).or_default() += units;
        }
    }

    fn ban(&mut self, _: &[BanChange], _: Timestamp) {}

    fn states(&mut self, at: &Cursor, _: Timestamp) -> States {
        States { at: Some(at.clone()), ..States::default() }
    }

    fn merge(&mut self, _: &LimitStates, _: Timestamp) {}
}

/// A replica; it ends on drop.
struct Member {
    hub: Arc<Hub>,
    book: Book,
    address: SocketAddr,
    running: JoinHandle<()>,
    accepting: AbortHandle,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.running.abort();
        self.accepting.abort();
        self.hub.close();
    }
}

/// What a replica starts with.
#[derive(Clone)]
struct Start {
    secret: &'static [u8],
    instance: u64,
    members: Vec<String>,
    tls: Option<PeerTls>,
}

impl Start {
    fn with(members: &[&str]) -> Self {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        Self { secret: SECRET, instance: random(), members, tls: None }
    }

    fn listener() -> std::net::TcpListener {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    fn settings(&self) -> FleetSettings {
        FleetSettings {
            members: MemberSource::Static(self.members.iter().map(|member| member.as_str().into()).collect()),
            advertise: None,
            tls: self.tls.clone(),
            timing: Timing { interval_ns: 5 * MS, isolate_after_ns: 3000 * MS },
            replicas: None,
            max_replicas: 10,
            leave_after: Duration::from_secs(30),
        }
    }

    fn run_on(&self, listener: std::net::TcpListener) -> Member {
        let (book, metrics) = (Book::default(), Metrics::new("", "").unwrap());
        let parts = FleetParts {
            clock: Clock::start(),
            ledger: Box::new(book.clone()),
            link: Arc::<Link>::default(),
            key: FleetSecret::new(self.secret).unwrap().proof_key(),
            metrics: metrics.show_fleet().unwrap(),
            instance: self.instance,
        };
        let (hub, address) = (Hub::new(parts, self.settings()), listener.local_addr().unwrap());
        let accepting = accept(&hub, listener).unwrap();
        let running = tokio::spawn(run(Arc::clone(&hub)));
        Member { hub, book, address, running, accepting }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

impl Member {
    fn charge(&self, number: u64, units: i64) {
        self.book.0.lock().unwrap().own.push((number, units));
    }

    fn heard(&self, number: u64) -> i64 {
        self.book.0.lock().unwrap().heard.get(&number).copied().unwrap_or(0)
    }

    fn connected(&self) -> usize {
        let is_connected = |view: &FleetView| {
            view.members.iter().filter(|member| member.status.is_some_and(|status| status.is_connected)).count()
        };
        is_connected(&self.hub.view())
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, looks).await.is_ok(), "never: {what}");
}

/// So many replicas. Each has the list of all, and is in it under two names.
fn fleet(count: usize) -> Vec<Member> {
    let listeners: Vec<_> = (0..count).map(|_| Start::listener()).collect();
    let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().port());
    let names = ports.flat_map(|port| [format!("127.0.0.1:{port}"), format!("localhost:{port}")]);
    let start = Start { members: names.collect(), ..Start::with(&[]) };
    listeners.into_iter().map(|listener| Start { instance: random(), ..start.clone() }.run_on(listener)).collect()
}

/// Waits until each of `members` is connected to all others, and has heard of them. Charges before that are in the states
/// of a replica, which a [`Book`] does not have.
async fn met(members: &[&Member]) {
    let has_met = |member: &Member| {
        let view = member.hub.view();
        let has_heard =
            |other: &&MemberView| other.silent_ms.is_some() && other.status.is_some_and(|status| status.is_connected);
        view.members.iter().filter(has_heard).count() == members.len() - 1
    };
    until("all have met", || members.iter().all(|member| has_met(member))).await;
}

#[tokio::test]
async fn each_replica_hears_all_others_once() {
    let members = fleet(4);
    met(&members.iter().collect::<Vec<_>>()).await;
    for round in 0..20 {
        for (index, member) in members.iter().enumerate() {
            member.charge(index as u64, 1);
        }
        if round == 10 {
            until("some are heard", || members[0].heard(1) > 0).await;
        }
    }
    until("all are heard", || {
        members
            .iter()
            .enumerate()
            .all(|(index, member)| (0..4).all(|number| number == index as u64 || member.heard(number) == 20))
    })
    .await;
    for (index, member) in members.iter().enumerate() {
        assert_eq!(member.heard(index as u64), 0, "its own charges");
    }
    until("all addresses are known", || members.iter().all(|member| member.hub.view().replicas == 4)).await;
    assert!(members.iter().all(|member| *member.hub.size().borrow() == Some(4)));
    for member in &members {
        flush(&member.hub, PATIENCE).await;
        assert_eq!(member.hub.lag(), 0);
    }
}

#[tokio::test]
async fn a_replica_that_starts_again_is_heard_again() {
    let mut members = fleet(3);
    met(&members.iter().collect::<Vec<_>>()).await;
    let (gone, listener) = (members.pop().unwrap(), Start::listener());
    drop(gone);
    until("it is gone", || members.iter().all(|member| member.connected() == 1)).await;
    assert!(members.iter().all(|member| member.hub.view().replicas >= 3), "it is still a member");
    let names: Vec<_> = members.iter().map(|member| member.address.to_string()).collect();
    let start = Start { members: names, ..Start::with(&[]) };
    members.push(start.run_on(listener));
    met(&members.iter().collect::<Vec<_>>()).await;
    members[2].charge(7, 3);
    members[0].charge(8, 2);
    until("both are heard", || members[0].heard(7) == 3 && members[1].heard(7) == 3 && members[2].heard(8) == 2).await;
}

/// The successor has the number of its predecessor, so both are one replica.
#[tokio::test]
async fn a_successor_takes_the_place_of_its_predecessor() {
    let (listener, other) = (Start::listener(), Start::listener());
    let names = [&listener, &other].map(|one| one.local_addr().unwrap().to_string());
    let start = Start { members: names.to_vec(), ..Start::with(&[]) };
    let other = Start { instance: random(), ..start.clone() }.run_on(other);
    let socket = listener.try_clone().unwrap();
    let predecessor = start.run_on(listener);
    met(&[&predecessor, &other]).await;
    let successor = start.run_on(socket);
    predecessor.accepting.abort();
    until("both are connected", || other.connected() == 2 && successor.connected() == 1).await;
    assert_eq!(other.hub.view().replicas, 2);
    drop(predecessor);
    until("the predecessor is gone", || other.connected() == 1).await;
    successor.charge(1, 4);
    other.charge(2, 5);
    until("they hear each other", || other.heard(1) == 4 && successor.heard(2) == 5).await;
    until("two replicas", || other.hub.view().replicas == 2 && successor.hub.view().replicas == 2).await;
}

#[tokio::test]
async fn a_replica_that_hears_no_other_is_isolated() {
    let [first, second] = <[Member; 2]>::try_from(fleet(2)).ok().unwrap();
    met(&[&first, &second]).await;
    until("messages come", || !first.hub.view().is_isolated && first.hub.view().members[0].silent_ms.is_some()).await;
    assert_eq!(first.hub.link.absent(), 0);
    drop(second);
    until("it is isolated", || first.hub.view().is_isolated && first.hub.link.absent() >= 1).await;
}

#[tokio::test]
async fn a_replica_counts_those_of_the_configuration_until_it_has_a_list() {
    let start = Start::with(&[]);
    let member = start.run_on(Start::listener());
    let size = member.hub.size();
    until("the number is unknown", || member.hub.link.unmet().is_none()).await;
    let timing = Timing { isolate_after_ns: 50 * MS, ..start.settings().timing };
    let named = FleetSettings { replicas: Some(3), timing, ..start.settings() };
    member.hub.reload(named.clone());
    until("it is isolated", || member.hub.view().is_isolated && member.hub.link.absent() == 2).await;
    assert_eq!((member.hub.view().replicas, member.hub.link.unmet(), *size.borrow()), (3, Some(0), None));

    let other = Start::with(&[&member.address.to_string()]).run_on(Start::listener());
    until("one hears it", || member.hub.link.absent() == 1).await;
    assert_eq!((member.hub.view().replicas, *size.borrow()), (3, None));

    let members = MemberSource::Static([other.address.to_string().into()].into());
    member.hub.reload(FleetSettings { members, ..named });
    until("there are two", || !member.hub.view().is_isolated && *size.borrow() == Some(2)).await;
    assert_eq!((member.hub.view().replicas, member.hub.link.absent()), (2, 0));
}

#[tokio::test]
async fn replicas_with_another_secret_exchange_nothing() {
    let one = Start::with(&[]).run_on(Start::listener());
    let members = vec![one.address.to_string()];
    let other = Start { secret: OTHER_SECRET, members, ..Start::with(&[]) }.run_on(Start::listener());
    other.charge(1, 1);
    until("it is refused twice", || one.hub.metrics.refused_secret.get() >= 2).await;
    assert_eq!((one.heard(1), one.connected(), other.connected()), (0, 0, 0));
}

/// A caller of the protocol that may break its rules.
/// Strangers without a certificate hide no other reason from the log.
#[tokio::test]
async fn each_reason_for_a_refusal_has_lines() {
    let member = Start::with(&[]).run_on(Start::listener());
    let lines = |reason| (0..60).filter(|_| member.hub.logs_refusal(reason, member.address)).count();
    for reason in [Refusal::Certificate, Refusal::Protocol, Refusal::Secret, Refusal::Full] {
        assert!((10..=20).contains(&lines(reason)), "{reason:?}"); // a minute may begin between them
    }
}

async fn caller(address: SocketAddr) -> FleetClient<Sender> {
    let socket = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    FleetClient::with_origin(Sender(sender), Uri::from_static(ORIGIN))
}

/// Says hello, and exchanges one charge with the proof that `prove` makes of the hellos.
async fn exchange(address: SocketAddr, prove: impl Fn(&Greetings) -> Vec<u8>) -> Code {
    let mut client = caller(address).await;
    let own = hello(ProcessId { instance: 1, epoch: 2 }, None, [3; NONCE_BYTES]);
    let listener = client.meet(own.clone()).await.unwrap().into_inner();
    let proof = prove(&Greetings { caller: own, listener, binding: [].into() });
    let mut charges = LimitCharges::of("a", None);
    charges.push(Key::of_hash(9 << 2, 0), 1);
    let charges = crate::engine::store::stream::message::Charges { sequence: 1, limits: vec![charges], bans: vec![] };
    let message = Message { epoch: 2, oldest: 1, charges: charges.encode_to_vec().into(), ..Message::default() };
    let mut request = Request::new(tokio_stream::iter([message]));
    request.metadata_mut().insert_bin(PROOF, MetadataValue::from_bytes(&proof));
    client.exchange(request).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn strangers_make_no_charges() {
    let member = Start::with(&[]).run_on(Start::listener());
    let key = FleetSecret::new(SECRET).unwrap().proof_key();
    let old: Mutex<Vec<u8>> = Mutex::default();
    let right = exchange(member.address, |greetings| {
        let proof = greetings.prove(Side::Caller, &key).to_vec();
        old.lock().unwrap().clone_from(&proof);
        proof
    });
    assert_eq!(right.await, Code::Ok);
    until("the charge of a replica is made", || member.heard(9) == 1).await;
    let old = old.into_inner().unwrap();
    assert_eq!(exchange(member.address, |_| old.clone()).await, Code::Unauthenticated, "an old proof");
    assert_eq!(exchange(member.address, |_| vec![]).await, Code::Unauthenticated);
    let reflected = exchange(member.address, |greetings| greetings.prove(Side::Listener, &key).to_vec());
    assert_eq!(reflected.await, Code::Unauthenticated);

    let mut client = caller(member.address).await;
    let without_hello = client.exchange(tokio_stream::iter([Message::default()])).await.unwrap_err();
    assert_eq!(without_hello.code(), Code::FailedPrecondition);
    let large = Hello { address: "a".repeat(2000), ..Hello::default() };
    assert_eq!(client.meet(large).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(client.meet(Hello::default()).await.unwrap_err().code(), Code::FailedPrecondition);

    let mut garbage = TcpStream::connect(member.address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, garbage.read_to_end(&mut answer)).await.unwrap();
    let mut silent = TcpStream::connect(member.address).await.unwrap();
    assert!(timeout(PATIENCE, silent.read_to_end(&mut answer)).await.is_ok(), "closed in time");
    assert_eq!(member.heard(9), 1);
}
