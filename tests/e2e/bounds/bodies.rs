//! `max_body_bytes`: whatever is longer is 413, and the service never sees a whole request.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use bytes::Bytes;
use http::Request;
use hyper::body::Frame;

use crate::attacks::h2_frames::{END_STREAM, Fate, H2, probe};
use crate::attacks::lab::{Expect, Lab, Row};
use crate::support::{Channel, Client, H2Answer, NEVER, PATIENCE, Upstream, Weir, over_h2};

const TEN: &str = "max_body_bytes = \"10B\"";

type Field<'a> = (&'a [u8], &'a [u8]);
const POST: [Field<'static>; 4] =
    [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"weir.test"), (b":path", b"/a")];

#[test]
fn over_http1() {
    let lab = Lab::start(TEN, "");
    let rows: [Row<'_>; 8] = [
        (
            "as long as it may",
            b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n0123456789",
            Expect::Passes("/a"),
        ),
        (
            "too long, and all there",
            b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 11\r\n\r\n0123456789a",
            Expect::Closed(413),
        ),
        ("too long, and not there", b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 11\r\n\r\n", Expect::Closed(413)),
        (
            "too long, and to be asked for",
            b"POST /a HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n",
            Expect::Closed(413),
        ),
        (
            "very long",
            b"PUT /a HTTP/1.1\r\nhost: h\r\ncontent-length: 9000000000000000000\r\n\r\n",
            Expect::Closed(413),
        ),
        (
            "chunks as long as they may be",
            b"POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n",
            Expect::Passes("/a"),
        ),
        (
            "a chunk too long",
            b"POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n",
            Expect::Closed(413),
        ),
        (
            "chunks too long together",
            b"POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n1\r\na\r\n",
            Expect::Closed(413),
        ),
    ];
    lab.check(&rows);
    assert_eq!(lab.weir.metric("weir_problems_total{kind=\"body_too_large\"}"), 6.0);
}

#[test]
fn over_http2() {
    let lab = Lab::start(TEN, "");
    let length: [Field<'_>; 1] = [(b"content-length", b"11")];
    let mut h2 = H2::connect(lab.weir.address());
    assert_eq!(h2.head(1, &[&POST[..], &length].concat()).fate(1), Fate::Status(413));
    assert_eq!(h2.head(3, &POST).data(3, b"0123456789a", END_STREAM).fate(3), Fate::Status(413));
    assert_eq!(h2.head(5, &POST).data(5, b"01234", 0).data(5, b"567", 0).data(5, b"89a", 0).fate(5), Fate::Status(413));
    // The connection is as good as before.
    assert_eq!(h2.head(7, &POST).data(7, b"0123456789", END_STREAM).fate(7), Fate::Status(200));
    assert_eq!(probe(lab.weir.address(), "/clean"), Fate::Status(200));
    assert_eq!(lab.upstream.targets(), ["/a", "/clean"]);
    lab.is_well();
}

#[test]
fn a_grpc_client_is_told_in_its_own_way() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, TEN, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        frames.send(Frame::data(Bytes::from_static(b"0123456789a"))).unwrap();
        let head = Request::post("http://weir.test/pkg.Service/Method").header("content-type", "application/grpc");
        let answer = H2Answer::read(client.send(head, Channel(body)).await.unwrap()).await.unwrap();
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("8")));
    });
    assert_eq!(upstream.received_count(), 0);
}

#[test]
fn a_route_may_say_otherwise_and_nobody_is_charged() {
    let upstream = Upstream::start();
    let config = format!(
        "[upstreams.a]\nendpoints = [\"http://{}\"]\n\
         [[route]]\nmatch = {{ path = \"/files/{{*rest}}\" }}\nupstream = \"a\"\nmax_body_bytes = \"off\"\n\
         [[route]]\nmatch = {{ path = \"/login\" }}\nupstream = \"a\"\nmax_body_bytes = \"2B\"\n\
         [[route]]\nupstream = \"a\"\n\
         [[limit]]\nname = \"few\"\nkey = [\"path\"]\nrate = \"1/h\"\n",
        upstream.address()
    );
    let weir = Weir::start_as(&Weir::text(&config).replace("workers = 2", &format!("workers = 2\n{TEN}")));
    let ask = |path: &str, len: usize| {
        let mut client = Client::connect(weir.address());
        let body = "x".repeat(len);
        client.send(format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len}\r\n\r\n{body}"));
        client.answer().status
    };
    for (path, len, status) in [
        ("/files/a", 100, 200),
        ("/login", 3, 413),
        ("/login", 3, 413),
        ("/login", 2, 200),
        ("/login", 2, 429),
        ("/else", 11, 413),
        ("/else", 10, 200),
    ] {
        assert_eq!(ask(path, len), status, "{path} {len}");
    }
    assert_eq!(upstream.targets(), ["/files/a", "/login", "/else"]);
}

/// The answer has begun, so that it cannot be 413; it does not end as if all were well either.
#[test]
fn an_answer_that_waits_for_the_rest_is_cut_off() {
    let (tell, ended) = channel();
    let tell = Mutex::new(tell);
    let upstream = Upstream::serving(move |mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n");
        tell.lock().unwrap().send(peer.rest()).unwrap();
    });
    let weir = Weir::start_with(&upstream, TEN, NEVER);
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.read(7), b"2\r\nok\r\n");
    client.send("6\r\n56789a\r\n0\r\n\r\n");
    assert_eq!(client.rest(), b"");
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), b"5\r\n01234\r\n");

    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        frames.send(Frame::data(Bytes::from_static(b"01234"))).unwrap();
        let answer = client.send(Request::post("http://weir.test/"), Channel(body)).await.unwrap();
        frames.send(Frame::data(Bytes::from_static(b"56789a"))).unwrap();
        assert!(H2Answer::read(answer).await.is_err());
    });
    assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), b"5\r\n01234\r\n");
    assert_eq!(weir.metric("weir_problems_total{kind=\"broken_answer\"}"), 2.0);
}
