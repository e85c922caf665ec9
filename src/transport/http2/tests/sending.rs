//! What is sent: frames, windows, and the end of streams and connections.

use super::*;

/// A connection whose client allows `window` bytes on each stream.
fn with_window(window: u32) -> Lab {
    let mut lab = Lab::open();
    lab.say(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    lab.say(&[get(1), get(3)].concat()).frames();
    lab
}

#[test]
fn a_connection_tells_its_bounds_first() {
    let mut out = Vec::new();
    Connection::<()>::new(Config { takes_protocol: true, ..CONFIG }, &mut out);
    let settings = [&[0, 3, 0, 0, 0, 4][..], &[0, 6, 0, 0, 0x40, 0], &[0, 8, 0, 0, 0, 1]].concat();
    let window = frame(WINDOW_UPDATE, 0, 0, &(2 * 1024 * 1024 - 65_535_u32).to_be_bytes());
    assert_eq!(out, [frame(SETTINGS, 0, 0, &settings), window].concat());
}

#[test]
fn heads_and_trailers_are_blocks() {
    let mut lab = with_window(100);
    let key = lab.key(1);
    let Lab { connection, out, .. } = &mut lab;
    connection.write_head(key, out, 103, false, |block| block.field(b"Link", b"a"));
    connection.write_head(key, out, 200, false, |block| block.field(b"X", b"1"));
    connection.write_head(key, out, 404, true, |_| {}); // too late
    assert_eq!(connection.write_data(key, out, b"abc", 10, false), 3);
    connection.write_trailers(key, out, |block| block.field(b"X-Sum", b"2"));
    assert_eq!((connection.write_data(key, out, b"abc", 10, true), connection.window(key)), (0, 0));
    connection.release(key, out);
    assert_eq!(
        lab.frames(),
        [
            (HEADERS, END_HEADERS, 1, b"\x20\x08\x03103\x0f\x1e\x01a".to_vec()),
            (HEADERS, END_HEADERS, 1, b"\x88\x00\x01x\x011".to_vec()),
            (DATA, 0, 1, b"abc".to_vec()),
            (HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x05x-sum\x012".to_vec()),
        ]
    );
}

#[test]
fn a_head_longer_than_a_frame_is_continued() {
    let mut lab = with_window(100);
    let (key, long) = (lab.key(1), vec![b'v'; 40_000]);
    lab.connection.write_head(key, &mut lab.out, 200, true, |block| block.field(b"x", &long));
    let frames = lab.frames();
    let shape: Vec<_> = frames.iter().map(|(kind, flags, _, payload)| (*kind, *flags, payload.len())).collect();
    assert_eq!(shape, [(HEADERS, END_STREAM, 16_384), (CONTINUATION, 0, 16_384), (CONTINUATION, END_HEADERS, 7241)]);
    let block: Vec<u8> = frames.into_iter().flat_map(|(.., payload)| payload).collect();
    assert!(block.ends_with(&long) && block.len() == 40_009);
}

#[test]
fn data_goes_as_far_as_the_windows_allow() {
    let mut lab = with_window(40_000);
    let (key, body) = (lab.key(1), (0..50_000_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let Lab { connection, out, .. } = &mut lab;
    let (start, mut rest) = (Connection::<Option<Key>>::begin_data(out), Vec::new());
    out.extend_from_slice(&body);
    assert_eq!(connection.end_data(key, out, start, true, &mut rest), 40_000);
    assert_eq!((&rest[..], connection.window(key), connection.is_exhausted(key)), (&body[40_000..], 0, true));
    assert_eq!(connection.write_data(key, out, &rest, 100, true), 0);
    lab.say(&frame(WINDOW_UPDATE, 0, 1, &20_000_u32.to_be_bytes()));
    let Lab { connection, out, .. } = &mut lab;
    assert_eq!(
        [
            connection.write_data(key, out, &rest, 100, true),
            connection.write_data(key, out, &rest[100..], 16_384, true)
        ],
        [100, 9900]
    );
    let frames = lab.frames();
    let shape: Vec<_> = frames.iter().map(|(kind, flags, _, payload)| (*kind, *flags, payload.len())).collect();
    assert_eq!(
        shape,
        [(DATA, 0, 16_384), (DATA, 0, 16_384), (DATA, 0, 7232), (DATA, 0, 100), (DATA, END_STREAM, 9900)]
    );
    assert!(frames.into_iter().flat_map(|(.., payload)| payload).eq(body));
}

#[test]
fn the_window_of_the_connection_is_for_all_streams() {
    let mut lab = with_window(60_000);
    let (one, other) = (lab.key(1), lab.key(3));
    let Lab { connection, out, .. } = &mut lab;
    assert_eq!(connection.write_data(one, out, &vec![0; 99_999], 99_999, true), 60_000);
    assert_eq!(
        (connection.window(other), connection.is_exhausted(other), connection.is_exhausted(one)),
        (5535, false, true)
    );
    lab.say(&frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]));
    assert_eq!((lab.connection.window(other), lab.events.pop().unwrap()), (60_000, "0 window".to_owned()));
    // The setting changes windows of open streams, also to less than nothing.
    lab.say(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]));
    assert_eq!((lab.connection.window(other), lab.connection.window(one)), (10, 0));
    lab.say(&frame(WINDOW_UPDATE, 0, 1, &59_990_u32.to_be_bytes()));
    assert_eq!(lab.connection.window(one), 0);
    lab.say(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
    assert_eq!(lab.connection.window(one), 1);
}

#[test]
fn an_empty_end_needs_no_window() {
    let mut lab = with_window(0);
    let key = lab.key(1);
    let Lab { connection, out, .. } = &mut lab;
    assert_eq!(connection.write_data(key, out, b"", 10, false), 0);
    assert!(out.is_empty());
    connection.write_data(key, out, b"", 10, true);
    connection.release(key, out);
    assert_eq!(lab.frames(), [(DATA, END_STREAM, 1, Vec::new())]);
}

#[test]
fn a_stream_that_is_released_is_reset_unless_it_has_ended() {
    let mut lab = with_window(10);
    let key = lab.key(1);
    lab.connection.release(key, &mut lab.out);
    assert_eq!(lab.frames(), [(RST_STREAM, 0, 1, vec![0, 0, 0, 2])]);
    let key = lab.key(3);
    lab.connection.reset(key, ErrorCode::Cancel, &mut lab.out);
    lab.connection.reset(key, ErrorCode::Internal, &mut lab.out);
    assert!(lab.connection.is_reset(key) && lab.connection.get_mut(key).is_some());
    lab.connection.write_head(key, &mut lab.out, 200, true, |_| {});
    lab.connection.release(key, &mut lab.out);
    assert_eq!(lab.frames(), [(RST_STREAM, 0, 3, vec![0, 0, 0, 8])]);
    lab.say(&post(5, "")).answer(5);
    assert_eq!(lab.frames().last(), Some(&(RST_STREAM, 0, 5, vec![0; 4])));
    assert!(lab.connection.is_empty());
}

#[test]
fn a_connection_ends_in_two_steps() {
    let mut lab = with_window(10);
    lab.connection.announce_end(&mut lab.out);
    lab.connection.ping(&mut lab.out);
    lab.say(&get(5)).say(&frame(PING, ACK, 0, &[0; 8]));
    lab.connection.end(&mut lab.out);
    // A later request is not served; what it says is decoded.
    lab.say(&get(7)).answer(1).answer(3).answer(5);
    assert_eq!(&lab.events[3..], ["5 GET / true ", "pong"]);
    let goaway = |last: u32| (GOAWAY, 0, 0, [last.to_be_bytes(), [0; 4]].concat());
    assert_eq!(&lab.frames()[..3], [goaway(0x7fff_ffff), (PING, 0, 0, vec![0; 8]), goaway(5)]);
    assert!(lab.connection.is_empty());
    lab.connection.fail(Fatal::ABANDONED, &mut lab.out);
    assert_eq!(lab.frames(), [(GOAWAY, 0, 0, vec![0, 0, 0, 7, 0, 0, 0, 11])]);
}

#[test]
fn pings_are_answered() {
    let mut lab = Lab::open();
    lab.say(&frame(PING, 0, 0, b"12345678"));
    assert_eq!(lab.frames(), [(PING, ACK, 0, b"12345678".to_vec())]);
}
