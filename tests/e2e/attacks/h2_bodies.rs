//! HTTP/2 bodies whose length is said twice: by content-length and by the frames.

use std::ops::RangeInclusive;

use super::h2_frames::{CLEAN, DATA, END_HEADERS, END_STREAM, Fate, H2, HEADERS, block, frame, opening, probe};
use super::lab::Lab;

type Field<'a> = (&'a [u8], &'a [u8]);

const POST: [Field<'static>; 4] =
    [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"weir.test"), (b":path", b"/outer")];
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: weir.test\r\n\r\n";

const ODD_LENGTHS: [&[u8]; 9] = [b"0", b"1", b"1000", b"+43", b"-1", b"", b"43,43", b"0x30", b"18446744073709551659"];

/// Connections with a body each that hides a request, of a length that is not its own.
pub fn corpus() -> Vec<Vec<u8>> {
    let connection = |length: &[u8]| {
        let head = frame(HEADERS, END_HEADERS, 1, &block(&[&POST[..], &[(b"content-length", length)]].concat()));
        [opening(), head, frame(DATA, END_STREAM, 1, SMUGGLED)].concat()
    };
    ODD_LENGTHS.map(connection).to_vec()
}

/// Nothing but whole, clean requests came through, and the upstream's connections are where they should be.
fn is_clean(lab: &Lab, outer: RangeInclusive<usize>) {
    for _ in 0..4 {
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    }
    let targets = lab.upstream.targets();
    assert!(targets.iter().all(|target| ["/outer", "/clean"].contains(&target.as_str())), "{targets:?}");
    assert!(outer.contains(&targets.iter().filter(|target| *target == "/outer").count()), "{targets:?}");
    lab.is_well();
}

#[test]
fn the_length_is_said_once() {
    let refused = [Fate::Status(400), Fate::Reset];
    for lengths in [[&b"0"[..], b"43"], [b"43", b"0"], [b"43", b"43"], [b"0", b"0"], [b"1", b"43"]] {
        let lab = Lab::start("", "");
        let lengths = lengths.map(|length| (&b"content-length"[..], length));
        for method in [&b"GET"[..], b"POST"] {
            let fields = [&[(&b":method"[..], method)][..], &POST[1..], &lengths].concat();
            let fate = H2::connect(lab.weir.address()).get(1, &fields).fate(1);
            assert!(refused.contains(&fate), "{fate:?} for {lengths:?}");
            let fate = H2::connect(lab.weir.address()).head(1, &fields).data(1, SMUGGLED, END_STREAM).fate(1);
            assert!(refused.contains(&fate), "{fate:?} for {lengths:?}");
        }
        is_clean(&lab, 0..=0);
    }
}

#[test]
fn the_length_is_a_number_and_true() {
    let lab = Lab::start("", "[timeouts]\nbody_idle = \"300ms\"");
    for length in ODD_LENGTHS {
        let fields = [&POST[..], &[(b"content-length", length)]].concat();
        // A request without a body is whole before anything that is too much has come, and may be answered by then.
        let may_pass = length == b"0";
        let fate = H2::connect(lab.weir.address()).head(1, &fields).data(1, SMUGGLED, END_STREAM).fate(1);
        assert!(may_pass || fate != Fate::Status(200), "{}", length.escape_ascii());
        // Without the end: what is owed does not come, or what came is too much.
        let fate = H2::connect(lab.weir.address()).head(1, &fields).data(1, &SMUGGLED[..20], 0).fate(1);
        assert!(may_pass || fate != Fate::Status(200), "{}", length.escape_ascii());
    }
    let fields = [&POST[..], &[(b"content-length", b"5")]].concat();
    assert_ne!(H2::connect(lab.weir.address()).get(1, &fields).fate(1), Fate::Status(200));
    is_clean(&lab, 0..=2);
    let mut outer = lab.upstream.received().into_iter().filter(|it| it.target() == "/outer");
    assert!(outer.all(|it| it.body.is_empty()));
}

#[test]
fn bodies_without_a_length_are_framed() {
    let lab = Lab::start("", "");
    for method in [&b"POST"[..], b"GET", b"DELETE"] {
        let fields = [&[(&b":method"[..], method)][..], &POST[1..]].concat();
        let mut h2 = H2::connect(lab.weir.address());
        assert_eq!(h2.head(1, &fields).data(1, SMUGGLED, END_STREAM).fate(1), Fate::Status(200));
        let received = lab.upstream.received();
        assert_eq!(received.last().unwrap().body, SMUGGLED, "{}", method.escape_ascii());
    }
    is_clean(&lab, 3..=3);
}

/// As over HTTP/1: when the body is first asked for, and never before a refusal.
#[test]
fn a_body_that_waits_is_asked_for() {
    let lab = Lab::start("", "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"");
    let expecting = [&POST[..], &[(b"expect", b"100-continue"), (b"content-length", b"2")]].concat();
    let mut h2 = H2::connect(lab.weir.address());
    h2.head(1, &expecting);
    assert_eq!(h2.next_status(), (1, 100));
    assert_eq!(h2.data(1, b"hi", END_STREAM).next_status(), (1, 200));
    assert_eq!(h2.head(3, &expecting).next_status(), (3, 429));
    assert_eq!(lab.upstream.received()[0].body, b"hi");
    // A client that does not wait gets none.
    let lab = Lab::start("", "");
    let mut h2 = H2::connect(lab.weir.address());
    assert_eq!(h2.head(1, &expecting).data(1, b"hi", END_STREAM).next_status(), (1, 200));
    is_clean(&lab, 1..=1);
}

#[test]
fn trailers_frame_nothing() {
    let lab = Lab::start("", "");
    let fields = [&POST[..], &[(&b"trailer"[..], &b"x-sum, x-forwarded-for, content-length, host"[..])]].concat();
    let good: [Field<'_>; 2] = [(b"x-sum", b"1"), (b"x-forwarded-for", b"6.6.6.6")];
    let mut h2 = H2::connect(lab.weir.address());
    h2.head(1, &fields).data(1, b"hi", 0).send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&good)));
    assert_eq!(h2.fate(1), Fate::Status(200));
    assert_eq!(lab.upstream.received()[0].trailers.trim(), "x-sum: 1");
    let bad: [&[Field<'_>]; 4] = [
        &[(b":path", b"/b")],
        &[(b"transfer-encoding", b"chunked")],
        &[(b"connection", b"close")],
        &[(b"x", b"a\r\nb")],
    ];
    for trailers in bad {
        let mut h2 = H2::connect(lab.weir.address());
        h2.head(1, &fields).data(1, b"hi", 0).send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(trailers)));
        assert_ne!(h2.fate(1), Fate::Status(200), "{trailers:?}");
    }
    is_clean(&lab, 1..=1);
}

#[test]
fn a_stream_that_has_ended_takes_no_data() {
    let lab = Lab::start("", "");
    let fields = [&CLEAN[..], &[(&b":path"[..], &b"/outer"[..])]].concat();
    let mut h2 = H2::connect(lab.weir.address());
    assert_eq!(h2.get(1, &fields).fate(1), Fate::Status(200));
    h2.data(1, SMUGGLED, END_STREAM).data(7, SMUGGLED, END_STREAM);
    assert_eq!(h2.fate(7), Fate::Gone);
    let mut h2 = H2::connect(lab.weir.address());
    h2.data(1, SMUGGLED, END_STREAM);
    assert_eq!(h2.fate(1), Fate::Gone);
    is_clean(&lab, 1..=1);
}
