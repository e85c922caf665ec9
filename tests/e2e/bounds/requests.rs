//! `max_requests_per_connection`: the last answer says that it is the last.

use crate::support::{Client, NEVER, Upstream, Weir, over_h2};

const THREE: &str = "max_requests_per_connection = 3";

#[test]
fn over_http1() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, THREE, NEVER);
    let mut client = Client::connect(weir.address());
    // The fourth is not answered, wherever it stands.
    client.send("GET /a HTTP/1.1\r\nhost: h\r\n\r\n".repeat(4));
    for expected in [None, None, Some("close")] {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (200, expected));
    }
    assert_eq!(client.rest(), b"");
    assert_eq!(upstream.received_count(), 3);
    // Those that Weir answers itself count as well.
    let mut client = Client::connect(weir.address());
    client.send("GET /%00 HTTP/1.1\r\nhost: h\r\n\r\n".repeat(4));
    for expected in [None, None, Some("close")] {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (400, expected));
    }
    assert_eq!(client.rest(), b"");
}

#[test]
fn over_http2() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, THREE, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        for _ in 0..3 {
            assert_eq!(client.get("/a").await.unwrap().status, 200);
        }
        client.closed().await;
    });
    over_h2(weir.address(), async |mut client, _| assert_eq!(client.get("/b").await.unwrap().status, 200));
    assert_eq!(upstream.received_count(), 4);
}
