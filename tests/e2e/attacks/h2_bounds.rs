//! What one HTTP/2 connection can make Weir do: bounded, whichever rule of the protocol is bent for it.

use std::time::{Duration, Instant};

use super::h2_frames::{
    ACK, CLEAN, CONTINUATION, DATA, END_HEADERS, END_STREAM, Fate, Frame, GOAWAY, H2, HEADERS, PING, RST_STREAM,
    SETTINGS, block, frame, probe,
};
use super::lab::Lab;
use crate::support::{NEVER, PATIENCE, Upstream};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ABANDONED: &str = "weir_problems_total{kind=\"abandoned_streams\"}";
const IDLE: &str = "weir_problems_total{kind=\"h2_idle_frames\"}";
/// What the process may grow by: buffers of some connections, the allocator's slack.
const GROWTH: usize = 16 << 20;

type Field<'a> = (&'a [u8], &'a [u8]);

fn fields(path: &[u8]) -> Vec<(&[u8], &[u8])> {
    [&CLEAN[..], &[(&b":path"[..], path)]].concat()
}

fn post(path: &[u8]) -> Vec<(&[u8], &[u8])> {
    [&[(&b":method"[..], &b"POST"[..])], &fields(path)[1..]].concat()
}

/// A GET on each odd stream from `1` on.
fn stream(turn: u32) -> u32 {
    turn * 2 + 1
}

impl H2 {
    /// Whether the connection ends: nothing more comes, or a GOAWAY does.
    fn ends(&mut self) -> bool {
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                return true;
            }
        }
        true
    }

    /// Sends a PING and waits for its answer; whether there is one.
    fn is_alive(&mut self) -> bool {
        self.send(&frame(PING, 0, 0, b"are you?"));
        while let Some(frame) = self.next() {
            match frame.kind {
                PING if frame.flags & ACK != 0 => return true,
                GOAWAY => return false,
                _ => {}
            }
        }
        false
    }
}

/// The connections that Weir ended because of a rule or a bound of HTTP/2, whatever the kind.
fn ended(lab: &Lab) -> f64 {
    let kinds = weir::transport::http2::Fatal::KINDS.map(|kind| format!("weir_problems_total{{kind=\"{kind}\"}}"));
    kinds.iter().map(|series| lab.weir.metric(series)).sum()
}

/// An upstream that never answers on `/never`.
fn sleepy() -> Upstream {
    Upstream::serving(|mut peer| {
        while let Some(head) = peer.head() {
            if head.target() == "/never" {
                peer.rest();
            } else {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    })
}

#[test]
fn rapid_resets_end_the_connection() {
    let lab = Lab::behind(sleepy(), "", NEVER);
    let mut h2 = H2::connect(lab.weir.address());
    // Each is under way before it is reset, so that there is never more than one.
    let mut resets = 0;
    while resets < 1000 && h2.get(stream(resets), &fields(b"/never")).is_alive() {
        h2.send(&frame(RST_STREAM, 0, stream(resets), &CANCEL));
        resets += 1;
    }
    assert!((50..=150).contains(&resets), "{resets}");
    assert!(lab.upstream.received_count() <= 150);
    assert_eq!(lab.weir.metric(ABANDONED), 1.0);
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    lab.upstream.wait_until(|upstream| upstream.connections() <= 2);
    lab.is_well();
}

#[test]
fn who_lets_as_many_be_answered_may_reset() {
    let lab = Lab::behind(sleepy(), "", NEVER);
    let mut h2 = H2::connect(lab.weir.address());
    for turn in 0..250 {
        assert_eq!(h2.get(stream(2 * turn), &fields(b"/clean")).fate(stream(2 * turn)), Fate::Status(200), "{turn}");
        assert!(h2.get(stream(2 * turn + 1), &fields(b"/never")).is_alive(), "{turn}");
        h2.send(&frame(RST_STREAM, 0, stream(2 * turn + 1), &CANCEL));
    }
    assert_eq!(lab.weir.metric(ABANDONED), 0.0);
    lab.is_well();
}

/// Made to reset streams itself, Weir ends the connection before long (CVE-2025-8671).
#[test]
fn made_resets_end_the_connection() {
    let zero: &[u8] = &[0; 4];
    let most: &[u8] = &[0x7f, 0xff, 0xff, 0xff];
    for (name, kind, flags, payload) in [
        ("a window that grows by nothing", WINDOW_UPDATE, 0, zero),
        ("a window that overflows", WINDOW_UPDATE, 0, most),
        ("a body that has ended already", DATA, 0, b"more"),
        ("a priority of the wrong length", PRIORITY, 0, b"123"),
        ("a head after the end", HEADERS, END_STREAM | END_HEADERS, b"\x82\x86\x84"),
    ] {
        let lab = Lab::behind(sleepy(), "", NEVER);
        let mut h2 = H2::connect(lab.weir.address());
        for turn in 0..2000 {
            h2.get(stream(turn), &fields(b"/never")).send(&frame(kind, flags, stream(turn), payload));
        }
        assert!(h2.ends(), "{name}");
        assert_eq!(ended(&lab), 1.0, "{name}");
        let reached = lab.upstream.received_count();
        assert!(reached <= 150, "{name}: {reached}");
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200), "{name}");
        lab.weir.wait_for_metric("weir_connections", |open| open <= 1.0);
        lab.is_well();
    }
}

#[test]
fn streams_that_are_misused_end_the_connection() {
    let lab = Lab::start("", "");
    let get = |id: u32| frame(HEADERS, END_STREAM | END_HEADERS, id, &block(&fields(b"/a")));
    for (count, (name, bytes)) in (1..).zip([
        ("stream 0", get(0)),
        ("an even one", get(2)),
        ("an earlier one", [get(5), get(3)].concat()),
        ("data before its head", frame(DATA, END_STREAM, 1, b"x")),
        ("data on no stream", frame(DATA, END_STREAM, 0, b"x")),
        ("a reset of nothing", frame(RST_STREAM, 0, 1, &CANCEL)),
        ("a promise", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("a head without its beginning", frame(CONTINUATION, END_HEADERS, 1, b"")),
        ("something within a head", [frame(HEADERS, 0, 1, b"\x82"), frame(PING, 0, 0, &[0; 8])].concat()),
        ("settings on a stream", frame(SETTINGS, 0, 1, b"")),
        ("settings of half a length", frame(SETTINGS, 0, 0, b"123")),
        ("a ping of no length", frame(PING, 0, 0, b"")),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a window that grows by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a frame that is too long", frame(DATA, 0, 1, &vec![0; 20_000])),
        ("a table that cannot be", frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\xff\xff\xff\x0f")),
    ]) {
        let mut h2 = H2::connect(lab.weir.address());
        h2.send(&bytes);
        assert!(h2.ends(), "{name}");
        assert_eq!(ended(&lab), f64::from(count), "{name}");
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200), "after {name}");
    }
    assert!(lab.upstream.targets().iter().filter(|target| *target == "/a").count() <= 1);
    lab.is_well();
}

#[test]
fn frames_that_say_nothing_take_no_memory() {
    let held =
        "[[limit]]\nname = \"held\"\nkey = []\nmatch = { path = \"/held\" }\nrate = \"1/h\"\non_limit = \"hold\"";
    let lab = Lab::start("", held);
    assert_eq!(probe(lab.weir.address(), "/held"), Fate::Status(200));
    for (name, flood) in [
        ("empty data", frame(DATA, 0, 1, b"")),
        ("padding", frame(DATA, 8, 1, b"\0")),
        ("windows of the stream", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("windows of the connection", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9])),
        ("priorities of streams to come", frame(PRIORITY, 0, 999, &[0, 0, 0, 3, 9])),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("answers to pings", frame(PING, ACK, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("frames of a kind that there is not", frame(0xee, 0, 1, b"what")),
    ] {
        let before = lab.weir.resident();
        let mut h2 = H2::connect(lab.weir.address());
        // Its body is not read for as long as it waits.
        h2.head(1, &post(b"/held"));
        let batch = flood.repeat(1000);
        for _ in 0..200 {
            h2.send(&batch);
        }
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200), "{name}");
        let growth = lab.weir.resident().saturating_sub(before);
        assert!(growth < GROWTH, "{name}: {growth} bytes more");
        drop(h2);
        lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 0.0);
    }
    assert_eq!(lab.upstream.targets().iter().filter(|target| *target == "/held").count(), 1);
    lab.is_well();
}

/// A client that reads all answers sends frames without end while its request waits.
#[test]
fn frames_without_a_purpose_end_the_connection() {
    let lab = Lab::behind(sleepy(), "", NEVER);
    for (count, (name, flood)) in (1..).zip([
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("empty data", frame(DATA, 0, 1, b"")),
        ("padding", frame(DATA, 8, 1, b"\0")),
        ("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9])),
        ("windows", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("frames of a kind that there is not", frame(0xee, 0, 1, b"what")),
    ]) {
        let mut h2 = H2::connect(lab.weir.address());
        h2.head(1, &post(b"/never"));
        let mut writer = h2.client.stream().try_clone().unwrap();
        let flooding = std::thread::spawn(move || {
            let batch = flood.repeat(1000);
            (0..20).all(|_| std::io::Write::write_all(&mut writer, &batch).is_ok())
        });
        assert!(h2.ends(), "{name}");
        assert_eq!(lab.weir.metric(IDLE), f64::from(count), "{name}");
        drop(h2);
        let _ = flooding.join().unwrap();
    }
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    lab.is_well();
}

/// A client that takes nothing of an answer, or a byte at a time, has the answer for a bounded time (CVE-2019-9511 and
/// -9517).
#[test]
fn a_window_that_stays_shut_ends_the_answer() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
        std::io::Write::write_all(stream, head.as_bytes()).is_ok()
            && std::io::Write::write_all(stream, &vec![b'x'; 100_000]).is_ok()
    });
    let rest = "[timeouts]\nmin_read_rate = \"240B\"\nrate_window = \"1s\"\n";
    let lab = Lab::behind(upstream, "", rest);
    let untaken = "weir_problems_total{kind=\"untaken_answer\"}";
    for (count, drip) in [(1.0, false), (2.0, true)] {
        let mut h2 = H2::connect(lab.weir.address());
        h2.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).get(1, &fields(b"/big"));
        assert_eq!(h2.fate(1), Fate::Status(200));
        lab.weir.wait_until("the end of the answer", || {
            if drip {
                h2.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
                std::thread::park_timeout(Duration::from_millis(20));
            }
            lab.weir.metric(untaken) >= count
        });
        assert_eq!(h2.fate(1), Fate::Reset, "drip: {drip}");
    }
}

/// A long field that is put into the table, where [`AGAIN`] means it.
fn long_field() -> Vec<u8> {
    let value = vec![b'v'; 3900];
    let len = value.len() - 127;
    [&[0x40, 1, b'x', 127, (len % 128) as u8 | 128, (len / 128) as u8], &value[..]].concat()
}

/// The last field that was put into the table.
const AGAIN: u8 = 0xbe;

/// A field is put into the table once and meant ten thousand times by one byte each.
#[test]
fn a_head_that_unpacks_to_megabytes_is_refused() {
    let lab = Lab::start("", "");
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    let before = lab.weir.resident();
    let long = long_field();
    for _ in 0..20 {
        let mut h2 = H2::connect(lab.weir.address());
        let mut head = block(&fields(b"/bomb"));
        head.extend(&long);
        h2.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head));
        for turn in 1..20 {
            let mut head = block(&fields(b"/bomb"));
            head.extend(vec![AGAIN; 10_000]);
            h2.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream(turn), &head));
        }
        let fate = h2.fate(stream(19));
        assert!([Fate::Status(431), Fate::Reset, Fate::Gone].contains(&fate), "{fate:?}");
    }
    assert!(lab.upstream.received_count() <= 21, "the first of each connection is clean");
    let growth = lab.weir.resident().saturating_sub(before);
    assert!(growth < GROWTH, "{growth} bytes more");
    let refused = lab.weir.metric("weir_problems_total{kind=\"head_too_large\"}");
    assert!(refused >= 20.0, "{refused}");
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    lab.is_well();
}

/// Heads below the bound, whose answers no window lets through.
#[test]
fn a_head_is_not_kept_for_an_answer_that_waits() {
    const STREAMS: u32 = 128;
    const CONNECTIONS: u32 = 16;
    let (mut first, mut next) = (block(&fields(b"/%00")), block(&fields(b"/%00")));
    first.extend(long_field());
    next.extend([AGAIN; 7]);
    for server in ["", "max_untaken_bytes = \"1MiB\""] {
        let lab = Lab::start(server, "");
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
        let before = lab.weir.resident();
        let shut = (0..CONNECTIONS).map(|_| {
            let mut h2 = H2::connect(lab.weir.address());
            h2.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            for turn in 0..STREAMS {
                let head = if turn == 0 { &first } else { &next };
                h2.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream(turn), head));
            }
            assert_eq!(h2.fate(stream(STREAMS - 1)), Fate::Status(400));
            h2
        });
        let shut: Vec<_> = shut.collect();
        // The heads have 56 MB. How many streams are there at once depends on the machine.
        let growth = lab.weir.resident().saturating_sub(before);
        assert!(growth < 2 * GROWTH, "{growth} bytes more");
        if !server.is_empty() {
            lab.weir.wait_for_metric("weir_problems_total{kind=\"untaken_overflow\"}", |ended| ended > 0.0);
        }
        drop(shut);
        lab.is_well();
    }
}

#[test]
fn large_heads_that_wait_are_bounded_for_each_client() {
    let hold = "[hold]\nmax_waiting_bytes_per_client = \"128KiB\"\n\
                [[limit]]\nname = \"held\"\nkey = [\"header:x-key\"]\nmatch = { path = \"/held\" }\nrate = \"1/h\"\non_limit = \"hold\"";
    let large = vec![b'v'; 12_000];
    let bomb: Vec<Field<'_>> = [&fields(b"/held")[..], &[(&b"x-large"[..], &large[..])]].concat();
    let upload = [&post(b"/held")[..], &[(b"content-length", b"60000")]].concat();
    let held = |lab: &Lab, count: u32| {
        lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == f64::from(count));
    };
    for (count, fitting, head, body, is_whole) in [
        (100, 10, bomb, 0, true),
        (30, 2, upload.clone(), 60_000, true),
        (30, 2, upload, 60_000, false),
        (30, 2, post(b"/held"), 60_000, true),
        (30, 2, post(b"/held"), 60_000, false),
    ] {
        let lab = Lab::start("", hold);
        assert_eq!(probe(lab.weir.address(), "/held"), Fate::Status(200));
        let mut h2 = H2::connect(lab.weir.address());
        let flags = END_HEADERS | if body == 0 { END_STREAM } else { 0 };
        if !is_whole {
            (0..count).for_each(|turn| _ = h2.send(&frame(HEADERS, flags, stream(turn), &block(&head))));
            held(&lab, count); // bodies that come later count too
        }
        for turn in 0..count {
            if is_whole {
                h2.send(&frame(HEADERS, flags, stream(turn), &block(&head)));
            }
            for piece in vec![b'b'; body].chunks(15_000) {
                h2.data(stream(turn), piece, 0);
            }
        }
        // Few of them fit; the others are told at once.
        assert_eq!(h2.fate(stream(count - 1)), Fate::Status(429));
        held(&lab, fitting);
        lab.weir.wait_for_metric("weir_hold_overflow_total", |refused| refused == f64::from(count - fitting));
        lab.is_well();
    }
}

#[test]
fn small_bodies_that_come_behind_their_heads_count_as_they_are() {
    for on_limit in ["\"hold\"", "\"delay\"\ndelay = { step = \"1h\", max = \"1h\" }"] {
        let limit = format!(
            "[[limit]]\nname = \"held\"\nkey = []\nmatch = {{ path = \"/held\" }}\nrate = \"1/h\"\non_limit = {on_limit}"
        );
        let lab = Lab::start("", &limit);
        assert_eq!(probe(lab.weir.address(), "/held"), Fate::Status(200));
        let held = || lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 300.0);
        let mut connections = [(); 3].map(|()| H2::connect(lab.weir.address()));
        for h2 in &mut connections {
            (0..100).for_each(|turn| _ = h2.head(stream(turn), &post(b"/held")));
        }
        held();
        for h2 in &mut connections {
            (0..100).for_each(|turn| _ = h2.data(stream(turn), &[b'b'; 20], END_STREAM));
            assert!(h2.is_alive(), "all bodies have come");
        }
        held();
        assert_eq!(lab.weir.metric("weir_hold_overflow_total"), 0.0);
        drop(connections);
        lab.is_well();
    }
}

/// Who asks for nothing goes, however much it says; and so does a head that never ends.
#[test]
fn a_connection_without_requests_ends_in_time() {
    let lab = Lab::start("", "[timeouts]\nkeep_alive = \"3s\"");
    let drips: [(&str, &[u8], Vec<u8>); 3] = [
        ("pings", b"", frame(PING, 0, 0, &[7; 8])),
        ("windows", b"", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("a head, byte by byte", &frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x82; 4000])[..20], vec![0x82]),
    ];
    for (name, first, piece) in drips {
        let mut h2 = H2::connect(lab.weir.address());
        h2.send(first);
        let (began, mut writer) = (Instant::now(), h2.client.stream().try_clone().unwrap());
        let dripping = std::thread::spawn(move || {
            while std::io::Write::write_all(&mut writer, &piece).is_ok() {
                if began.elapsed() > PATIENCE {
                    return false;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            true
        });
        assert!(h2.ends(), "{name}");
        drop(h2);
        assert!(dripping.join().unwrap(), "{name}: it ends while the client goes on");
    }
    // One that asks now and then stays.
    let mut h2 = H2::connect(lab.weir.address());
    for turn in 0..8 {
        assert_eq!(h2.get(stream(turn), &fields(b"/clean")).fate(stream(turn)), Fate::Status(200));
        std::thread::park_timeout(Duration::from_millis(500));
    }
    lab.is_well();
}

/// Each write ends within a head, as a segment of many heads may. Each head is whole in time.
#[test]
fn heads_that_come_in_two_parts_do_not_count_together() {
    // A machine that pauses makes no head late.
    const HEAD: Duration = Duration::from_secs(4);
    let lab = Lab::start("", &format!("{NEVER}[timeouts]\nrequest_head = \"4s\""));
    let head = |turn| frame(HEADERS, END_STREAM | END_HEADERS, stream(turn), &block(&fields(b"/clean")));
    let mut h2 = H2::connect(lab.weir.address());
    assert_eq!(h2.send(&head(0)).fate(stream(0)), Fate::Status(200));
    let (began, half) = (Instant::now(), head(1).len() / 2);
    h2.send(&head(1)[..half]);
    for turn in (1..).take_while(|_| began.elapsed() < 2 * HEAD) {
        h2.send(&[&head(turn)[half..], &head(turn + 1)[..half]].concat());
        assert_eq!(h2.fate(stream(turn)), Fate::Status(200), "{turn}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    lab.is_well();
}

/// The end is announced with a PING, so that a client can tell which of its requests were on their way.
#[test]
fn a_connection_has_its_last_request_although_no_ping_is_answered() {
    const ANNOUNCED: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];
    let lab = Lab::start("max_requests_per_connection = 5", "");
    let (mut h2, began) = (H2::connect(lab.weir.address()), Instant::now());
    let is_last = |frame: &Frame| frame.kind == GOAWAY && frame.payload[..4] != ANNOUNCED;
    let is_over = |turn: &u32| {
        assert!(began.elapsed() < PATIENCE, "{turn} requests are answered");
        std::thread::park_timeout(Duration::from_millis(20));
        h2.get(stream(*turn), &fields(b"/clean"));
        let answered = std::iter::from_fn(|| h2.next()).find(|frame| is_last(frame) || frame.kind == HEADERS);
        is_last(&answered.unwrap())
    };
    let asked = stream((0..10_000).find(is_over).unwrap());
    // Nothing follows but the answer to a request that came just before the end.
    assert!(std::iter::from_fn(|| h2.next()).all(|frame| frame.stream == asked));
    lab.is_well();
}
