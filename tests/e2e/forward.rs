//! Forwarded requests and responses: framing, fields, connections, timeouts.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use crate::support::{Client, NEVER, Received, Upstream, Weir, echo};

#[test]
fn pipelined_requests_are_answered_in_order_over_one_connection() {
    let upstream = Upstream::answering(echo);
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    client.send(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let bodies: Vec<_> = (0..4).map(|_| client.answer().text()).collect();
    assert_eq!(bodies, ["/1", "/2", "/3", "/4"]);
    assert_eq!(client.get("/5").text(), "/5");
    assert_eq!(upstream.targets(), ["/1", "/2", "/3", "/4", "/5"]);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn http_10_closes_without_keep_alive_and_gets_no_chunks() {
    let (upstream, weir) =
        Weir::in_front_of("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let mut client = Client::connect(weir.address());
    let answer = client.send("GET / HTTP/1.0\r\n\r\n").answer();
    assert_eq!((answer.status, answer.header("transfer-encoding"), &*answer.text()), (200, None, "hello"));
    assert_eq!(upstream.received()[0].header("host"), Some(upstream.address().to_string()));

    let (_upstream, weir) = Weir::in_front_of("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    let mut client = Client::connect(weir.address());
    for _ in 0..2 {
        let answer = client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer();
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
    assert_eq!(client.send("GET / HTTP/1.0\r\n\r\n").answer().text(), "hello");
    assert_eq!(client.rest(), b"");
}

#[test]
fn head_keeps_its_length_and_has_no_body() {
    let (_upstream, weir) = Weir::in_front_of("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
    let mut client = Client::connect(weir.address());
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.head().unwrap();
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("5")));
    }
}

#[test]
fn statuses_without_a_body_keep_the_connection() {
    let upstream = Upstream::answering(|request, stream| {
        let answer = match request.target() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n",
            _ => "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\netag: \"x\"\r\n\r\n",
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    for _ in 0..2 {
        let answer = client.get("/204");
        assert_eq!((answer.status, answer.header("content-length")), (204, None), "{}", answer.head);
        assert_eq!(answer.header("transfer-encoding"), None);
        let answer = client.get("/304");
        assert_eq!((answer.status, answer.header("etag")), (304, Some("\"x\"")), "{}", answer.head);
    }
    assert_eq!(upstream.connections(), 1);
    // A late body may follow a length. The client keeps its connection, and the upstream connection is closed.
    for _ in 0..2 {
        let answer = client.get("/304-with-length");
        assert_eq!((answer.status, answer.header("etag")), (304, Some("\"x\"")), "{}", answer.head);
        upstream.wait_until(|upstream| upstream.connections() == 0);
    }
}

#[test]
fn request_bodies_keep_their_framing() {
    let (upstream, weir) = Weir::in_front_of("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").answer();
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .send("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    client.answer();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").answer();
    client.send("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n").answer();

    let framing = |one: &Received| (one.header("content-length"), one.header("transfer-encoding"));
    let received = upstream.received();
    assert!(received[..2].iter().all(|one| one.body == b"hello"));
    assert_eq!(framing(&received[0]), (Some("5".into()), None));
    assert_eq!(framing(&received[1]), (None, Some("chunked".into())));
    assert_eq!(framing(&received[2]), (Some("0".into()), None));
    assert_eq!(framing(&received[3]), (None, None));
}

#[test]
fn trailers_are_forwarded_in_both_directions() {
    let (upstream, weir) = Weir::in_front_of(
        "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 2\r\n\r\n",
    );
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\nTrailer: x-check\r\n");
    client.send("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-check: 3\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), &*answer.trailers), ("ok".into(), "x-sum: 2\r\n"));
    let received = &upstream.received()[0];
    assert_eq!((&*received.body, &*received.trailers), (&b"abc"[..], "x-check: 3\r\n"));
    assert_eq!(received.header("te"), Some("trailers".into()));
    assert_eq!(received.header("connection"), Some("te".into()));
    // Without TE the client does not accept trailers.
    assert_eq!(client.get("/").trailers, "");
    // The head need not announce them. A client must not take one for a field of the head.
    let (_upstream, weir) = Weir::in_front_of(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 2\r\nset-cookie: a=1\r\n\r\n",
    );
    let mut client = Client::connect(weir.address());
    let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n").answer();
    assert_eq!((answer.text(), &*answer.trailers), ("ok".into(), "x-sum: 2\r\n"));
    assert_eq!(client.get("/").trailers, "");
}

#[test]
fn a_response_until_the_end_of_the_connection_gets_chunks() {
    let (_upstream, weir) = Weir::in_front_of("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello");
    let mut client = Client::connect(weir.address());
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.header("transfer-encoding"), &*answer.text()), (Some("chunked"), "hello"));
        assert_eq!(answer.header("connection"), None);
    }
}

#[test]
fn interim_responses_are_forwarded_to_http_11() {
    let (_upstream, weir) = Weir::in_front_of(
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\nconnection: x-mine\r\nx-mine: 1\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let mut client = Client::connect(weir.address());
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let heads = [client.head().unwrap().head, client.head().unwrap().head];
        assert_eq!(heads, ["HTTP/1.1 102 Processing\r\n", "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n"]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("link"), &*answer.text()), (200, None, "ok"));
    }
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200, "HTTP/1.0 knows no interim answers");
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let (upstream, weir) = Weir::in_front_of(
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x-secret\r\nx-secret: 1\r\nkeep-alive: timeout=9\r\n\
         proxy-authenticate: Basic\r\nproxy-connection: close\r\nupgrade: h2c\r\nx-kept: 1\r\n\r\n",
    );
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nX-Mine: 1\r\nX-Other: 1\r\nX-Kept: 1\r\n");
    client.send("Connection: x-mine, x-other, host, content-length, x-forwarded-for, x-forwarded-proto\r\n");
    client.send("Connection: x-forwarded-host, keep-alive\r\nKeep-Alive: 1\r\nProxy-Connection: keep-alive\r\n");
    client.send("Proxy-Authorization: Basic eA==\r\nUpgrade: websocket\r\nTE: gzip\r\n\r\nx");
    let answer = client.answer();
    for name in ["connection", "x-secret", "keep-alive", "proxy-authenticate", "proxy-connection", "upgrade"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(answer.header("x-kept"), Some("1"));
    let received = &upstream.received()[0];
    for name in
        ["connection", "x-mine", "x-other", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "te"]
    {
        assert_eq!(received.header(name), None, "{name}");
    }
    let kept = ["x-kept", "host", "content-length", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    let values = kept.map(|name| received.header(name).unwrap());
    assert_eq!(values, ["1", "a", "1", "127.0.0.1", "http", "a"]);
    assert_eq!(received.body, b"x");
}

#[test]
fn an_untrusted_client_cannot_forge_its_address() {
    let upstream = Upstream::start();
    let weir = Weir::start_with(&upstream, "forwarded = true", NEVER);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a.test:81\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n");
    client.send("X-Forwarded-Host: evil\r\nForwarded: for=1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\n\r\n").answer();
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
    let values = names.map(|name| upstream.received()[0].header(name).unwrap());
    assert_eq!(values, ["127.0.0.1", "http", "a.test:81", "for=127.0.0.1;host=\"a.test:81\";proto=http"]);
}

#[test]
fn the_list_of_a_trusted_proxy_is_continued() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nrate = \"1/h\"";
    let weir = Weir::start_with(&upstream, "forwarded = true\ntrusted_proxies = [\"127.0.0.1\"]", limit);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n");
    client.send("X-Forwarded-Host: b\r\nForwarded: for=192.0.2.1\r\n");
    client.send("Connection: x-forwarded-for, x-forwarded-proto, x-forwarded-host, forwarded\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
    let values = names.map(|name| upstream.received()[0].header(name).unwrap());
    let forwarded = "for=192.0.2.1, for=127.0.0.1;host=\"a\";proto=http";
    assert_eq!(values, ["6.6.6.6, 192.0.2.1, 127.0.0.1", "https", "b", forwarded]);
    // The bucket is that of the first untrusted address from the right.
    let mut from = |list: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {list}\r\n\r\n")).answer().status
    };
    assert_eq!([from("7.7.7.7, 192.0.2.1"), from("192.0.2.1, 192.0.2.2")], [429, 200]);
}

#[test]
fn host_is_preserved_or_rewritten() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    Client::connect(weir.address()).get("/");
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(&upstream, "", NEVER).replace("[admin]", "host = \"upstream\"\n[admin]");
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Client::connect(Weir::start_in(folder).address()).get("/");
    let hosts = upstream.received().iter().map(|one| one.header("host").unwrap()).collect::<Vec<_>>();
    assert_eq!(hosts, ["weir.test".to_owned(), upstream.address().to_string()]);
}

#[test]
fn slashes_are_merged_unless_configured() {
    for (server, statuses, targets) in
        [("", [200, 429, 429], &["/a/b"][..]), ("merge_slashes = false", [200, 200, 429], &["/a/b", "/a//b"])]
    {
        let upstream = Upstream::start();
        let limit = "[[limit]]\nname = \"l\"\nkey = [\"path\"]\nrate = \"1/h\"";
        let weir = Weir::start_with(&upstream, server, limit);
        let mut client = Client::connect(weir.address());
        assert_eq!(["/a/b", "/a//b", "/a//./%62"].map(|target| client.get(target).status), statuses, "{server}");
        assert_eq!(upstream.targets(), targets, "{server}");
    }
}

#[test]
fn targets_are_normalised_and_queries_are_not() {
    let upstream = Upstream::answering(echo);
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    for (sent, seen) in [
        ("/", "/"),
        ("/a?x=%2e%2E//&y=a+b&&z", "/a?x=%2e%2E//&y=a+b&&z"),
        ("/a//b/./c/../d", "/a/b/d"),
        ("/%61/%7E", "/a/~"),
        ("/a/?", "/a/?"),
        ("http://weir.test", "/"),
        ("http://weir.test?q", "/?q"),
        ("http://weir.test/a/../b?q=1", "/b?q=1"),
        ("HTTP://WEIR.TEST/c", "/c"),
    ] {
        assert_eq!(client.get(sent).text(), seen, "{sent}");
    }
    assert_eq!(client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").answer().text(), "*");
}

#[test]
fn the_client_gets_100_when_the_upstream_needs_the_body() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::serving(move |mut peer| {
        peer.head();
        let _ = wait.lock().unwrap().recv();
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        let body = String::from_utf8(peer.read(5).unwrap()).unwrap();
        peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{body}"));
        peer.rest();
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    upstream.wait_until(|upstream| upstream.received_count() == 1);
    assert!(!client.has_more(), "told to go on before the upstream was asked");
    assert_eq!(upstream.received()[0].header("expect"), Some("100-continue".into()));
    go.send(()).unwrap();
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(client.send("hello").answer().text(), "hello");
}

#[test]
fn an_expectation_ends_with_its_request() {
    let upstream = Upstream::serving(|mut peer| {
        // Answers the first request without its body, and reads that of the second one.
        let Some(request) = peer.head() else { return };
        if request.header("expect").is_none() {
            peer.read(5);
        }
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        peer.rest();
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    client.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    assert_eq!(client.answer().status, 200);
    client.send("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    upstream.wait_until(|upstream| upstream.received_count() == 2);
    assert_eq!(client.send("hello").answer().status, 200);
}

#[test]
fn an_http_10_client_gets_no_100() {
    let upstream = Upstream::answering(echo);
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    client.send("POST /a HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    upstream.wait_until(|upstream| upstream.connections() == 1);
    assert_eq!(client.send("hello").answer().text(), "/a");
    let received = upstream.received();
    assert_eq!((received[0].header("expect"), &received[0].body[..]), (None, &b"hello"[..]));
}

#[test]
fn a_refusal_arrives_instead_of_100() {
    for expect in ["", "Expect: 100-continue\r\n"] {
        let upstream = Upstream::serving(|mut peer| {
            peer.head();
            peer.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig");
            peer.rest();
        });
        let weir = Weir::start_with(&upstream, "max_body_bytes = \"off\"", NEVER);
        let mut client = Client::connect(weir.address());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n{expect}\r\n"));
        let mut writer = client.stream().try_clone().unwrap();
        let writing = expect.is_empty().then(|| thread::spawn(move || while writer.write_all(&[0; 8192]).is_ok() {}));
        let answer = client.answer();
        assert_eq!((answer.status, &*answer.text()), (413, "big"));
        assert_eq!(answer.header("connection"), (!expect.is_empty()).then_some("close"));
        assert_eq!(client.rest(), b"");
        let _ = client.stream().shutdown(Shutdown::Both);
        writing.map(thread::JoinHandle::join);
        upstream.wait_until(|upstream| upstream.connections() == 0);
    }
}

#[test]
fn a_refused_body_loses_neither_response_nor_next_request() {
    let upstream = Upstream::answering(echo);
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"l\"\nkey = [\"path\"]\nrate = \"1/h\"");
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/a").status, 200);
    // Small: the connection continues.
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.answer().status, client.answer().text()), (429, "/b".into()));
    // Large: it ends, after the response was read.
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
    let mut writer = client.stream().try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&vec![0; 8_000_000]).is_ok());
    assert_eq!(client.answer().status, 429);
    let _ = client.stream().shutdown(Shutdown::Both);
    let _ = writing.join();
}

#[test]
fn the_host_of_an_absolute_target_replaces_host() {
    let upstream = Upstream::start();
    let rest = "[[limit]]\nname = \"l\"\nkey = [\"host\"]\nrate = \"1/h\"";
    let weir = Weir::start_with(&upstream, "", rest);
    for (target, status) in [
        ("http://other.test/", 200),
        ("http://other.test:80/", 429),
        ("http://weir.test:81/", 200),
        ("http://WEIR.test:80/", 429),
        ("/", 429),
    ] {
        assert_eq!(Client::connect(weir.address()).get(target).status, status, "{target}");
    }
    let hosts = upstream.received().into_iter().map(|it| [it.header("host"), it.header("x-forwarded-host")]);
    let expected = ["other.test", "weir.test:81"].map(|host| [Some(host.to_owned()), Some(host.to_owned())]);
    assert_eq!(hosts.collect::<Vec<_>>(), expected);
}

/// NTLM and Negotiate authenticate a connection, so a second client must not get it. A challenge alone closes it, a
/// request with credentials pins it to the connection of its client.
#[test]
fn an_authenticated_connection_is_not_shared() {
    let upstream = Upstream::answering(|request, stream| {
        let challenge = match request.target() {
            "/ntlm" => "www-authenticate: Basic realm=\"a, b\", NTLM\r\n",
            "/negotiate" => "WWW-Authenticate: negotiate YII=\r\n",
            "/proxy" => "proxy-authenticate: NTLM\r\n",
            "/basic" => "www-authenticate: Basic realm=\"ntlm\"\r\n",
            _ => "",
        };
        write!(stream, "HTTP/1.1 401 Unauthorized\r\n{challenge}content-length: 0\r\n\r\n").is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    for (target, line, stays, is_pooled) in [
        ("/ntlm", "", false, false),
        ("/negotiate", "", false, false),
        ("/proxy", "", false, false),
        ("/", "authorization: NTLM TlRM\r\n", true, false),
        ("/", "Authorization: negotiate YII=\r\n", true, false),
        ("/ntlm", "authorization: NTLM TlRM\r\n", true, false),
        ("/basic", "authorization: Basic bnRsbQ==\r\n", true, true),
    ] {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{line}\r\n"));
        assert_eq!(client.answer().status, 401);
        upstream.wait_until(|upstream| upstream.connections() == usize::from(stays));
        drop(client);
        upstream.wait_until(|upstream| upstream.connections() == usize::from(is_pooled));
    }
}

#[test]
fn a_connection_with_close_gets_one_response() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().header("connection"), Some("close"));
    assert_eq!(client.rest(), b"");
    assert_eq!(upstream.targets(), ["/1"]);
}
