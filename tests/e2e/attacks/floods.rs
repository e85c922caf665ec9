//! Bounded floods: of keys, names, connections, and slow clients.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::lab::{Lab, is_problem, series};
use crate::support::{Client, PATIENCE, Upstream, Weir};

const KEYS: usize = 2400;
const MAX_KEYS: f64 = 300.0;
/// Bytes that the process may grow by: 300 keys, an overflow of 100 KB, buffers of a few connections, and the
/// allocator.
const GROWTH: usize = 32 << 20;
const BATCH: usize = 100;

/// Sends many requests, some at once, and returns the number of 200s.
fn flood(weir: &Weir, requests: impl Iterator<Item = String>) -> usize {
    let requests: Vec<_> = requests.collect();
    let mut client = Client::connect(weir.address());
    let mut passed = 0;
    for batch in requests.chunks(BATCH) {
        client.send(batch.concat());
        passed += batch.iter().filter(|_| client.answer().status == 200).count();
    }
    passed
}

/// Floods a limit of 1/h with keys. The first request has the key `hot`.
fn flood_of_keys(key: &str, request: fn(usize) -> String) {
    let config = format!("[[limit]]\nname = \"a\"\nkey = [\"{key}\"]\nrate = \"1/h\"\nmax_keys = {MAX_KEYS}\n");
    let lab = Lab::start("trusted_proxies = [\"127.0.0.1\"]", &config);
    let ask = |at| lab.client().send(request(at)).answer().status;
    let [hot, late] = [KEYS, KEYS + 1];
    assert_eq!([ask(hot), ask(hot)], [200, 429]);
    flood(&lab.weir, (0..BATCH).map(request));
    let (series_before, memory_before) = (series(&lab.weir), lab.weir.resident());
    for round in 0..4 {
        let keys = KEYS / 4 * round..KEYS / 4 * (round + 1);
        let fresh = flood(&lab.weir, keys.clone().map(request));
        assert!(fresh <= keys.len());
        assert_eq!(flood(&lab.weir, keys.rev().take(BATCH).map(request)), 0, "a key had two units of one");
        assert_eq!(ask(hot), 429, "the hot key got away");
        assert!(lab.weir.metric("weir_keys{limit=\"a\"}") <= MAX_KEYS + 2.0, "one more per worker at most");
    }
    assert!((0..9).filter(|_| ask(late) == 200).count() <= 1);
    assert!(lab.weir.metric("weir_overflow_decisions_total{limit=\"a\"}") > KEYS as f64 / 2.0);
    assert_eq!(series(&lab.weir), series_before);
    let growth = lab.weir.resident().saturating_sub(memory_before);
    assert!(growth < GROWTH, "{growth} bytes more");
    lab.is_well();
}

#[test]
fn of_addresses() {
    flood_of_keys("ip", |at| {
        let ip = std::net::Ipv4Addr::from(0xc000_0000 + u32::try_from(at).unwrap() * 7919);
        format!("GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: {ip}\r\n\r\n")
    });
}

#[test]
fn of_header_values() {
    flood_of_keys("header:x-key", |at| format!("GET / HTTP/1.1\r\nhost: h\r\nx-key: {}\r\n\r\n", at * 7919));
}

#[test]
fn of_names() {
    let lab = Lab::start("", "[[limit]]\nname = \"a\"\nkey = [\"path\", \"host\", \"method\"]\nrate = \"1/h\"");
    let request = |at| format!("M{at} /p{at}?q{at} HTTP/1.1\r\nhost: h{at}.test\r\nn{at}: v\r\n\r\n");
    flood(&lab.weir, (0..10).map(request));
    lab.client().get("/%00");
    let before = series(&lab.weir);
    assert_eq!(flood(&lab.weir, (10..510).map(request)), 500);
    assert_eq!(series(&lab.weir), before);
    lab.is_well();
}

/// New keys, paths, hosts, methods, queries, field names, cookies and addresses, under limits keyed by each of them.
/// `WEIR_FLOOD=1000000` sends a million.
#[test]
fn of_all_kinds_of_keys() {
    let count = std::env::var("WEIR_FLOOD").map_or(2400, |count| count.parse().unwrap());
    let by = |part: &str| {
        let name = part.replace(':', "-");
        format!("[[limit]]\nname = \"{name}\"\nkey = [\"{part}\"]\nrate = \"1000/h\"\nmax_keys = {MAX_KEYS}\n")
    };
    let parts = ["ip", "path", "host", "method", "header:x-key", "query:q", "cookie:c"];
    let config: String = parts.map(by).concat();
    let lab = Lab::start("trusted_proxies = [\"127.0.0.1\"]", &config);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut request = move |_| {
        let [key, more, path, query, host] = [(); 5].map(|()| next());
        let ip = std::net::Ipv6Addr::from(u128::from(key) << 64 | u128::from(more));
        format!(
            "M{:X} /{more:x}/{path:x}?q={query:x} HTTP/1.1\r\nhost: {host:x}.test\r\nx-key: {key:x}{more:x}\r\n\
             cookie: c={path:x}\r\nx-{query:x}: {host:x}\r\nx-forwarded-for: {ip}\r\n\r\n",
            key >> 8,
        )
    };
    flood(&lab.weir, (0..600).map(&mut request));
    let (series_before, memory_before) = (series(&lab.weir), lab.weir.resident());
    for _ in 0..count / 600 {
        flood(&lab.weir, (0..600).map(&mut request));
    }
    assert_eq!(series(&lab.weir), series_before);
    let growth = lab.weir.resident().saturating_sub(memory_before);
    // The seven sketches of 2 MiB come into memory bit by bit.
    assert!(growth < GROWTH + 7 * (2 << 20), "{growth} bytes more");
    for part in parts {
        let keys = lab.weir.metric(&format!("weir_keys{{limit=\"{}\"}}", part.replace(':', "-")));
        assert!(keys <= MAX_KEYS + 2.0, "{part}: {keys}");
    }
    lab.is_well();
}

#[test]
fn of_idle_connections() {
    let lab = Lab::start("max_connections = 100", "");
    let idle: Vec<_> = (0..2000).map(|_| TcpStream::connect(lab.weir.address()).unwrap()).collect();
    lab.weir.wait_for_metric("weir_connections_refused_total", |refused| refused >= 1900.0);
    assert_eq!(lab.weir.metric("weir_connections"), 100.0);
    drop(idle);
    lab.weir.wait_for_metric("weir_connections", |open| open == 0.0);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}

#[test]
fn of_slow_heads() {
    let lab = Lab::start("", "[timeouts]\nrequest_head = \"2s\"");
    let mut client = lab.client();
    // It drips until there is an answer.
    assert!(drip(&mut client, b"GET / HTTP/1.1\r\nhost: h\r\nx: ", b"y"));
    is_problem(&client.answer(), 408).unwrap();
    super::lab::is_closed(&mut client).unwrap();
    lab.probe(&mut lab.client()).unwrap();
    assert_eq!(lab.upstream.received_count(), 1);
    lab.is_well();
}

#[test]
fn of_slow_bodies() {
    let lab = Lab::start("", "[timeouts]\ntotal = \"2s\"");
    for framing in ["content-length: 100000\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
        let mut client = lab.client();
        let head = format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}");
        let piece: &[u8] = if framing.starts_with('c') { b"y" } else { b"1\r\ny\r\n" };
        assert!(drip(&mut client, head.as_bytes(), piece));
        let answer = client.try_answer().map(|answer| answer.status);
        assert!(matches!(answer, None | Some(408 | 504)), "{answer:?}");
    }
    lab.probe(&mut lab.client()).unwrap();
    assert_eq!(lab.upstream.received_count(), 1);
    lab.is_well();
}

/// Sends pieces, each after a short read, until a response or the end begins to arrive.
fn drip(client: &mut Client, first: &[u8], piece: &[u8]) -> bool {
    let timeout = client.stream().read_timeout().unwrap();
    client.stream().set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    client.send(first);
    let until = Instant::now() + PATIENCE;
    let mut answered = false;
    while !answered && Instant::now() < until {
        answered = match client.stream().peek(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                client.stream().write_all(piece).is_err()
            }
            _ => true,
        };
    }
    client.stream().set_read_timeout(timeout).unwrap();
    answered
}

#[test]
fn of_unread_responses() {
    const LEN: usize = 32 << 20;
    let upstream = Upstream::answering(|received, stream| {
        let len = if received.target() == "/large" { LEN } else { 5 };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&vec![b'x'; len]).is_ok()
    });
    let lab = Lab::behind(upstream, "", "[timeouts]\nbody_idle = \"1s\"");
    lab.probe(&mut lab.client()).unwrap();
    let before = lab.weir.resident();
    let idle: Vec<_> = (0..8)
        .map(|_| {
            let mut client = lab.client();
            client.send("GET /large HTTP/1.1\r\nhost: h\r\n\r\n");
            client
        })
        .collect();
    lab.upstream.wait_until(|upstream| upstream.received_count() == 9);
    lab.weir.wait_for_metric("weir_connections", |open| open == 0.0);
    lab.upstream.wait_until(|upstream| upstream.connections() == 0);
    let growth = lab.weir.resident().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes more");
    drop(idle);
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}
