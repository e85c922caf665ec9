//! The servers and links of these tests fail in the way that the tests ask for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Cert, Cluster, Link, PATIENCE, Redis, Relay, Reply, Sentinels, trusting};

/// Sends PING, and returns its reply, or the kind of the error if none comes in time.
fn ping(stream: &mut (impl Read + Write)) -> Result<String, std::io::ErrorKind> {
    let mut reply = [0; 7];
    stream.write_all(b"PING\r\n").map_err(|error| error.kind())?;
    stream.read_exact(&mut reply).map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends PING, and asserts that no reply comes for a while.
fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(ping(stream), Err(std::io::ErrorKind::WouldBlock));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn a_server_is_killed_started_again_and_frozen() {
    let mut redis = Redis::start();
    redis.call(&["SET", "a", "1"]);
    assert_eq!(redis.keys(), ["a"]);
    redis.kill();
    assert!(TcpStream::connect(redis.address()).is_err());
    redis.restart();
    assert!(redis.keys().is_empty());
    let mut stream = connect(redis.address());
    redis.freeze();
    assert_silent(&mut stream);
    redis.thaw();
    assert_eq!(redis.calls("keys"), 1);
}

#[test]
fn a_server_wants_a_password_and_tls() {
    let redis = Redis::start();
    let mut known = connect(redis.address());
    redis.call(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_eq!(ping(&mut known).unwrap(), "+PONG\r\n");
    assert_eq!(ping(&mut connect(redis.address())).unwrap(), "-NOAUTH");
    redis.disconnect_all();
    assert!(ping(&mut known).is_err());

    let cert = Cert::of_hosts(&["localhost"]);
    let redis = Redis::with_tls(&cert, "");
    let config = trusting(&[&cert], rustls::ALL_VERSIONS, &[], None);
    let mut client = crate::support::connect_tls(redis.address(), &config, "localhost").unwrap();
    assert_eq!(ping(client.stream()).unwrap(), "+PONG\r\n");
}

#[test]
fn a_relay_delays_holds_and_resets() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let mut stream = connect(relay.address());
    assert_eq!(ping(&mut stream).unwrap(), "+PONG\r\n");
    relay.set(Link::Slow(Duration::from_millis(50)));
    let start = Instant::now();
    assert_eq!(ping(&mut stream).unwrap(), "+PONG\r\n");
    assert!(start.elapsed() >= Duration::from_millis(50));
    relay.set(Link::Silent);
    assert_silent(&mut stream);
    relay.set(Link::Clear);
    stream.read_exact(&mut [0; 7]).unwrap();
    relay.set(Link::Reset);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(ping(&mut connect(relay.address())).is_err());
    assert_eq!(relay.accepted(), 2);
}

#[test]
fn a_cluster_replaces_a_master_and_moves_a_slot() {
    let mut cluster = Cluster::start(1);
    let owner = cluster.owner("a");
    let other = (owner + 1) % 3;
    cluster.masters[owner].call(&["SET", "a", "1"]);
    let moved = |reply| matches!(reply, Reply::Error(error) if error.starts_with("MOVED"));
    assert!(moved(cluster.masters[other].try_call(&["GET", "a"]).unwrap()));
    cluster.move_slot("a", other, || {});
    assert_eq!(cluster.masters[other].call(&["GET", "a"]).text(), "1");
    cluster.kill_master(other);
    cluster.wait_for_promotion(other);
    assert_eq!(cluster.replicas[other].call(&["GET", "a"]).text(), "1");
}

#[test]
fn sentinels_promote_the_replica() {
    let mut group = Sentinels::start();
    group.master.call(&["SET", "a", "1"]);
    group.kill_master();
    group.wait_for_promotion();
    assert_eq!(group.replica.call(&["GET", "a"]).text(), "1");
}
