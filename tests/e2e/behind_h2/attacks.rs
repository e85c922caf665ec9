//! A service that speaks HTTP/2 wrongly harms nobody but its own requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::mirror;
use crate::attacks::h2_frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, block, frame,
};
use crate::support::{Client, H2Service, NEVER, Peer, Upstream, Weir};

const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;

/// What a service does once a request has come on stream 1; before that it is as it should be.
type Answering = Arc<dyn Fn(&mut Peer) + Send + Sync>;

/// Reads a frame: its kind, its flags, its stream and what is in it.
fn next(peer: &mut Peer) -> Option<(u8, u8, u32, Vec<u8>)> {
    let head = peer.read(9)?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], head[4], stream, peer.read(len)?))
}

fn bad(answer: Answering) -> Upstream {
    Upstream::serving(move |mut peer| {
        let Some(_preface) = peer.read(24) else { return };
        peer.send(frame(SETTINGS, 0, 0, b""));
        while let Some((kind, flags, stream, payload)) = next(&mut peer) {
            match kind {
                SETTINGS if flags & ACK == 0 => _ = peer.send(frame(SETTINGS, ACK, 0, b"")),
                PING if flags & ACK == 0 => _ = peer.send(frame(PING, ACK, 0, &payload)),
                HEADERS if stream == 1 => answer(&mut peer),
                _ => {}
            }
        }
    })
}

/// A good service, and bad ones for `/bad/0`, `/bad/1` and so on. Each may be silent for two seconds.
fn weir(bad: &[Upstream], good: &H2Service) -> Weir {
    weir_with(bad, good, "2s")
}

fn weir_with(bad: &[Upstream], good: &H2Service, timeout: &str) -> Weir {
    let service = |(index, bad): (usize, &Upstream)| {
        let endpoint = bad.address();
        format!(
            "[[route]]\nmatch = {{ path = \"/bad/{index}\" }}\nupstream = \"bad{index}\"\n\
             [upstreams.bad{index}]\nendpoints = [\"http://{endpoint}\"]\nprotocol = \"h2\"\n"
        )
    };
    let services: String = bad.iter().enumerate().map(service).collect();
    let timeouts =
        format!("[timeouts]\nresponse_head = \"{timeout}\"\nconnect = \"{timeout}\"\nbody_idle = \"{timeout}\"\n");
    Weir::with(&format!("{}{services}[[route]]\nupstream = \"a\"\n{timeouts}{NEVER}", good.upstream("")))
}

fn head(fields: &[(&[u8], &[u8])], flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, 1, &block(fields))
}

const OK: (&[u8], &[u8]) = (b":status", b"200");

/// Bytes that a service answers a request with, and the status that its client gets.
fn rows() -> Vec<(&'static str, Vec<u8>, u16)> {
    let many: Vec<(&[u8], &[u8])> = std::iter::once(OK).chain((0..2100).map(|_| (&b"x"[..], &b"y"[..]))).collect();
    let long = vec![b'y'; 100_000];
    let row = |fields: &[(&[u8], &[u8])]| head(fields, END_STREAM);
    let both = |one: Vec<u8>, other: &[u8]| [&one[..], other].concat();
    let reset = |code: u32| frame(RST_STREAM, 0, 1, &code.to_be_bytes());
    let goaway = |last: u32, code: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
    let large_block = block(&[OK, (b"x", &long), (b"y", &long)]);
    let first = frame(HEADERS, 0, 1, &large_block[..10]);
    let rest: Vec<u8> = large_block[10..].chunks(16_000).flat_map(|part| frame(CONTINUATION, 0, 1, part)).collect();
    let large = [first, rest, frame(CONTINUATION, END_HEADERS, 1, b"")].concat();
    vec![
        ("as it should be", row(&[OK]), 200),
        ("bytes of another protocol", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(), 502),
        ("zeros", vec![0; 4096], 502),
        ("a frame too long", [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 100]].concat(), 502),
        ("no status", row(&[(b"x", b"y")]), 502),
        ("status with letters", row(&[(b":status", b"2x0")]), 502),
        ("status of two digits", row(&[(b":status", b"20")]), 502),
        ("two statuses", row(&[OK, OK]), 502),
        // The library drops it, and so it says nothing to anybody.
        ("a pseudo-header of requests", row(&[OK, (b":path", b"/")]), 200),
        ("a pseudo-header behind fields", row(&[(b"x", b"y"), OK]), 502),
        ("a name in upper case", row(&[OK, (b"X-A", b"y")]), 502),
        ("a name with a space", row(&[OK, (b"x a", b"y")]), 502),
        ("an empty name", row(&[OK, (b"", b"y")]), 502),
        ("a line break in a value", row(&[OK, (b"x", b"y\r\nset-cookie: z")]), 502),
        ("a line feed in a value", row(&[OK, (b"x", b"y\nz")]), 502),
        ("a zero in a value", row(&[OK, (b"x", b"y\0")]), 502),
        ("a field for a connection", row(&[OK, (b"connection", b"close")]), 502),
        ("a framing of HTTP/1", row(&[OK, (b"transfer-encoding", b"chunked")]), 502),
        ("101", row(&[(b":status", b"101")]), 502),
        ("101 that goes on", head(&[(b":status", b"101")], 0), 502),
        ("a length that is none", row(&[OK, (b"content-length", b"x")]), 502),
        ("two lengths", head(&[OK, (b"content-length", b"1"), (b"content-length", b"2")], 0), 502),
        ("a length and no body", row(&[OK, (b"content-length", b"5")]), 502),
        ("too many fields", row(&many), 502),
        ("fields too long", large, 502),
        ("a body before the head", frame(DATA, END_STREAM, 1, b"x"), 502),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2][..], &block(&[OK])].concat()), 502),
        ("compression out of step", frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff, 0xff, 0x0f]), 502),
        ("a head for another stream", frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&[OK])), 502),
        ("a window that bursts", frame(WINDOW_UPDATE, 0, 0, &u32::MAX.to_be_bytes()), 502),
        ("a window of nothing", frame(WINDOW_UPDATE, 0, 1, &[0; 4]), 502),
        ("settings that cannot be", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]), 502),
        ("a reset", reset(2), 502),
        ("a reset as if it were done", reset(0), 502),
        ("refused, and then silence", reset(7), 504),
        ("HTTP/1.1 wanted", reset(13), 502),
        ("goodbye at once", goaway(0, 0), 502),
        ("goodbye in anger", goaway(0, 11), 502),
        ("goodbye, and no answer", both(goaway(1, 0), b""), 504),
        ("silence", Vec::new(), 504),
    ]
}

#[test]
fn what_cannot_be_an_answer_is_502_and_concerns_nobody_else() {
    let good = H2Service::start(mirror);
    let rows = rows();
    let bad = |bytes: Vec<u8>| bad(Arc::new(move |peer| _ = peer.send(&bytes)));
    let bad: Vec<_> = rows.iter().map(|(_, bytes, _)| bad(bytes.clone())).collect();
    let weir = weir(&bad, &good);
    for (index, (name, _, expected)) in rows.iter().enumerate() {
        let (mut client, mut other) = (Client::connect(weir.address()), Client::connect(weir.address()));
        assert_eq!(other.get("/").status, 200, "{name}");
        client.send(format!("GET /bad/{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(other.get("/").status, 200, "{name}");
        let answer = client.answer();
        assert_eq!(answer.status, *expected, "{name}: {}", answer.text());
        assert!(answer.header("set-cookie").is_none(), "{name}");
        assert_eq!(client.get("/").status, 200, "{name}: on the same connection");
        assert!(!weir.lines().iter().any(|line| line.contains("panicked")), "{name}");
    }
}

/// Nothing of what it says of was looked at, so it goes out again: its body too.
#[test]
fn what_a_goodbye_leaves_out_goes_elsewhere() {
    let (good, turns) = (H2Service::start(mirror), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&turns);
    let bad = bad(Arc::new(move |peer| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            // The body first, so that it has been sent.
            while next(peer).is_some_and(|(kind, flags, ..)| kind != DATA || flags & END_STREAM == 0) {}
            peer.send(frame(GOAWAY, 0, 0, &[0; 8]));
        } else {
            let mut body = Vec::new();
            while let Some((kind, flags, _, payload)) = next(peer) {
                if kind == DATA {
                    body.extend(payload);
                    if flags & END_STREAM != 0 {
                        break;
                    }
                }
            }
            let pieces: Vec<u8> = body.chunks(16_000).flat_map(|piece| frame(DATA, 0, 1, piece)).collect();
            peer.send([head(&[OK], 0), pieces, frame(DATA, END_STREAM, 1, b"")].concat());
        }
    }));
    let weir = weir(&[bad], &good);
    let mut client = Client::connect(weir.address());
    let body = "x".repeat(40_000);
    client.send(format!("POST /bad/0 HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n{body}"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.text() == body), (200, true));
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}

/// What follows a head, and cannot be sent on: the client must not take the answer for whole.
#[test]
fn an_answer_that_breaks_off_is_not_whole() {
    let good = H2Service::start(mirror);
    let body = |bytes: &[u8], flags| frame(DATA, flags, 1, bytes);
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("a reset", frame(RST_STREAM, 0, 1, &[0, 0, 0, 2])),
        ("bytes of another protocol", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ("too much", body(b"1234567890", END_STREAM)),
        ("too little", body(b"123", END_STREAM)),
        ("trailers that are none", frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[OK]))),
        ("nothing more", Vec::new()),
    ];
    let bad = |bytes: Vec<u8>| {
        bad(Arc::new(move |peer| {
            peer.send(head(&[OK, (b"content-length", b"5")], 0));
            peer.send(&bytes);
        }))
    };
    let bad: Vec<_> = rows.iter().map(|(_, bytes)| bad(bytes.clone())).collect();
    let weir = weir(&bad, &good);
    for (index, (name, _)) in rows.iter().enumerate() {
        let (mut client, mut other) = (Client::connect(weir.address()), Client::connect(weir.address()));
        client.send(format!("GET /bad/{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(other.get("/").status, 200, "{name}");
        // Its head may have gone out before, or not.
        assert!(client.try_answer().is_none_or(|answer| answer.status == 502), "{name}");
        assert_eq!(other.get("/").status, 200, "{name}");
    }
}

/// Floods that would make somebody who answers each frame, or keeps it, run out of something.
#[test]
fn a_flood_is_endured_or_ends_its_connection() {
    let good = H2Service::start(mirror);
    let frames: Vec<(&str, Vec<u8>)> = vec![
        ("settings", frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff])),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("empty pieces", frame(DATA, 0, 1, b"")),
        ("priorities", frame(2, 0, 1, &[0, 0, 0, 0, 9])),
        ("hints", head(&[(b":status", b"103"), (b"x", b"y")], 0)),
        ("unknown frames", frame(0xee, 0, 1, &[0; 50])),
        ("continuations", frame(CONTINUATION, 0, 1, &block(&[(b"x", b"y")]))),
    ];
    for (name, flood) in frames {
        let begin = match name {
            "empty pieces" => head(&[OK], 0),
            "continuations" => frame(HEADERS, 0, 1, &block(&[OK])),
            _ => Vec::new(),
        };
        let many = flood.repeat(1000);
        let bad = bad(Arc::new(move |peer| {
            peer.send(&begin);
            for _ in 0..50 {
                if !peer.send(&many) {
                    return;
                }
            }
        }));
        // On a busy machine the worker of both takes a while for a flood.
        let weir = weir_with(&[bad], &good, "6s");
        let (mut client, mut other) = (Client::connect(weir.address()), Client::connect(weir.address()));
        assert_eq!(other.get("/").status, 200, "{name}");
        let before = weir.resident();
        client.send("GET /bad/0 HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..20 {
            assert_eq!(other.get("/").status, 200, "{name}");
        }
        // In whichever way, it ends.
        let end = std::iter::from_fn(|| client.try_answer()).find(|answer| answer.status != 103);
        assert!(end.is_none_or(|answer| matches!(answer.status, 200 | 502 | 504)), "{name}");
        // Four hundred bytes for each frame, if all were kept.
        let growth = weir.resident().saturating_sub(before);
        println!("{name}: {growth} bytes more");
        assert!(growth < 20 << 20, "{name}: {growth} bytes more");
        assert_eq!(other.get("/").status, 200, "{name}");
    }
}
