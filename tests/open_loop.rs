//! The open-loop generator's pure parts: when requests are due, where an answer ends, what a URL says.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
// Nothing is reachable from outside a test.
#![allow(unreachable_pub)]

#[path = "../benches/latency/answer.rs"]
mod answer;
#[path = "../benches/latency/schedule.rs"]
mod schedule;
#[path = "../benches/latency/target.rs"]
mod target;

use std::time::{Duration, Instant};

use answer::{Answer, parse};
use schedule::Schedule;
use target::Target;

/// Each row: rate per second, first of how many threads, requests at once, index, due in nanoseconds after the start.
const DUE: &[(u32, u32, u32, u32, u64, u64)] = &[
    (1, 0, 1, 1, 0, 0),
    (1, 0, 1, 1, 7, 7_000_000_000),
    (1000, 0, 1, 1, 1, 1_000_000),
    (1000, 0, 2, 1, 1, 2_000_000),
    (1000, 1, 2, 1, 0, 1_000_000),
    (1000, 1, 2, 1, 1, 3_000_000),
    // A third of a second does not fit into nanoseconds: it is rounded each time anew.
    (3, 0, 1, 1, 1, 333_333_333),
    (3, 0, 1, 1, 3, 1_000_000_000),
    (3, 0, 1, 1, 3_000_000, 1_000_000_000_000_000),
    (10_000_000, 0, 1, 1, 10_000_001, 1_000_000_100),
    (1000, 0, 1, 4, 3, 0),
    (1000, 0, 1, 4, 4, 4_000_000),
    (1000, 1, 2, 4, 1, 0),
    (1000, 1, 2, 4, 2, 4_000_000),
];

#[test]
fn requests_are_due_at_a_constant_rate() {
    let start = Instant::now();
    for &(rate, first, step, group, index, due_ns) in DUE {
        let schedule = Schedule { start, rate, first, step, group };
        assert_eq!(schedule.due(index), start + Duration::from_nanos(due_ns), "{schedule:?} {index}");
    }
}

#[test]
fn threads_share_all_requests() {
    // Rate, threads, seconds, requests of each thread.
    let rows: &[(u32, u32, u64, &[u64])] =
        &[(1000, 1, 2, &[2000]), (10, 3, 1, &[4, 3, 3]), (1, 3, 2, &[1, 1, 0]), (10, 2, 0, &[0, 0])];
    for &(rate, step, seconds, expected) in rows {
        let schedules = (0..step).map(|first| Schedule { start: Instant::now(), rate, first, step, group: 1 });
        let counts: Vec<_> = schedules.map(|schedule| schedule.count(Duration::from_secs(seconds))).collect();
        assert_eq!(counts, expected, "{rate} {step} {seconds}");
    }
}

#[test]
fn an_answer_ends_where_it_says() {
    let whole = |status, length, keeps_alive| Ok(Some(Answer { status, length, keeps_alive }));
    let rows = [
        ("", Ok(None)),
        ("HTTP/1.1 200 OK\r\nContent-Le", Ok(None)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", whole(200, 41, true)),
        ("HTTP/1.1 429 Too Many\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", whole(429, 63, false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", whole(200, 38, false)),
        ("HTTP/1.1 204 No Content\r\n\r\n", whole(204, 27, true)),
        ("HTTP/1.1 200 OK\r\n\r\n", Err("the answer has no length")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Err("the answer has no length")),
        ("\0", Err("the answer is not HTTP")),
    ];
    for (bytes, expected) in rows {
        assert_eq!(parse(bytes.as_bytes()), expected, "{bytes:?}");
    }
}

#[test]
fn a_url_says_where_to_connect() {
    let rows = [
        (
            "http://127.0.0.1:8080/report?a=b",
            Ok(("127.0.0.1:8080", "GET /report?a=b HTTP/1.1\r\nHost: 127.0.0.1:8080")),
        ),
        ("http://127.0.0.1", Ok(("127.0.0.1:80", "GET / HTTP/1.1\r\nHost: 127.0.0.1"))),
        ("http://[::1]:1/", Ok(("[::1]:1", "GET / HTTP/1.1\r\nHost: [::1]:1"))),
        ("https://127.0.0.1/", Err("does not begin with http://")),
        ("http://localhost/", Err("is not an address with a port")),
        ("http://127.0.0.1/a b", Err("is not a path")),
    ];
    for (url, expected) in rows {
        match (Target::parse(url), expected) {
            (Ok(target), Ok((address, head))) => {
                assert_eq!(target.address.to_string(), address);
                let request = target.request(&["a: b".into(), " c: d ".into()]);
                assert_eq!(String::from_utf8(request).unwrap(), format!("{head}\r\na: b\r\nc: d\r\n\r\n"));
            }
            (found, expected) => {
                assert!(found.is_err_and(|error| expected.is_err_and(|part| error.contains(part))), "{url}");
            }
        }
    }
}
