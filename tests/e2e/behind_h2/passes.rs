//! What passes to a service that speaks HTTP/2, and back.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::sync::Notify;

use super::{alone, mirror};
use crate::support::{Call, Cert, Channel, Client, H2Options, H2Service, NEVER, Weir, over_h2, send_all};

#[test]
fn requests_share_few_connections_whatever_their_clients_speak() {
    let service = H2Service::start(mirror);
    let weir = Weir::with(&format!("{}{NEVER}", service.upstream("")));
    over_h2(weir.address(), async |client, _| client.check_echoes().await);
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(weir.address())).collect();
    for client in &mut clients {
        client.send("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc");
    }
    for client in &mut clients {
        assert_eq!(client.answer().text(), "abc");
        assert_eq!(client.get("/again").status, 200);
    }
    assert!(service.connections() <= 2, "one for each worker, not {}", service.connections());
}

#[test]
fn what_a_service_is_told_is_what_it_is_told_over_http_1() {
    let service = H2Service::start(mirror);
    let weir = alone(&service, "", "");
    let mut client = Client::connect(weir.address());
    client.send(
        "GET /a/./b%7e?q=1 HTTP/1.1\r\nHost: A.test:81\r\nX-Name: Value\r\nConnection: x-gone, keep-alive\r\n\
         X-Gone: 1\r\nKeep-Alive: 9\r\nTE: trailers, deflate\r\nCookie: a=1\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
    );
    assert_eq!(client.answer().status, 200);
    let called = &service.called()[0];
    assert_eq!((&*called.method, &*called.uri), ("GET", "http://A.test:81/a/b~?q=1"));
    let value = |name: &str| called.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(value("x-name"), Some("Value"));
    assert_eq!(value("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(value("x-forwarded-host"), Some("A.test:81"));
    assert_eq!((value("te"), value("cookie")), (Some("trailers"), Some("a=1")));
    for gone in ["connection", "x-gone", "keep-alive", "host", "transfer-encoding"] {
        assert_eq!(value(gone), None, "{gone}");
    }
    let own = alone(&service, "host = \"upstream\"", "");
    assert_eq!(Client::connect(own.address()).get("/").status, 200);
    assert_eq!(service.called()[1].uri, format!("http://{}/", service.address()));
}

#[test]
fn trailers_pass_in_both_directions() {
    let service = H2Service::start(mirror);
    let weir = alone(&service, "", "");
    let mut client = Client::connect(weir.address());
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nx-sum: 6\r\nhost: b\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(answer.text(), "abc");
    // This head does not announce them.
    assert_eq!(answer.trailers, "x-sum: 6\r\n");
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.text(), &*answer.trailers), ("abc".into(), ""), "a client that does not accept trailers");
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::post("http://weir.test/");
        let answer = client.ask_with_trailer(head).await;
        assert_eq!((&*answer.body, answer.trailers.unwrap()["x-check"].to_str().unwrap()), (&b"abc"[..], "3"));
    });
    let announcing = H2Service::start(|mut call: Call| async move {
        let (body, trailers) = call.read().await;
        let mut stream = call.begin(Response::builder().header("trailer", "x-sum"));
        send_all(&mut stream, body.into(), false).await;
        let _ = stream.send_trailers(trailers.unwrap_or_default());
    });
    let weir = alone(&announcing, "", "");
    let mut client = Client::connect(weir.address());
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n",
    );
    assert_eq!(client.answer().trailers, "x-sum: 6\r\n");
    assert_eq!(client.get("/").text(), "");
}

/// Answers as the path says.
async fn shapes(mut call: Call) {
    let path = call.head.uri.path().to_owned();
    let answer = |status: u16| Response::builder().status(status);
    match &*path {
        "/none" => drop(call.respond.send_response(answer(200).body(()).unwrap(), true)),
        "/204" => drop(call.respond.send_response(answer(204).body(()).unwrap(), true)),
        "/304" => {
            let response = answer(304).header("content-length", 5).body(()).unwrap();
            let _ = call.respond.send_response(response, true);
        }
        "/head" => {
            let response = answer(200).header("content-length", 5).body(()).unwrap();
            let _ = call.respond.send_response(response, true);
        }
        "/length" => {
            let mut stream = call.begin(answer(200).header("content-length", 5));
            let _ = stream.send_data("he".into(), false);
            let _ = stream.send_data("llo".into(), true);
        }
        "/hints" => {
            let hints = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
            call.respond.send_informational(hints).unwrap();
            call.say("later");
        }
        _ => call.say("hello"),
    }
}

#[test]
fn every_shape_of_answer_ends_where_it_should() {
    let service = H2Service::start(shapes);
    let weir = alone(&service, "", "");
    let mut client = Client::connect(weir.address());
    let rows: &[(&str, u16, Option<&str>, &str)] = &[
        ("/none", 200, Some("0"), ""),
        ("/204", 204, None, ""),
        ("/304", 304, Some("5"), ""),
        ("/length", 200, Some("5"), "hello"),
        ("/open", 200, None, "hello"),
    ];
    // All on one connection: an end in the wrong place would show in the next answer.
    for (path, status, length, body) in rows {
        let answer = client.get(path);
        assert_eq!(
            (answer.status, answer.header("content-length"), &*answer.text()),
            (*status, *length, *body),
            "{path}"
        );
    }
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().header("content-length"), Some("5"));
    client.send("HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    client.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = client.head().unwrap();
    assert_eq!((hints.status, hints.header("link")), (103, Some("</a>")));
    assert_eq!(client.answer().text(), "later");
    // Without chunks the end of the connection is the end of the body.
    let mut old = Client::connect(weir.address());
    old.send("GET /open HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(old.answer().text(), "hello");
    over_h2(weir.address(), async |mut client, _| {
        for (path, status, _, body) in rows {
            let answer = client.get(path).await.unwrap();
            assert_eq!((answer.status, &*answer.body), (*status, body.as_bytes()), "{path}");
        }
        // Its head ends the stream, as gRPC needs it of an error.
        let answer = client.send(Request::get("http://a/none"), http_body_util::Empty::new()).await.unwrap();
        assert!(hyper::body::Body::is_end_stream(answer.body()));
    });
}

#[test]
fn a_body_is_asked_for_as_the_service_asks() {
    let service = H2Service::start(|mut call: Call| async move {
        if call.head.uri.path() == "/asks" {
            let go_on = Response::builder().status(100).body(()).unwrap();
            call.respond.send_informational(go_on).unwrap();
        }
        mirror(call).await;
    });
    let weir = alone(&service, "", "");
    for path in ["/asks", "/waits"] {
        let mut client = Client::connect(weir.address());
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
        assert_eq!(client.head().unwrap().status, 100);
        assert_eq!(client.send("abc").answer().text(), "abc");
    }
}

const LARGE: usize = 8 * 1024 * 1024;

#[test]
fn large_bodies_pass_and_a_client_that_takes_nothing_stops_nobody_else() {
    let service = H2Service::start(|call: Call| async move {
        if call.head.method == http::Method::POST {
            return mirror(call).await;
        }
        let mut call = call;
        let mut stream = call.begin(Response::builder());
        send_all(&mut stream, vec![7; LARGE].into(), true).await;
    });
    let weir = alone(&service, "", "");
    // More than the window of one connection would be by default.
    let mut stalled: Vec<_> = (0..8).map(|_| Client::connect(weir.address())).collect();
    for client in &mut stalled {
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
    }
    let mut client = Client::connect(weir.address());
    let body = vec![b'x'; LARGE];
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"));
    let mut sending = client.stream().try_clone().unwrap();
    let sent = body.clone();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, &sent).unwrap());
    assert!(client.answer().body == body);
    sender.join().unwrap();
    assert_eq!(service.connections(), 1);
    drop(stalled);
    over_h2(weir.address(), async |mut client, _| {
        assert!(client.post("/", body.clone()).await.unwrap().body == body);
    });
    assert!(weir.resident() < 160 * 1024 * 1024, "{}", weir.resident());
}

/// Messages as short as those of gRPC fill the windows of many streams.
#[test]
fn short_frames_that_no_client_takes_end_no_connection() {
    const FRAMES: usize = 6000;
    let service = H2Service::start(|mut call: Call| async move {
        let mut stream = call.begin(Response::builder());
        for _ in 0..FRAMES {
            let _ = stream.send_data(Bytes::from_static(b"0123456789"), false);
        }
        let _ = stream.send_data(Bytes::new(), true);
    });
    let weir = alone(&service, "", "");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(weir.address()).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (mut send, connection) = builder.initial_window_size(1000).handshake::<_, Bytes>(socket).await.unwrap();
        tokio::spawn(connection);
        let mut bodies = Vec::new();
        for _ in 0..16 {
            send = send.ready().await.unwrap();
            let (answer, _) = send.send_request(Request::get("http://a/").body(()).unwrap(), true).unwrap();
            bodies.push(answer.await.unwrap().into_body());
        }
        for mut body in bodies {
            let mut len = 0;
            while let Some(data) = body.data().await {
                len += data.as_ref().expect("the connection stays").len();
                body.flow_control().release_capacity(data.unwrap().len()).unwrap();
            }
            assert_eq!(len, 10 * FRAMES);
        }
    });
    runtime.shutdown_background();
    assert_eq!(service.connections(), 1);
}

/// The client sends its whole body before it reads the answer, and the service answers meanwhile.
#[test]
fn the_body_does_not_wait_for_the_answer() {
    let all_read = Arc::new(Notify::new());
    let notify = Arc::clone(&all_read);
    let service = H2Service::start(move |mut call: Call| {
        let notify = Arc::clone(&notify);
        async move {
            let mut stream = call.begin(Response::builder());
            let sending = async { send_all(&mut stream, vec![1; LARGE / 8].into(), false).await };
            let reading = async {
                let (body, _) = call.read().await;
                notify.notify_one();
                body.len()
            };
            let (sent, len) = tokio::join!(sending, reading);
            assert!(sent);
            let _ = stream.send_data(Bytes::from(len.to_string()), true);
        }
    });
    let weir = alone(&service, "", "[timeouts]\nbody_idle = \"10s\"\n");
    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        let head = Request::post("http://weir.test/");
        let answer = client.send(head, Channel(body)).await.unwrap();
        for _ in 0..64 {
            frames.send(Frame::data(vec![2; LARGE / 64].into())).unwrap();
        }
        drop(frames);
        // The service reads the whole body while the client takes nothing of the answer.
        all_read.notified().await;
        let body = answer.collect().await.unwrap().to_bytes();
        assert_eq!(&body[LARGE / 8..], LARGE.to_string().as_bytes());
    });
}

#[test]
fn http_2_is_agreed_on_by_alpn() {
    let cert = Cert::of_hosts(&["app.test"]);
    let service = H2Service::start_with(H2Options::tls(&cert, &["h2", "http/1.1"]), mirror);
    let folder = |alpn: &H2Service| {
        let folder = tempfile::tempdir().unwrap();
        cert.write(folder.path(), "ca");
        let more = "tls = { ca = \"ca.pem\", server_name = \"app.test\" }\neject = { after = 1, for = \"1min\" }";
        let text = Weir::text(&format!("{}{NEVER}", alpn.upstream(more).replace("http:", "https:")));
        std::fs::write(folder.path().join("weir.toml"), text).unwrap();
        Weir::start_in(folder)
    };
    let weir = folder(&service);
    assert_eq!(Client::connect(weir.address()).get("/a").status, 200);
    assert_eq!(service.called()[0].uri, "https://weir.test/a");
    // One that offers something else, and one that takes no part in it.
    for alpn in [&["http/1.1"][..], &[]] {
        let other = H2Service::start_with(H2Options::tls(&cert, alpn), mirror);
        let weir = folder(&other);
        assert_eq!(Client::connect(weir.address()).get("/a").status, 502);
        let line = weir.wait_for_line("the upstream cannot be reached");
        assert!(line.contains("ALPN") || line.contains("NoApplicationProtocol"), "{line}");
        let ejected =
            format!("weir_endpoint_ejections_total{{endpoint=\"https://{}\",upstream=\"a\"}}", other.address());
        assert_eq!(weir.metric(&ejected), 1.0);
        assert!(other.called().is_empty());
    }
}

#[test]
fn it_is_spoken_over_unix_sockets_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = {
        let _in = runtime.enter();
        tokio::net::UnixListener::bind(&path).unwrap()
    };
    runtime.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let _ = stream.send_data(Bytes::from(request.uri().to_string()), true);
        }
    });
    let text = format!("[upstream]\nurl = \"unix:{}\"\nprotocol = \"h2\"\n{NEVER}", path.display());
    let weir = Weir::with(&text);
    assert_eq!(Client::connect(weir.address()).get("/a").text(), "http://weir.test/a");
    runtime.shutdown_background();
}
