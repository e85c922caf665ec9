//! An upstream that records every request byte for byte, and answers as it is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::PATIENCE;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Request line and headers, without the empty line.
    pub head: String,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// Trailers, as they arrived.
    pub trailers: String,
}

impl Received {
    /// The target of the request line.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    /// All values of a header, joined with `|`.
    pub fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let values: Vec<_> =
            lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
        (!values.is_empty()).then(|| values.join("|"))
    }
}

/// Writes the answer to a request; `false` closes the connection after it.
type Answering = dyn Fn(&Received, &mut TcpStream) -> bool + Send + Sync;

/// Serves one connection to its end.
type Serving = dyn Fn(Peer) + Send + Sync;

/// The upstream. Its threads end with the process.
pub struct Upstream {
    address: SocketAddr,
    listener: TcpListener,
    received: Arc<Mutex<Vec<Received>>>,
    open: Arc<Mutex<HashMap<u64, TcpStream>>>,
}

impl Upstream {
    /// Answers everything with 200 and `hello`.
    pub fn start() -> Self {
        Self::answering(hello)
    }

    /// The same on an address where another one was stopped.
    pub fn start_at(address: SocketAddr) -> Self {
        Self::on(TcpListener::bind(address).unwrap(), Arc::new(move |peer| serve(peer, &hello)))
    }

    /// Answers everything with these bytes, and closes if they say so.
    pub fn saying(answer: &str) -> Self {
        let (answer, closes) = (answer.to_owned(), answer.contains("connection: close"));
        Self::answering(move |_, stream| stream.write_all(answer.as_bytes()).is_ok() && !closes)
    }

    /// Answers with what `answer` writes, once head and body have been read and recorded.
    pub fn answering(answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::serving(move |peer| serve(peer, &answer))
    }

    /// Leaves each connection to `serve`.
    pub fn serving(serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(serve))
    }

    /// The same on a socket that listens already.
    #[allow(dead_code)] // not every suite asks for it
    pub fn serving_on(listener: TcpListener, serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on(listener, Arc::new(serve))
    }

    /// The same on this listener.
    pub fn listening(
        listener: TcpListener,
        answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::on(listener, Arc::new(move |peer| serve(peer, &answer)))
    }

    fn on(listener: TcpListener, serve: Arc<Serving>) -> Self {
        let address = listener.local_addr().unwrap();
        let accepting = listener.try_clone().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let open = Arc::<Mutex<HashMap<u64, TcpStream>>>::default();
        let (all_received, all_open) = (Arc::clone(&received), Arc::clone(&open));
        std::thread::spawn(move || {
            for (id, stream) in (0..).zip(accepting.incoming().map_while(Result::ok)) {
                let (received, open, serve) = (Arc::clone(&all_received), Arc::clone(&all_open), Arc::clone(&serve));
                let kept = stream.try_clone().unwrap();
                open.lock().unwrap().insert(id, stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    serve(Peer { reader: BufReader::new(stream), received });
                    let _ = kept.shutdown(Shutdown::Both);
                    open.lock().unwrap().remove(&id);
                });
            }
        });
        Self { address, listener, received, open }
    }

    /// Refuses and breaks off all connections from now on. Gives the address that it had.
    pub fn stop(self) -> SocketAddr {
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for stream in self.open.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.address
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that has reached it, in order.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The targets of what has reached it, in order.
    pub fn targets(&self) -> Vec<String> {
        self.received().iter().map(|received| received.target().to_owned()).collect()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    /// Waits until `is_so` of this upstream.
    pub fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "never; received: {:#?}", self.received());
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// A connection from Weir that a test serves by hand.
pub struct Peer {
    reader: BufReader<TcpStream>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Peer {
    /// Reads and records the head of a request; none at the end of the stream.
    pub fn head(&mut self) -> Option<Received> {
        let received = Received { head: read_lines(&mut self.reader)?, body: Vec::new(), trailers: String::new() };
        self.received.lock().unwrap().push(received.clone());
        Some(received)
    }

    /// Sends bytes; `false` if they cannot go.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// The next bytes; none if the stream ends before them.
    pub fn read(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// The socket, on which nothing may have been read.
    pub fn into_socket(self) -> TcpStream {
        self.reader.into_inner()
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        let _ = self.reader.get_mut().shutdown(Shutdown::Write);
    }

    /// Everything that still comes, to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
        rest
    }
}

/// Answers with the request's target.
pub fn echo(request: &Received, stream: &mut TcpStream) -> bool {
    let body = request.target();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).is_ok()
}

fn hello(_: &Received, stream: &mut TcpStream) -> bool {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
}

fn serve(mut peer: Peer, answer: &Answering) {
    let mut writer = peer.reader.get_ref().try_clone().unwrap();
    while let Some(request) = read_request(&mut peer.reader, &mut writer) {
        peer.received.lock().unwrap().push(request.clone());
        if !answer(&request, &mut writer) {
            return;
        }
    }
}

/// One request; none at the end of the stream. Says 100 Continue if asked to.
fn read_request(reader: &mut BufReader<TcpStream>, writer: &mut TcpStream) -> Option<Received> {
    let head = read_lines(reader)?;
    let mut received = Received { head, body: Vec::new(), trailers: String::new() };
    if received.header("expect").is_some() {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if let Some(len) = received.header("content-length") {
        received.body = read_exactly(reader, len.parse().ok()?)?;
    } else if received.header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                received.trailers = read_lines(reader)?;
                break;
            }
            received.body.extend(read_exactly(reader, size)?);
            read_exactly(reader, 2)?;
        }
    }
    Some(received)
}

/// So many bytes; none if the stream ends before. Takes no memory for what has not come.
fn read_exactly(reader: &mut BufReader<TcpStream>, len: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(len).read_to_end(&mut bytes).ok()?;
    (read as u64 == len).then_some(bytes)
}

/// Lines up to an empty one, joined; none at the end of the stream.
fn read_lines(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut lines = String::new();
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if line == b"\r\n" {
            return Some(lines);
        }
        lines.push_str(&String::from_utf8_lossy(&line));
    }
}
