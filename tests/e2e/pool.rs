//! Idle connections to the service.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::ops::until;
use crate::support::{Client, NEVER, PATIENCE_OF_TEST, Upstream, Weir};

const IN_FLIGHT: usize = 500;
const ROUNDS: usize = 4;

/// The connections of a service: all so far, and those open now.
#[derive(Default)]
struct ConnectionCounts {
    ever: AtomicUsize,
    open: AtomicUsize,
}

/// Answers all connections once `IN_FLIGHT` requests have arrived.
async fn serve(listener: TcpListener, seen: Arc<ConnectionCounts>) {
    let together = Arc::new(Barrier::new(IN_FLIGHT));
    while let Ok((mut socket, _)) = listener.accept().await {
        seen.ever.fetch_add(1, Ordering::SeqCst);
        seen.open.fetch_add(1, Ordering::SeqCst);
        let (seen, together) = (Arc::clone(&seen), Arc::clone(&together));
        tokio::spawn(async move {
            while read_head(&mut socket).await {
                together.wait().await;
                if socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                    break;
                }
            }
            seen.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Reads to the end of a head; `false` at the end of the stream.
async fn read_head(socket: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(socket.read_buf(&mut head).await, Ok(1..)) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn connections_that_a_steady_load_needs_stay_and_close_after_the_idle_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::<ConnectionCounts>::default();
    tokio::spawn(serve(listener, Arc::clone(&seen)));
    let weir = Weir::with(&format!("[upstream]\nurl = \"{url}\"\nidle_timeout = \"5s\"\n{NEVER}"));
    let clients: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let address = weir.address();
            tokio::spawn(async move {
                let mut socket = TcpStream::connect(address).await.unwrap();
                for _ in 0..ROUNDS {
                    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
                    assert!(read_head(&mut socket).await);
                }
            })
        })
        .collect();
    for client in clients {
        timeout(PATIENCE_OF_TEST, client).await.expect("in time").unwrap();
    }
    let opened = seen.ever.load(Ordering::SeqCst);
    assert!((IN_FLIGHT..=600).contains(&opened), "{opened} connections for {IN_FLIGHT} requests in flight");
    // `until` blocks, so it runs beside the service.
    tokio::task::spawn_blocking(move || until("idle connections are closed", || seen.open.load(Ordering::SeqCst) == 0))
        .await
        .unwrap();
}

/// Although the last piece of the response is as long as a piece can be, and waits until the client reads.
#[test]
fn a_slow_reader_leaves_the_connection_to_the_next_request() {
    // A new connection is read into buffers that grow from 4 KiB to 64 KiB, behind the head.
    const LEN: usize = (1 << 23) + (60 << 10);
    let (may_go_on, goes_on) = channel();
    let goes_on = Mutex::new(goes_on);
    let upstream = Upstream::answering(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
        let is_sent = stream.write_all(head.as_bytes()).is_ok() && goes_on.lock().unwrap().recv().is_ok();
        is_sent && stream.write_all(&vec![b'x'; LEN]).is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::narrow(weir.address());
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        may_go_on.send(()).unwrap();
        weir.wait_for_metric("weir_untaken_bytes", |bytes| bytes > 0.0);
        client.read(LEN);
    }
    assert_eq!(upstream.connections(), 1);
}
