//! The bounds on streams and connections, and requests whose connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use h2::Reason;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Frame;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;

use super::{alone, mirror};
use crate::support::{Call, Channel, Client, H2Options, H2Service, NEVER, Upstream, Weir, over_h2};

/// A service whose calls end once `true` is sent.
fn slow(taking: H2Options) -> (H2Service, watch::Sender<bool>) {
    let (may_end, ends) = watch::channel(false);
    let service = H2Service::start_with(taking, move |call: Call| {
        let mut ends = ends.clone();
        async move {
            if ends.wait_for(|may_end| *may_end).await.is_ok() {
                mirror(call).await;
            }
        }
    });
    (service, may_end)
}

fn ask(weir: &Weir, path: &str) -> Client {
    let mut client = Client::connect(weir.address());
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

#[test]
fn no_connection_has_more_streams_than_its_service_allows() {
    let (service, may_end) = slow(H2Options { streams: Some(2), ..H2Options::default() });
    let weir = alone(&service, "", "");
    // The settings of the first connection tell how many streams the service allows.
    let mut clients = vec![ask(&weir, "/first")];
    service.wait_until(|service| service.called().len() == 1);
    clients.extend((1..6).map(|turn| ask(&weir, &format!("/{turn}"))));
    service.wait_until(|service| service.called().len() == 6);
    assert_eq!(service.connections(), 3);
    for connection in 1..=3 {
        assert_eq!(service.called().iter().filter(|called| called.connection == connection).count(), 2);
    }
    may_end.send_replace(true);
    assert!(clients.iter_mut().all(|client| client.answer().status == 200));
    // Free streams are used before another connection is opened.
    for client in &mut clients {
        assert_eq!(client.get("/again").status, 200);
    }
    assert_eq!(service.connections(), 3);
}

#[test]
fn idle_connections_are_closed() {
    let service = H2Service::start(mirror);
    let weir = alone(&service, "idle_timeout = \"1s\"", "");
    assert_eq!(ask(&weir, "/").answer().status, 200);
    service.wait_until(|service| service.open() == 0);
    let none = alone(&service, "max_idle = 0", "");
    for turn in 1..4 {
        assert_eq!(ask(&none, "/").answer().status, 200);
        service.wait_until(|service| service.open() == 0);
        assert_eq!(service.connections(), 1 + turn);
    }
}

#[test]
fn the_bound_on_connections_holds_and_requests_wait() {
    let (service, may_end) = slow(H2Options { streams: Some(1), ..H2Options::default() });
    // A trusted proxy, so that the requests are not those of one client, which may use a part of the queue.
    let text = Weir::text(&format!("{}{NEVER}", service.upstream("max_connections = 1\nmax_queued = 2")));
    let text = text.replace("workers = 2", "workers = 1\ntrusted_proxies = [\"127.0.0.1\"]");
    let weir = Weir::start_as(&text);
    let mut clients = vec![ask(&weir, "/0")];
    service.wait_until(|service| service.called().len() == 1);
    for turn in 1..3 {
        clients.push(ask(&weir, &format!("/{turn}")));
        weir.wait_for_metric("weir_upstream_queued{upstream=\"a\"}", |queued| queued == f64::from(turn));
    }
    assert_eq!(ask(&weir, "/beyond").answer().status, 503);
    may_end.send_replace(true);
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    let uris: Vec<_> = service.called().iter().map(|called| called.uri.clone()).collect();
    assert_eq!(uris, ["http://a/0", "http://a/1", "http://a/2"]);
    assert_eq!(service.connections(), 1);
}

/// Requests of several clients share a connection anyway, so credentials for a connection need no connection of their own.
#[test]
fn a_request_that_authenticates_its_connection_takes_a_stream() {
    let (may_end, ends) = watch::channel(false);
    let service = H2Service::start(move |call: Call| {
        let mut ends = ends.clone();
        async move {
            if call.head.uri.path() != "/long" || ends.wait_for(|may_end| *may_end).await.is_ok() {
                mirror(call).await;
            }
        }
    });
    let weir = alone(&service, "max_connections = 1", "");
    let mut long = ask(&weir, "/long");
    service.wait_until(|service| service.called().len() == 1);
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::get("http://a/login").header("authorization", "Negotiate abc");
        assert_eq!(client.ask(head).await.unwrap().status, 200);
    });
    assert_eq!(ask(&weir, "/").answer().status, 200);
    may_end.send_replace(true);
    assert_eq!((long.answer().status, service.connections()), (200, 1));
}

/// A connection that another worker needs is retired, even if it is busy.
#[test]
fn workers_take_turns_at_the_only_connection() {
    let service = H2Service::start(mirror);
    let weir = Weir::with(&format!("{}{NEVER}", service.upstream("max_connections = 1\nqueue_timeout = \"15s\"")));
    // The kernel distributes connections over workers at random; with this many both workers have some.
    let mut clients: Vec<_> = (0..24).map(|_| Client::connect(weir.address())).collect();
    for _ in 0..4 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.answer().status, 200);
        }
    }
    assert!(service.connections() > 1, "both workers had one");
    let connections = format!("weir_endpoint_connections{{endpoint=\"http://{}\",upstream=\"a\"}}", service.address());
    assert_eq!(weir.metric(&connections), 1.0);
}

#[test]
fn the_least_loaded_endpoint_gets_the_next_request() {
    let (slow, may_end) = slow(H2Options::default());
    let fast = H2Service::start(mirror);
    let endpoints = format!("endpoints = [\"http://{}\", \"http://{}\"]", slow.address(), fast.address());
    let more = "balance = \"least_connections\"";
    let weir = Weir::with(&format!("[upstreams.a]\n{endpoints}\nprotocol = \"h2\"\n{more}\n{NEVER}"));
    let mut held = ask(&weir, "/held");
    slow.wait_until(|slow| slow.called().len() == 1);
    for _ in 0..5 {
        assert_eq!(ask(&weir, "/").answer().status, 200);
    }
    assert_eq!((slow.called().len(), fast.called().len()), (1, 5));
    may_end.send_replace(true);
    assert_eq!(held.answer().status, 200);
}

/// A service that sends GOAWAY repeatedly loses no request, with or without a body.
#[test]
fn goaway_loses_no_request() {
    let service = H2Service::start_with(H2Options { calls: Some(3), ..H2Options::default() }, mirror);
    let weir = alone(&service, "", "");
    over_h2(weir.address(), async |client, _| {
        for _ in 0..10 {
            let mut asking = Vec::new();
            for _ in 0..8 {
                let mut client = client.clone();
                asking.push(tokio::spawn(async move { client.post("/", "abc").await }));
            }
            for asked in asking {
                let answer = asked.await.unwrap().unwrap();
                assert_eq!((answer.status, &*answer.body), (200, &b"abc"[..]), "{answer:?}");
            }
        }
    });
    assert!(service.connections() >= 8, "{}", service.connections());
}

/// A service that resets the first call with this reason.
fn refusing(reason: Reason) -> (H2Service, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&calls);
    let service = H2Service::start(move |mut call: Call| {
        let turn = count.fetch_add(1, Ordering::SeqCst);
        async move {
            if turn == 0 {
                // As late as possible: after all of the body that the windows allow.
                while let Some(Ok(_)) = call.body.data().await {}
                call.respond.send_reset(reason);
                return;
            }
            mirror(call).await;
        }
    });
    (service, calls)
}

#[test]
fn a_refused_stream_is_sent_again() {
    let (service, calls) = refusing(Reason::REFUSED_STREAM);
    let weir = alone(&service, "", "");
    over_h2(weir.address(), async |mut client, _| {
        let answer = client.post("/", "x".repeat(1000)).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 1000));
    });
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    // With any other reason the service may have processed the request.
    let (service, calls) = refusing(Reason::INTERNAL_ERROR);
    let weir = alone(&service, "", "");
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.post("/", "x").await.unwrap().status, 502);
        assert_eq!(client.post("/", "x").await.unwrap().status, 200);
    });
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// The connection lives, so its use says nothing about the reason.
#[test]
fn refused_streams_eject_their_endpoint() {
    let calls = Arc::<AtomicUsize>::default();
    let service = H2Service::start(move |mut call: Call| {
        let turn = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            if turn == 0 {
                return mirror(call).await;
            }
            call.respond.send_reset(Reason::REFUSED_STREAM);
        }
    });
    let weir = alone(&service, "eject = { after = 2, for = \"1h\" }", "");
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.get("/").await.unwrap().status, 200);
        assert_eq!(client.get("/").await.unwrap().status, 502, "after the second try");
    });
    let endpoint = service.address();
    let failed = format!("{{endpoint=\"http://{endpoint}\",result=\"failed\",upstream=\"a\"}}");
    assert_eq!(weir.metric(&format!("weir_endpoint_requests_total{failed}")), 2.0);
    assert_eq!(
        weir.metric(&format!("weir_endpoint_ejections_total{{endpoint=\"http://{endpoint}\",upstream=\"a\"}}")),
        1.0
    );
}

/// The bytes of a body that are kept for a retry have a bound.
#[test]
fn a_long_body_is_not_sent_twice() {
    let calls = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&calls);
    let service =
        H2Service::start_with(H2Options { window: Some(1 << 20), ..H2Options::default() }, move |mut call: Call| {
            let turn = count.fetch_add(1, Ordering::SeqCst);
            async move {
                if turn > 0 {
                    return mirror(call).await;
                }
                let mut taken = 0;
                while let Some(Ok(data)) = call.body.data().await {
                    taken += data.len();
                    let _ = call.body.flow_control().release_capacity(data.len());
                    if taken > 200_000 {
                        return call.respond.send_reset(Reason::REFUSED_STREAM);
                    }
                }
            }
        });
    let weir = alone(&service, "", "");
    over_h2(weir.address(), async |mut client, _| {
        let head = Request::post("http://a/");
        let answer = client.send(head, Full::new(vec![0; 300_000].into())).await.unwrap();
        assert_eq!(answer.status(), 502);
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn health_checks_use_http2() {
    let is_well = Arc::new(AtomicBool::new(true));
    let well = Arc::clone(&is_well);
    let service = H2Service::start(move |mut call: Call| {
        let status = if well.load(Ordering::SeqCst) { 204 } else { 500 };
        async move {
            let _ = call.respond.send_response(Response::builder().status(status).body(()).unwrap(), true);
        }
    });
    let health = "health = { path = \"/healthz\", interval = \"10ms\", unhealthy_after = 1, healthy_after = 1 }";
    let weir = alone(&service, health, "");
    let healthy = format!("weir_endpoint_healthy{{endpoint=\"http://{}\",upstream=\"a\"}}", service.address());
    service.wait_until(|service| service.called().len() > 2);
    assert_eq!(weir.metric(&healthy), 1.0);
    assert_eq!(service.called()[0].uri, format!("http://{}/healthz", service.address()));
    is_well.store(false, Ordering::SeqCst);
    weir.wait_for_metric(&healthy, |value| value == 0.0);
    is_well.store(true, Ordering::SeqCst);
    weir.wait_for_metric(&healthy, |value| value == 1.0);
}

/// A service that sends the text of the path, with its length, but ends the stream only once `true` is sent. Its Weir has
/// a limit of one request at once, and of one for each address.
fn with_late_ends() -> (H2Service, watch::Sender<bool>, Weir) {
    let (may_end, ends) = watch::channel(false);
    let service = H2Service::start(move |mut call: Call| {
        let mut ends = ends.clone();
        async move {
            let text = &call.head.uri.path()[1..];
            let head = Response::builder().header("content-length", text.len()).body(()).unwrap();
            let mut body = call.respond.send_response(head, false).unwrap();
            body.send_data(text.to_owned().into(), false).unwrap();
            let _ = ends.wait_for(|may_end| *may_end).await;
            let _ = body.send_data("".into(), true);
        }
    });
    let limit = "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\n";
    let text = Weir::text(&format!("{}{limit}", service.upstream("")));
    let weir = Weir::start_as(&text.replace("workers = 2", "workers = 2\nmax_requests_per_ip = 1"));
    (service, may_end, weir)
}

/// The client may send its next request as soon as it has the announced bytes.
#[test]
fn a_body_of_announced_length_is_settled_before_its_stream_ends() {
    let (_service, may_end, weir) = with_late_ends();
    let mut clients = ["/ok", "/", "/good", "/"].map(|path| (Client::connect(weir.address()), path));
    for (client, path) in &mut clients {
        assert_eq!(client.get(path).text(), path[1..]);
    }
    over_h2(weir.address(), async |mut client, _| {
        let mut answers = Vec::new();
        for path in ["/ok", "/", "/good", "/"] {
            let head = Request::get(format!("http://a{path}"));
            let mut answer = client.send(head, Empty::new()).await.unwrap();
            assert_eq!(answer.status(), 200);
            if path.len() > 1 {
                let text = answer.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(text, path[1..]);
            }
            answers.push(answer); // dropping it would reset its stream
        }
        may_end.send_replace(true);
        for answer in answers {
            assert!(answer.collect().await.unwrap().to_bytes().is_empty());
        }
    });
    for (client, path) in &mut clients {
        assert_eq!(client.get(path).text(), path[1..], "the connection goes on");
    }
}

/// A request is one in progress as long as its body is sent, whatever has been answered.
#[test]
fn an_early_answer_is_settled_once_its_request_was_sent() {
    let (_service, _may_end, weir) = with_late_ends();
    let status = || Client::connect(weir.address()).get("/").status;
    let mut client = Client::connect(weir.address());
    client.send("POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    assert_eq!((client.answer().text().as_str(), status()), ("ok", 429));
    client.send("67890");
    weir.wait_until("the unit is free", || status() == 200);
    over_h2(weir.address(), async |mut client, _| {
        let (frames, body) = unbounded_channel();
        let mut answer = client.send(Request::post("http://a/ok"), Channel(body)).await.unwrap();
        let text = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((&*text, status()), (&b"ok"[..], 429));
        frames.send(Frame::data("12345".into())).unwrap();
        drop(frames);
        weir.wait_until("the unit is free", || status() == 200);
    });
}

/// A request is not charged if no service can be reached.
#[test]
fn an_unreachable_service_costs_nothing() {
    let address = Upstream::start().stop();
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"3/h\"\n";
    let text = format!("[upstream]\nurl = \"http://{address}\"\nprotocol = \"h2\"\n{limit}");
    let weir = Weir::with(&text);
    for _ in 0..8 {
        let answer = Client::connect(weir.address()).get("/");
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (502, Some("3")));
    }
    over_h2(weir.address(), async |mut client, _| {
        let answer = client.send(Request::get("http://a/"), Empty::new()).await.unwrap();
        assert_eq!(answer.status(), 502);
    });
}
