//! HTTP/2 floods, bounded: resets, pings, settings, continuations.

use super::h2_frames::{
    ACK, CLEAN, CONTINUATION, END_STREAM, Fate, GOAWAY, H2, HEADERS, PING, RST_STREAM, SETTINGS, frame, probe,
};
use super::lab::Lab;

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const HOLDING: &str =
    "[[limit]]\nname = \"held\"\nkey = []\nmatch = { path = \"/held\" }\nrate = \"1/h\"\non_limit = \"hold\"";

fn fields(path: &[u8]) -> Vec<(&[u8], &[u8])> {
    [&CLEAN[..], &[(&b":path"[..], path)]].concat()
}

#[test]
fn a_thousand_resets() {
    let lab = Lab::start("", "");
    let mut h2 = H2::connect(lab.weir.address());
    for at in 0..1000 {
        h2.get(at * 2 + 1, &fields(b"/reset")).send(&frame(RST_STREAM, 0, at * 2 + 1, &CANCEL));
    }
    while h2.next().is_some_and(|frame| frame.kind != GOAWAY) {}
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    lab.weir.wait_for_metric("weir_connections", |open| open <= 1.0);
    lab.is_well();
}

#[test]
fn a_held_stream_that_is_reset_leaves_nothing() {
    let lab = Lab::start("", HOLDING);
    assert_eq!(probe(lab.weir.address(), "/held"), Fate::Status(200));
    for _ in 0..20 {
        let mut h2 = H2::connect(lab.weir.address());
        for at in 0..50 {
            h2.get(at * 2 + 1, &fields(b"/held"));
        }
        lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 50.0);
        for at in 0..50 {
            h2.send(&frame(RST_STREAM, 0, at * 2 + 1, &CANCEL));
        }
        lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 0.0);
    }
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    assert_eq!(lab.upstream.targets(), ["/held", "/clean"]);
    lab.is_well();
}

#[test]
fn a_held_stream_leaves_with_its_connection() {
    let lab = Lab::start("", HOLDING);
    assert_eq!(probe(lab.weir.address(), "/held"), Fate::Status(200));
    let mut h2 = H2::connect(lab.weir.address());
    for at in 0..200 {
        h2.get(at * 2 + 1, &fields(b"/held"));
    }
    lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held >= 128.0);
    drop(h2);
    lab.weir.wait_for_metric("weir_held_requests{limit=\"held\"}", |held| held == 0.0);
    assert_eq!(lab.upstream.targets(), ["/held"]);
    lab.is_well();
}

#[test]
fn pings_and_settings_are_answered_or_ended() {
    let lab = Lab::start("", "");
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, b""), frame(PING, ACK, 0, &[7; 8])] {
        let mut h2 = H2::connect(lab.weir.address());
        for _ in 0..5000 {
            h2.send(&flood);
        }
        // Nobody has read the answers until now.
        let fate = h2.get(1, &fields(b"/flood")).fate(1);
        assert!([Fate::Status(200), Fate::Gone].contains(&fate), "{fate:?}");
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    }
    lab.is_well();
}

#[test]
fn a_head_without_end_is_ended() {
    let lab = Lab::start("", "[timeouts]\nrequest_head = \"2s\"");
    for piece in [&b""[..], b"\0\x01x\x01y"] {
        let mut h2 = H2::connect(lab.weir.address());
        h2.send(&frame(HEADERS, END_STREAM, 1, &super::h2_frames::block(&fields(b"/a"))));
        for _ in 0..5000 {
            h2.send(&frame(CONTINUATION, 0, 1, piece));
        }
        assert_eq!(h2.fate(1), Fate::Gone);
        assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    }
    assert_eq!(lab.upstream.targets(), ["/clean", "/clean"]);
    assert_eq!(lab.weir.metric("weir_problems_total{kind=\"h2_endless_head\"}"), 2.0);
    lab.is_well();
}
