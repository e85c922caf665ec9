//! How requests to a service that speaks HTTP/2 end before they are done.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};

use super::{alone, mirror};
use crate::support::{Call, Client, H2Service, NEVER, Weir, over_h2};

/// A service that says how each call ended, after as much of an answer as the path says.
fn watched() -> (H2Service, std::sync::mpsc::Receiver<(h2::Reason, Instant)>) {
    let (tell, ended) = channel();
    let service = H2Service::start(move |mut call: Call| {
        let tell = tell.clone();
        async move {
            if call.head.uri.path() == "/head" {
                let mut stream = call.begin(Response::builder());
                let _ = stream.send_data("first".into(), false);
                let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
                let _ = tell.send((reason.unwrap(), Instant::now()));
            } else {
                let reason = std::future::poll_fn(|cx| call.respond.poll_reset(cx)).await;
                let _ = tell.send((reason.unwrap(), Instant::now()));
            }
        }
    });
    (service, ended)
}

/// Not before, so that it counts from when the client left.
fn assert_cancelled(ended: &std::sync::mpsc::Receiver<(h2::Reason, Instant)>, left_at: Instant) {
    let (reason, at) = ended.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert_eq!(reason, h2::Reason::CANCEL);
    assert!(at > left_at);
}

#[test]
fn a_client_that_leaves_takes_its_stream_with_it() {
    let (service, ended) = watched();
    let weir = alone(&service, "", "");
    for path in ["/none", "/head"] {
        let mut client = Client::connect(weir.address());
        let before = service.called().len();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        service.wait_until(|service| service.called().len() > before);
        if path == "/head" {
            assert_eq!(client.head().unwrap().status, 200);
        }
        let left_at = Instant::now();
        drop(client);
        assert_cancelled(&ended, left_at);
        over_h2(weir.address(), async |mut client, _| {
            let before = service.called().len();
            let (tell, head) = tokio::sync::oneshot::channel();
            let asked = tokio::spawn(async move {
                let answer = client.send(Request::get(format!("http://a{path}")), Empty::new()).await;
                let _ = tell.send(());
                answer.unwrap().into_body().collect().await.map(drop)
            });
            service.wait_until(|service| service.called().len() > before);
            if path == "/head" {
                head.await.unwrap();
            }
            let left_at = Instant::now();
            asked.abort();
            assert_cancelled(&ended, left_at);
        });
    }
    assert_eq!(service.connections(), 1, "nothing else was broken off");
}

#[test]
fn every_deadline_holds() {
    let (service, ended) = watched();
    let weir = alone(&service, "", "[timeouts]\nresponse_head = \"200ms\"\n");
    assert_eq!(Client::connect(weir.address()).get("/none").status, 504);
    assert_eq!(ended.recv().unwrap().0, h2::Reason::CANCEL);
    // The head must come within `total`, on a busy machine too.
    for timeout in ["body_idle = \"200ms\"", "total = \"2s\""] {
        let weir = alone(&service, "", &format!("[timeouts]\n{timeout}\n"));
        let mut client = Client::connect(weir.address());
        client.send("GET /head HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.try_answer().is_none(), "its end never comes");
        assert_eq!(ended.recv().unwrap().0, h2::Reason::CANCEL);
        over_h2(weir.address(), async |mut client, _| {
            let answer = client.send(Request::get("http://a/head"), Empty::new()).await.unwrap();
            assert!(answer.into_body().collect().await.is_err());
        });
        assert_eq!(ended.recv().unwrap().0, h2::Reason::CANCEL);
    }
    let weir = alone(&service, "", "[timeouts]\ntotal = \"200ms\"\n");
    assert_eq!(Client::connect(weir.address()).get("/none").status, 504);
    // A body that does not come is the client's fault.
    let weir = alone(&service, "", "[timeouts]\nbody_idle = \"200ms\"\n");
    let mut client = Client::connect(weir.address());
    client.send("POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.answer().status, 408);
}

/// One that accepts and says nothing is not a service that is slow, but none.
#[test]
fn a_service_that_never_begins_cannot_be_reached() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"3/h\"\n[timeouts]\nconnect = \"200ms\"\n";
    let url = format!("http://{}", silent.local_addr().unwrap());
    let weir = Weir::with(&format!("[upstream]\nurl = \"{url}\"\nprotocol = \"h2\"\n{limit}"));
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (504, Some("3")));
}

/// Passes bytes on to a service until it is told to swallow them.
struct Cable {
    address: std::net::SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// Those to the service.
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    fn to(service: &H2Service) -> Self {
        let (listener, to) = (TcpListener::bind("127.0.0.1:0").unwrap(), service.address());
        let (address, is_cut) = (listener.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let (cut, sockets) = (Arc::clone(&is_cut), Arc::<Mutex<Vec<TcpStream>>>::default());
        let all = Arc::clone(&sockets);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(to).unwrap();
                all.lock().unwrap().push(far.try_clone().unwrap());
                // Those that come later are whole.
                let cut = if cut.load(Ordering::SeqCst) { Arc::default() } else { Arc::clone(&cut) };
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    let cut = Arc::clone(&cut);
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(len @ 1..) = from.read(&mut bytes) {
                            if !cut.load(Ordering::SeqCst) && to.write_all(&bytes[..len]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, is_cut, sockets }
    }
}

/// After a request that got no answer, its connection has to show that it is there.
#[test]
fn a_dead_connection_is_found_out() {
    let service = H2Service::start(mirror);
    let cable = Cable::to(&service);
    let timeouts = "[timeouts]\nconnect = \"2s\"\nresponse_head = \"2s\"\n";
    let upstream = format!("[upstreams.a]\nendpoints = [\"http://{}\"]\nprotocol = \"h2\"\n", cable.address);
    let weir =
        Weir::start_as(&Weir::text(&format!("{upstream}{NEVER}{timeouts}")).replace("workers = 2", "workers = 1"));
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/").status, 200);
    cable.is_cut.store(true, Ordering::SeqCst);
    assert_eq!(client.get("/").status, 504);
    weir.wait_for_metric(
        &format!("weir_endpoint_connections{{endpoint=\"http://{}\",upstream=\"a\"}}", cable.address),
        |open| open == 0.0,
    );
    assert_eq!((client.get("/").status, service.connections()), (200, 2));
}

/// A connection that breaks takes its requests with it; those that may go out once more do.
#[test]
fn a_connection_that_breaks_is_replaced() {
    let service = H2Service::start(|call: Call| async move {
        // The first connection answers nothing but what has this path.
        if call.connection > 1 || call.head.uri.path() == "/" {
            mirror(call).await;
        } else {
            std::future::pending::<()>().await;
        }
    });
    let cable = Cable::to(&service);
    let upstream = format!("[upstreams.a]\nendpoints = [\"http://{}\"]\nprotocol = \"h2\"\n{NEVER}", cable.address);
    let weir = Weir::start_as(&Weir::text(&upstream).replace("workers = 2", "workers = 1"));
    let mut clients = [(); 2].map(|()| Client::connect(weir.address()));
    assert_eq!(clients[0].get("/").status, 200);
    clients[0].send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    clients[1].send("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    service.wait_until(|service| service.called().len() == 3);
    for socket in cable.sockets.lock().unwrap().drain(..) {
        socket.shutdown(Shutdown::Both).unwrap();
    }
    assert_eq!(clients.each_mut().map(|client| client.answer().status), [200, 502]);
    assert_eq!((service.connections(), service.called().len()), (2, 4));
}
