//! The rules of RFC 9113, each with a frame that breaks it: what ends, and with which error.

use super::*;

/// What a row expects.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The connection ends.
    Connection(ErrorCode),
    /// The stream is reset.
    Stream(u32, ErrorCode),
    /// Nothing.
    None,
}

use End::{Connection as C, None as Fine, Stream as S};
use ErrorCode::{Compression, EnhanceYourCalm, FlowControl, FrameSize, Protocol, RefusedStream, StreamClosed};

/// Holds rows against a connection of their own each. `prepare` comes before the frames.
fn check(section: &str, rows: &[(&str, Vec<Vec<u8>>, End)]) {
    for (name, frames, expected) in rows {
        let mut lab = Lab::open();
        for frame in frames {
            lab.say(frame);
        }
        let reset = lab.frames().into_iter().find(|(kind, ..)| *kind == RST_STREAM);
        let found = match (lab.fatal, reset) {
            (Some(fatal), _) => C(fatal.code),
            (None, Some((_, _, stream, code))) => {
                let codes = [Protocol, FlowControl, StreamClosed, FrameSize, RefusedStream];
                S(stream, *codes.iter().find(|it| (**it as u32).to_be_bytes() == code[..]).unwrap())
            }
            _ => Fine,
        };
        assert_eq!(found, *expected, "{section}: {name}: {:?}", lab.events);
    }
}

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ONE: [u8; 4] = [0, 0, 0, 1];
const MOST: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

#[test]
fn a_connection_begins_with_preface_and_settings() {
    let begin = |bytes: &[u8]| {
        let mut lab = Lab::new(CONFIG);
        lab.say(bytes);
        lab.fatal.map(|fatal| fatal.code)
    };
    assert_eq!(begin(b"GET / HTTP/1.1\r\n\r\n"), Some(Protocol));
    assert_eq!(begin(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"), Some(Protocol));
    assert_eq!(begin(&PREFACE[..20]), None);
    assert_eq!(begin(&[PREFACE, &frame(PING, 0, 0, &[0; 8])].concat()), Some(Protocol));
    assert_eq!(begin(&[PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat()), Some(Protocol));
    assert_eq!(begin(&opening()), None);
}

#[test]
fn frames_have_lengths_and_streams() {
    check(
        "4.1",
        &[
            ("an unknown type is ignored", vec![frame(0xee, 0xff, 7, &[1; 100]), get(1)], Fine),
            ("unknown flags are ignored", vec![frame(PING, 0xfe, 0, &[0; 8])], Fine),
            ("the reserved bit is ignored", vec![frame(PING, 0, 0x8000_0000, &[0; 8])], Fine),
        ],
    );
    check(
        "4.2",
        &[
            ("the longest", vec![post(1, ""), frame(DATA, 0, 1, &[0; 16_384])], Fine),
            ("a longer one", vec![post(1, ""), frame(DATA, 0, 1, &[0; 16_385])], C(FrameSize)),
            ("a longer one that is unknown", vec![frame(0xee, 0, 1, &[0; 16_385])], C(FrameSize)),
        ],
    );
    check(
        "6",
        &[
            ("DATA on 0", vec![frame(DATA, 0, 0, b"x")], C(Protocol)),
            ("DATA on an idle stream", vec![frame(DATA, 0, 1, b"x")], C(Protocol)),
            ("DATA padded by all of it", vec![post(1, ""), frame(DATA, PADDED, 1, &[1])], C(Protocol)),
            ("DATA padded by nothing", vec![post(1, ""), frame(DATA, PADDED, 1, &[])], C(FrameSize)),
            ("HEADERS on 0", vec![get(0)], C(Protocol)),
            ("HEADERS padded by too much", vec![frame(HEADERS, PADDED | END_HEADERS, 1, &[9, 0x82])], C(Protocol)),
            ("PRIORITY on 0", vec![frame(PRIORITY, 0, 0, &[0; 5])], C(Protocol)),
            ("PRIORITY of 4 bytes", vec![post(1, ""), frame(PRIORITY, 0, 1, &[0; 4])], S(1, FrameSize)),
            ("PRIORITY of an idle stream", vec![frame(PRIORITY, 0, 9, &[0; 5])], Fine),
            ("RST_STREAM on 0", vec![frame(RST_STREAM, 0, 0, &CANCEL)], C(Protocol)),
            ("RST_STREAM on an idle stream", vec![frame(RST_STREAM, 0, 1, &CANCEL)], C(Protocol)),
            ("RST_STREAM of 3 bytes", vec![get(1), frame(RST_STREAM, 0, 1, &[0; 3])], C(FrameSize)),
            ("SETTINGS on a stream", vec![frame(SETTINGS, 0, 1, &[])], C(Protocol)),
            ("SETTINGS of 5 bytes", vec![frame(SETTINGS, 0, 0, &[0; 5])], C(FrameSize)),
            ("an acknowledgement with bytes", vec![frame(SETTINGS, ACK, 0, &[0; 6])], C(FrameSize)),
            ("SETTINGS that cannot be", vec![frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2])], C(Protocol)),
            ("PUSH_PROMISE", vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], C(Protocol)),
            ("PING on a stream", vec![frame(PING, 0, 1, &[0; 8])], C(Protocol)),
            ("PING of 7 bytes", vec![frame(PING, 0, 0, &[0; 7])], C(FrameSize)),
            ("GOAWAY on a stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], C(Protocol)),
            ("GOAWAY of 7 bytes", vec![frame(GOAWAY, 0, 0, &[0; 7])], C(FrameSize)),
            ("WINDOW_UPDATE of 3 bytes", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])], C(FrameSize)),
            ("WINDOW_UPDATE on an idle stream", vec![frame(WINDOW_UPDATE, 0, 1, &ONE)], C(Protocol)),
            ("CONTINUATION of nothing", vec![frame(CONTINUATION, END_HEADERS, 1, &[])], C(Protocol)),
        ],
    );
}

#[test]
fn header_blocks_are_whole_and_alone() {
    let begun = || frame(HEADERS, END_STREAM, 1, &block(GET));
    let ended = |stream| frame(CONTINUATION, END_HEADERS, stream, &block("x=1"));
    check(
        "4.3, 6.10",
        &[
            ("in two frames", vec![begun(), ended(1)], Fine),
            ("in many frames", vec![begun(), frame(CONTINUATION, 0, 1, &[]).repeat(31), ended(1)], Fine),
            ("in too many", vec![begun(), frame(CONTINUATION, 0, 1, &[]).repeat(32), ended(1)], C(EnhanceYourCalm)),
            ("of too many bytes", vec![begun(), frame(CONTINUATION, 0, 1, &[0; 16_384]).repeat(4)], C(EnhanceYourCalm)),
            ("continued elsewhere", vec![begun(), ended(3)], C(Protocol)),
            ("interrupted", vec![begun(), frame(PING, 0, 0, &[0; 8])], C(Protocol)),
            ("interrupted by the unknown", vec![begun(), frame(0xee, 0, 0, &[])], C(Protocol)),
            ("interrupted by itself", vec![begun(), begun()], C(Protocol)),
            ("continued after its end", vec![get(1), ended(1)], C(Protocol)),
            ("not to be decoded", vec![frame(HEADERS, END_HEADERS, 1, &[0x80])], C(Compression)),
            ("a table that is too large", vec![frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f])], C(Compression)),
        ],
    );
}

#[test]
fn streams_have_states() {
    let reset = |id| frame(RST_STREAM, 0, id, &CANCEL);
    let end = |id| frame(DATA, END_STREAM, id, b"x");
    check(
        "5.1",
        &[
            ("data after the end", vec![get(1), end(1)], S(1, StreamClosed)),
            ("data after the end of the data", vec![post(1, ""), end(1), end(1)], S(1, StreamClosed)),
            ("a head after the end", vec![get(1), get(1)], S(1, StreamClosed)),
            ("a window after the end", vec![get(1), frame(WINDOW_UPDATE, 0, 1, &ONE)], Fine),
            ("data after a reset", vec![post(1, ""), reset(1), end(1)], S(1, StreamClosed)),
            ("a head after a reset", vec![post(1, ""), reset(1), get(1)], S(1, StreamClosed)),
            ("a window after a reset", vec![post(1, ""), reset(1), frame(WINDOW_UPDATE, 0, 1, &ONE)], Fine),
            ("a reset after a reset", vec![post(1, ""), reset(1), reset(1)], Fine),
            ("a priority after a reset", vec![post(1, ""), reset(1), frame(PRIORITY, 0, 1, &[0; 5])], Fine),
        ],
    );
    check(
        "5.1.1",
        &[
            ("an even stream", vec![get(2)], C(Protocol)),
            ("an earlier stream", vec![get(5), get(3)], C(Protocol)),
            ("skipped streams", vec![get(1), get(9), get(11)], Fine),
        ],
    );
    check(
        "5.1.2",
        &[
            ("as many as there may be", vec![get(1), get(3), get(5), get(7)], Fine),
            ("one more", vec![get(1), get(3), get(5), get(7), get(9)], S(9, RefusedStream)),
            ("one more, as one was reset", vec![get(1), get(3), get(5), get(7), reset(1), get(9)], Fine),
        ],
    );
    check("5.3.1 of RFC 7540", &[("a priority on itself", vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])], C(Protocol))]);
}

#[test]
fn streams_that_have_ended_take_nothing() {
    let mut lab = Lab::open();
    lab.say(&get(1)).answer(1).say(&frame(WINDOW_UPDATE, 0, 1, &ONE)).say(&frame(RST_STREAM, 0, 1, &CANCEL));
    lab.frames();
    lab.say(&frame(DATA, 0, 1, b"x"));
    assert_eq!(lab.frames(), [(RST_STREAM, 0, 1, vec![0, 0, 0, 5])]);
    let mut lab = Lab::open();
    lab.say(&get(1)).answer(1).say(&get(1));
    assert_eq!(lab.fatal.map(|fatal| fatal.code), Some(StreamClosed));
}

/// A client that sends a body may not know yet that nobody wants it.
#[test]
fn late_frames_of_a_stream_that_was_reset_are_dropped() {
    let mut lab = Lab::open();
    lab.say(&post(1, "")).answer(1);
    assert_eq!(lab.frames().last(), Some(&(RST_STREAM, 0, 1, vec![0; 4])));
    for _ in 0..1000 {
        lab.say(&frame(DATA, 0, 1, &[0; 16_000]));
    }
    lab.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block("x-sum=1")));
    assert!(lab.frames().iter().all(|(kind, _, stream, _)| (*kind, *stream) == (WINDOW_UPDATE, 0)));
    lab.say(&get(3));
    assert_eq!((lab.fatal, lab.events.len()), (None, 2));
}

#[test]
fn a_fault_of_one_head_is_a_fault_of_its_stream() {
    let mut lab = Lab::open();
    for (turn, bad) in ["x=a\nb", "X=1", ":path=/b", "connection=close", "content-length=1"].iter().enumerate() {
        let id = 4 * turn as u32 + 1;
        lab.say(&frame(HEADERS, END_STREAM | END_HEADERS, id, &block(&format!("{GET}|{bad}|y=2"))));
        assert!(lab.events.pop().unwrap().contains("Malformed"), "{bad}");
        lab.answer(id).say(&get(id + 2));
        assert_eq!(lab.events.pop().unwrap(), format!("{} GET / true ", id + 2), "after {bad}");
        lab.answer(id + 2);
        assert_eq!(lab.fatal, None);
    }
    // What a refused head put into the table is there for the next one.
    let mut head = block(GET);
    head.extend(b"\x40\x01X\x01\n\x40\x01y\x012");
    lab.say(&frame(HEADERS, END_STREAM | END_HEADERS, 101, &head));
    let mut head = block(GET);
    head.push(0xbe);
    lab.say(&frame(HEADERS, END_STREAM | END_HEADERS, 103, &head));
    assert_eq!(lab.events.pop().unwrap(), r"103 GET / true y: 2\r\n");
}

#[test]
fn bodies_are_as_long_as_their_heads_say() {
    let data = |flags, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    let trailers = |flags, fields: &str| frame(HEADERS, END_HEADERS | flags, 1, &block(fields));
    check(
        "8.1.1",
        &[
            ("whole", vec![post(1, "content-length=3"), data(0, b"ab"), data(END_STREAM, b"c")], Fine),
            ("too short", vec![post(1, "content-length=3"), data(END_STREAM, b"ab")], S(1, Protocol)),
            ("too long", vec![post(1, "content-length=3"), data(0, b"abcd")], S(1, Protocol)),
            ("too long at last", vec![post(1, "content-length=3"), data(0, b"abc"), data(0, b"d")], S(1, Protocol)),
            (
                "too short before trailers",
                vec![post(1, "content-length=3"), trailers(END_STREAM, "x=1")],
                S(1, Protocol),
            ),
            ("trailers", vec![post(1, "content-length=0"), trailers(END_STREAM, "x=1")], Fine),
            ("trailers without the end", vec![post(1, ""), trailers(0, "x=1")], S(1, Protocol)),
            ("trailers with a path", vec![post(1, ""), trailers(END_STREAM, ":path=/")], S(1, Protocol)),
            ("trailers that are malformed", vec![post(1, ""), trailers(END_STREAM, "X=1")], S(1, Protocol)),
        ],
    );
}

#[test]
fn windows_are_kept() {
    let settings = |value: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &value.to_be_bytes()].concat());
    check(
        "6.9",
        &[
            ("0 for the connection", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], C(Protocol)),
            ("0 for a stream", vec![get(1), frame(WINDOW_UPDATE, 0, 1, &[0; 4])], S(1, Protocol)),
            ("too much for the connection", vec![frame(WINDOW_UPDATE, 0, 0, &MOST)], C(FlowControl)),
            ("too much for a stream", vec![get(1), frame(WINDOW_UPDATE, 0, 1, &MOST)], S(1, FlowControl)),
            (
                "too much by settings",
                vec![get(1), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0, 0]), settings(0x7fff_ffff)],
                C(FlowControl),
            ),
            ("too much of settings", vec![settings(0x8000_0000)], C(FlowControl)),
        ],
    );
    // What is not consumed is bounded by the window of the stream, and over all streams by that of the connection.
    let mut lab = Lab::open();
    lab.say(&post(1, ""));
    let mut unread = |bytes: &[u8], out: &mut Vec<u8>| {
        let mut at = 0;
        while at < bytes.len() {
            at += lab.connection.receive(&bytes[at..], out).unwrap().consumed;
        }
    };
    let mut out = Vec::new();
    unread(&frame(DATA, 0, 1, &[0; 16_383]).repeat(4), &mut out);
    assert!(out.is_empty());
    unread(&frame(DATA, 0, 1, &[0; 4]), &mut out);
    assert_eq!(out, frame(RST_STREAM, 0, 1, &[0, 0, 0, 3]));
}

#[test]
fn a_body_that_is_consumed_goes_on_and_its_window_grows() {
    let mut lab = Lab::open();
    lab.say(&post(1, ""));
    for _ in 0..1000 {
        lab.say(&frame(DATA, PADDED, 1, &[&[100][..], &[0; 16_000], &[0; 100]].concat()));
    }
    assert_eq!((lab.fatal, lab.events.len()), (None, 1001));
    let windows = lab.frames();
    assert!(windows.len() < 100, "{}", windows.len());
    assert_eq!(windows[0].2, 1);
}

#[test]
fn only_what_is_read_of_a_body_enlarges_its_window() {
    let mut lab = Lab::open();
    lab.say(&post(1, ""));
    let mut announced = |bytes: &[u8]| -> u32 {
        lab.say(bytes);
        assert_eq!(lab.fatal, None);
        let windows = lab.frames().into_iter().filter(|(kind, _, stream, _)| (*kind, *stream) == (WINDOW_UPDATE, 1));
        windows.map(|(.., payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum()
    };
    // Padding is consumed at once.
    let padding = announced(&frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat()).repeat(400));
    assert!((1..=102_400).contains(&padding), "{padding}");
    let data = announced(&frame(DATA, 0, 1, &[0; 16_000]).repeat(3));
    assert!(data > 524_288 - 65_535, "{data}");
}

#[test]
fn what_is_not_consumed_is_given_back_at_the_end() {
    let mut lab = Lab::open();
    for turn in 0..200 {
        let id = turn * 2 + 1;
        let bytes =
            [post(id, ""), frame(DATA, 0, id, &[0; 16_000]).repeat(3), frame(DATA, 0, id, &[0; 16_000])].concat();
        let mut at = 0;
        // The last byte comes after the stream is released.
        while at < bytes.len() - 1 {
            let step = lab.connection.receive(&bytes[at..bytes.len() - 1], &mut lab.out).unwrap();
            at += step.consumed;
            if let Some(Event::Head { key, .. }) = step.event {
                *lab.connection.get_mut(key).unwrap() = Some(key);
            }
        }
        lab.answer(id);
        assert_eq!(lab.connection.receive(&bytes[at..], &mut lab.out).unwrap().consumed, 1);
    }
    let announced: u32 = lab
        .frames()
        .iter()
        .filter(|(kind, _, stream, _)| (*kind, *stream) == (WINDOW_UPDATE, 0))
        .map(|(.., payload)| u32::from_be_bytes(payload[..].try_into().unwrap()))
        .sum();
    let received = 200 * 64_000;
    assert!((received - 1_100_000..=received).contains(&announced), "{announced}");
}

#[test]
fn floods_end_the_connection() {
    let calm = Some(EnhanceYourCalm);
    let most = IDLE_FRAMES_MAX as usize;
    for (name, flood) in [
        ("pings", frame(PING, 0, 0, &[0; 8])),
        ("answers to pings", frame(PING, ACK, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("data of no byte", frame(DATA, 0, 1, &[])),
        ("padding", frame(DATA, PADDED, 1, &[3, 0, 0, 0])),
        ("priorities", frame(PRIORITY, 0, 3, &[0; 5])),
        ("windows", frame(WINDOW_UPDATE, 0, 1, &ONE)),
        ("the unknown", frame(0xee, 0, 0, &[])),
    ] {
        let mut lab = Lab::open();
        lab.say(&post(1, "")).say(&flood.repeat(most));
        assert_eq!(lab.fatal, None, "{name}");
        lab.say(&flood);
        assert_eq!(lab.fatal.map(|fatal| fatal.code), calm, "{name}");
        let mut lab = Lab::open();
        lab.say(&post(1, "")).say(&flood.repeat(most)).say(&frame(DATA, 0, 1, b"x")).say(&flood);
        assert_eq!(lab.fatal, None, "{name}");
    }
}

#[test]
fn abandoned_requests_end_the_connection() {
    let turns = |answers: u32, bad: &[u8]| {
        let mut lab = Lab::open();
        for turn in 0..1000 {
            let id = turn * 4 + 1;
            lab.say(&get(id));
            let mut bad = bad.to_vec();
            bad[5..9].copy_from_slice(&id.to_be_bytes());
            lab.say(&bad);
            if let Some(fatal) = lab.fatal {
                return Some((turn, fatal.code));
            }
            let key = lab.key(id);
            lab.connection.release(key, &mut lab.out);
            if turn % 4 < answers {
                lab.say(&get(id + 2)).answer(id + 2);
            }
        }
        None
    };
    let calm = |turn| Some((turn, EnhanceYourCalm));
    let reset = frame(RST_STREAM, 0, 1, &CANCEL);
    assert_eq!([turns(0, &reset), turns(2, &reset), turns(4, &reset)], [calm(100), calm(200), None]);
    for mistake in [frame(WINDOW_UPDATE, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x"), get(1), frame(PRIORITY, 0, 1, &[1])] {
        assert_eq!(turns(0, &mistake), calm(100));
    }
    // Refused streams cost less.
    let mut lab = Lab::open();
    for turn in 0..4 + 256 {
        lab.say(&get(turn * 2 + 1));
    }
    assert_eq!(lab.fatal, None);
    lab.say(&get(2001));
    assert_eq!(lab.fatal.map(|fatal| fatal.code), Some(EnhanceYourCalm));
}

#[test]
fn priorities_in_heads_are_ignored() {
    let mut lab = Lab::open();
    let head = |dependency: u8| {
        let payload = [&[2, 0, 0, 0, dependency, 9][..], &block(GET), &[0, 0]].concat();
        frame(HEADERS, END_HEADERS | END_STREAM | PADDED | WITH_PRIORITY, 1, &payload)
    };
    lab.say(&head(3));
    assert_eq!(lab.events, ["1 GET / true "]);
    let mut lab = Lab::open();
    lab.say(&head(1));
    assert!(lab.events[0].contains("Malformed"));
}
