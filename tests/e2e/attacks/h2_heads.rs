//! HTTP/2 heads that an HTTP/1 upstream must not be told.

use super::h2_frames::{CLEAN, END_HEADERS, END_STREAM, Fate, H2, HEADERS, block, frame, opening, probe};
use super::lab::Lab;

type Field<'a> = (&'a [u8], &'a [u8]);

const PATH: Field<'static> = (b":path", b"/a");

/// What a head comes to. A refused one reaches nobody; one that passes is seen once.
fn check(lab: &Lab, fields: &[Field<'_>], expected: &[Fate]) {
    let before = lab.upstream.received_count();
    let fate = H2::connect(lab.weir.address()).get(1, fields).fate(1);
    assert!(expected.contains(&fate), "{fate:?}, not {expected:?}, for {}", show(fields));
    let seen = usize::from(fate == Fate::Status(200));
    assert_eq!(lab.upstream.received_count(), before + seen, "{}", show(fields));
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200), "after {}", show(fields));
    assert_eq!(lab.upstream.received_count(), before + seen + 1, "after {}", show(fields));
}

fn show(fields: &[Field<'_>]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| {
            let value = &value[..value.len().min(60)];
            format!("{}: {}", name.escape_ascii(), value.escape_ascii())
        })
        .collect();
    fields.join(" | ")
}

/// Refused, one way or another.
const REFUSED: [Fate; 3] = [Fate::Reset, Fate::Gone, Fate::Status(400)];

/// Fields that a clean request must not have besides its own.
const UNCLEAN: &[&[Field<'static>]] = &[
    &[(b"x", b"a\r\nb: c")],
    &[(b"x", b"a\rb")],
    &[(b"x", b"a\nb")],
    &[(b"x", b"a\0b")],
    &[(b"x\r\ny", b"a")],
    &[(b"x\n", b"a")],
    &[(b"x y", b"a")],
    &[(b"x:", b"a")],
    &[(b"", b"a")],
    &[(b"X", b"a")],
    &[(b"Content-Length", b"1")],
    &[(b"content-length", b"")],
    &[(b"content-length", b"+0")],
    &[(b"connection", b"close")],
    &[(b"connection", b"x-forwarded-for")],
    &[(b"keep-alive", b"1")],
    &[(b"proxy-connection", b"close")],
    &[(b"transfer-encoding", b"chunked")],
    &[(b"transfer-encoding", b"identity")],
    &[(b"upgrade", b"websocket")],
    &[(b"te", b"gzip")],
    &[(b"te", b"trailers, gzip")],
    &[(b":path", b"/b")],
    &[(b":method", b"POST")],
    &[(b":authority", b"b")],
    &[(b":x", b"a")],
    &[(b":status", b"200")],
    &[(b":protocol", b"websocket")],
    &[(b"x", b"y"), (b":path", b"/b")],
];

const NO_METHODS: [&[u8]; 7] = [b"", b"get", b"GET /smuggled HTTP/1.1\r\nx: ", b"G T", b"G\0T", b"GET\r\n", b"CONNECT"];
const NO_SCHEMES: [&[u8]; 3] = [b"", b"http\r\n", b"ht tp"];
const NO_AUTHORITIES: [&[u8]; 8] =
    [b"u@weir.test", b"weir.test/a", b"a b", b"a\r\nb", b"a,b", b"weir.test:65536", b"[::1", b""];
const NO_PATHS: [&[u8]; 18] = [
    b"",
    b"a",
    b"*",
    b"http://weir.test/a",
    b"/a b",
    b"/a\r\nx: y",
    b"/a HTTP/1.1\r\nhost: b",
    b"/a\0",
    b"/a\x7f",
    b"/a%00",
    b"/a\\b",
    b"/a%2fb",
    b"/%",
    b"/a?b c",
    b"/a?b\x7f",
    b"/a?b\xe9",
    b"/a#b",
    b"/a?b\r\nx: y",
];

/// The pseudo-headers of a request, the one at `at` changed.
fn with(at: usize, value: &'static [u8]) -> [Field<'static>; 4] {
    let mut fields = [(&b":method"[..], &b"GET"[..]), (b":scheme", b"http"), (b":authority", b"weir.test"), PATH];
    fields[at].1 = value;
    fields
}

/// Connections with one of these each, for whoever hopes that a server behind reads two requests.
pub fn corpus() -> Vec<Vec<u8>> {
    let unclean = UNCLEAN.iter().map(|fields| [&CLEAN[..], &[PATH], fields].concat());
    let values = [&NO_METHODS[..], &NO_SCHEMES, &NO_AUTHORITIES, &NO_PATHS].into_iter().enumerate();
    let odd = values.flat_map(|(at, values)| values.iter().map(move |value| with(at, value).to_vec()));
    let connection =
        |fields: Vec<Field<'_>>| [opening(), frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields))].concat();
    unclean.chain(odd).map(connection).collect()
}

#[test]
fn fields_are_clean() {
    let lab = Lab::start("", "");
    let clean = [&CLEAN[..], &[PATH]].concat();
    for fields in UNCLEAN {
        check(&lab, &[&clean, *fields].concat(), &REFUSED);
    }
    check(&lab, &[&clean[..], &[(b"te", b"trailers")]].concat(), &[Fate::Status(200)]);
    check(&lab, &[&clean[..], &[(b"x", b"\xff\t~")]].concat(), &[Fate::Status(200)]);
    lab.is_well();
}

/// A client may be a proxy that has requests of many on one connection.
#[test]
fn a_bad_head_spares_its_neighbours() {
    let lab = Lab::start("", "");
    let clean = [&CLEAN[..], &[PATH]].concat();
    let mut h2 = H2::connect(lab.weir.address());
    for (turn, fields) in UNCLEAN.iter().enumerate() {
        let id = 6 * turn as u32 + 1;
        h2.get(id, &clean).get(id + 2, &[&clean, *fields].concat()).get(id + 4, &clean);
        let mut fates = [None; 3];
        while fates.contains(&None) {
            let (stream, status) = h2.next_status();
            fates[(stream - id) as usize / 2] = Some(status);
        }
        assert_eq!(fates, [Some(200), Some(400), Some(200)], "{}", show(fields));
    }
    lab.is_well();
}

#[test]
fn pseudo_headers_are_all_there_and_valid() {
    let lab = Lab::start("", "");
    let full = with(3, PATH.1);
    for missing in [0, 1, 3] {
        let fields: Vec<_> =
            full.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, field)| *field).collect();
        check(&lab, &fields, &REFUSED);
    }
    for method in NO_METHODS {
        check(&lab, &with(0, method), &[&REFUSED[..], &[Fate::Status(405)]].concat());
    }
    for scheme in NO_SCHEMES {
        // Nobody behind us gets to see it.
        check(&lab, &with(1, scheme), &[&REFUSED[..], &[Fate::Status(200)]].concat());
    }
    for authority in NO_AUTHORITIES {
        check(&lab, &with(2, authority), &REFUSED);
    }
    for path in NO_PATHS {
        check(&lab, &with(3, path), &REFUSED);
    }
    for (path, forwarded) in [
        (&b"/\xc3\xa9?\xc3\xa9"[..], "/%C3%A9?%C3%A9"),
        (b"/{\"}?\\{|}", "/%7B%22%7D?%5C%7B%7C%7D"),
        (b"/<`>?\"<`>\"", "/%3C%60%3E?%22%3C%60%3E%22"),
    ] {
        check(&lab, &with(3, path), &[Fate::Status(200)]);
        assert!(lab.upstream.targets().iter().any(|target| target == forwarded), "{forwarded}");
    }
    lab.is_well();
}

#[test]
fn the_host_is_said_once() {
    let lab = Lab::start("", "");
    let no_authority = [CLEAN[0], CLEAN[1], PATH];
    let both = [&CLEAN[..], &[PATH]].concat();
    check(&lab, &no_authority, &REFUSED);
    check(&lab, &[&both[..], &[(b"host", b"other.test")]].concat(), &REFUSED);
    check(&lab, &[&both[..], &[(b"host", b"weir.test"), (b"host", b"weir.test")]].concat(), &REFUSED);
    for equal in [&b"WEIR.test"[..], b"weir.test:80", b"weir.test:"] {
        check(&lab, &[&both[..], &[(b"host", equal)]].concat(), &[Fate::Status(200)]);
    }
    for other in [&b"weir.test:443"[..], b"weir.test:8", b"other.test:80", b"a/b"] {
        check(&lab, &[&both[..], &[(b"host", other)]].concat(), &REFUSED);
    }
    check(&lab, &[&no_authority[..], &[(b"host", b"weir.test")]].concat(), &[Fate::Status(200)]);
    let hosts: Vec<_> = lab.upstream.received().iter().filter_map(|it| it.header("host")).collect();
    assert!(hosts.iter().all(|host| host.eq_ignore_ascii_case("weir.test")), "{hosts:?}");
    lab.is_well();
}

#[test]
fn heads_have_the_same_bounds() {
    let lab = Lab::start("", "");
    let long = [b"/".as_slice(), &[b'a'; 8192]].concat();
    check(&lab, &[&CLEAN[..], &[(b":path", &long)]].concat(), &[Fate::Status(414)]);
    check(&lab, &[&CLEAN[..], &[(b":path", &long[1..])]].concat(), &REFUSED);
    check(&lab, &[&CLEAN[..], &[(b":path", &long[..8192])]].concat(), &[Fate::Status(200)]);
    let many = [&CLEAN[..], &[PATH], &[(&b"x"[..], &b"y"[..]); 101]].concat();
    check(&lab, &many, &[Fate::Status(431)]);
    for (count, status) in [(256, 200), (257, 431)] {
        let list = vec!["x"; count].join(",");
        check(&lab, &[&CLEAN[..], &[PATH, (b"trailer", list.as_bytes())]].concat(), &[Fate::Status(status)]);
    }
    lab.is_well();
}

#[test]
fn a_list_beyond_the_bound_is_431_or_the_end() {
    let lab = Lab::start("", "");
    let long = vec![b'y'; 16_000];
    let fields = [&CLEAN[..], &[PATH], &[(&b"x"[..], &long[..]); 3]].concat();
    let block = block(&fields);
    let mut h2 = H2::connect(lab.weir.address());
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let kind = if at == 0 { HEADERS } else { super::h2_frames::CONTINUATION };
        let last = if at + 1 == pieces.len() { END_HEADERS } else { 0 };
        let end = if at == 0 { END_STREAM } else { 0 };
        h2.send(&frame(kind, last | end, 1, piece));
    }
    let fate = h2.fate(1);
    assert!([Fate::Status(431), Fate::Gone, Fate::Reset].contains(&fate), "{fate:?}");
    assert_eq!(lab.upstream.targets(), Vec::<String>::new());
    lab.probe(&mut lab.client()).unwrap();
    lab.is_well();
}

#[test]
fn cookies_become_one_line() {
    let lab = Lab::start("", "");
    check(&lab, &[&CLEAN[..], &[PATH, (b"cookie", b"a=1"), (b"cookie", b"b=2")]].concat(), &[Fate::Status(200)]);
    assert_eq!(lab.upstream.received()[0].header("cookie").as_deref(), Some("a=1; b=2"));
}
