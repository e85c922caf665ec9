//! An upstream that records every request byte for byte.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use socket2::{Domain, SockRef, Socket, Type};

use super::event::Changes;

/// A request as received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Request line and fields, without the empty line.
    pub head: String,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// Trailers as received.
    pub trailers: String,
}

impl Received {
    /// The target of the request line.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    /// All values of a field, joined with `|`.
    pub fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let values: Vec<_> =
            lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
        (!values.is_empty()).then(|| values.join("|"))
    }
}

/// Writes the response to a request; `false` closes the connection after it.
type Answering = dyn Fn(&Received, &mut TcpStream) -> bool + Send + Sync;

/// Serves one connection to its end.
type Serving = dyn Fn(Peer) + Send + Sync;

/// The upstream. Its threads end with the process.
pub struct Upstream {
    address: SocketAddr,
    listener: TcpListener,
    record: Arc<Record>,
}

/// The requests and the open connections of an upstream.
#[derive(Default)]
struct Record {
    received: Mutex<Vec<Received>>,
    open: Mutex<HashMap<u64, TcpStream>>,
    changes: Changes,
}

impl Record {
    fn receive(&self, request: Received) {
        self.received.lock().unwrap().push(request);
        self.changes.notify();
    }

    fn open(&self, id: u64, stream: TcpStream) {
        self.open.lock().unwrap().insert(id, stream);
        self.changes.notify();
    }

    fn close(&self, id: u64) {
        self.open.lock().unwrap().remove(&id);
        self.changes.notify();
    }
}

impl Upstream {
    /// Responds with 200 and `hello`.
    pub fn start() -> Self {
        Self::answering(hello)
    }

    /// Responds with 200 and `hello`, on the address of a stopped upstream.
    pub fn start_at(address: SocketAddr) -> Self {
        Self::on(TcpListener::bind(address).unwrap(), Arc::new(move |peer| serve(peer, &hello)))
    }

    /// Responds with these bytes. Closes after them if they contain `connection: close`.
    pub fn saying(answer: &str) -> Self {
        let (answer, closes) = (answer.to_owned(), answer.contains("connection: close"));
        Self::answering(move |_, stream| stream.write_all(answer.as_bytes()).is_ok() && !closes)
    }

    /// Responds to `/0` and paths below it with the first bytes, to `/1` with the second ones, and so on.
    pub fn saying_each(answers: Vec<String>) -> Self {
        Self::answering(move |request, stream| {
            let index: usize = request.target().split('/').nth(1).unwrap().parse().unwrap();
            stream.write_all(answers[index].as_bytes()).is_ok()
        })
    }

    /// Echoes targets, `/slow` once the sender is dropped.
    pub fn slow() -> (Self, Sender<()>) {
        let (may_end, ends) = channel();
        let ends = Mutex::new(ends);
        let upstream = Self::answering(move |request, stream| {
            if request.target() == "/slow" {
                let _ = ends.lock().unwrap().recv();
            }
            echo(request, stream)
        });
        (upstream, may_end)
    }

    /// Responds with the bytes that `answer` writes. Head and body are read and recorded before.
    pub fn answering(answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::serving(move |peer| serve(peer, &answer))
    }

    /// Lets `serve` serve each connection.
    pub fn serving(serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(serve))
    }

    /// Lets `serve` serve each connection of this listener.
    pub fn serving_on(listener: TcpListener, serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on(listener, Arc::new(serve))
    }

    /// Responds with the bytes that `answer` writes, on this listener.
    pub fn listening(
        listener: TcpListener,
        answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::on(listener, Arc::new(move |peer| serve(peer, &answer)))
    }

    fn on(listener: TcpListener, serve: Arc<Serving>) -> Self {
        let address = listener.local_addr().unwrap();
        let accepting = listener.try_clone().unwrap();
        let record = Arc::<Record>::default();
        let all = Arc::clone(&record);
        std::thread::spawn(move || {
            for (id, stream) in (0..).zip(accepting.incoming().map_while(Result::ok)) {
                // An answer in several pieces waits for no acknowledgement.
                let _ = stream.set_nodelay(true);
                let (record, serve) = (Arc::clone(&all), Arc::clone(&serve));
                let kept = stream.try_clone().unwrap();
                record.open(id, stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    serve(Peer { reader: BufReader::new(stream), record: Arc::clone(&record) });
                    let _ = kept.shutdown(Shutdown::Both);
                    record.close(id);
                });
            }
        });
        Self { address, listener, record }
    }

    /// Refuses new connections and breaks all open ones. Returns its address.
    pub fn stop(self) -> SocketAddr {
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for stream in self.record.open.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Holds the port without listening until the tests end, so that no other test gets it before `start_at`.
        let holder = Socket::new(Domain::for_address(self.address), Type::STREAM, None).unwrap();
        holder.set_reuse_address(true).unwrap();
        holder.bind(&self.address.into()).unwrap();
        std::mem::forget(holder);
        self.address
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All recorded requests, in order.
    pub fn received(&self) -> Vec<Received> {
        self.record.received.lock().unwrap().clone()
    }

    /// Recorded requests behind the first `count`, in order.
    pub fn received_after(&self, count: usize) -> Vec<Received> {
        self.record.received.lock().unwrap()[count..].to_vec()
    }

    /// The number of recorded requests.
    pub fn received_count(&self) -> usize {
        self.record.received.lock().unwrap().len()
    }

    /// The targets of all recorded requests, in order.
    pub fn targets(&self) -> Vec<String> {
        self.record.received.lock().unwrap().iter().map(|received| received.target().to_owned()).collect()
    }

    /// Number of recorded requests with this target.
    pub fn count(&self, target: &str) -> usize {
        self.record.received.lock().unwrap().iter().filter(|received| received.target() == target).count()
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.record.open.lock().unwrap().len()
    }

    /// Waits until `is_so`, which is checked after each request, and each time that a connection opens or closes.
    pub fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        assert!(self.record.changes.wait_until(|| is_so(self)), "never; received: {:#?}", self.received());
    }
}

/// A connection of Weir that a test serves itself.
pub struct Peer {
    reader: BufReader<TcpStream>,
    record: Arc<Record>,
}

impl Peer {
    /// Reads and records the head of a request; none at the end of the stream.
    pub fn head(&mut self) -> Option<Received> {
        let received = Received { head: read_lines(&mut self.reader)?, body: Vec::new(), trailers: String::new() };
        self.record.receive(received.clone());
        Some(received)
    }

    /// The address of the upstream.
    pub fn address(&self) -> SocketAddr {
        self.reader.get_ref().local_addr().unwrap()
    }

    /// Sends bytes; `false` if that fails.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Reads `len` bytes; none if the stream ends before.
    pub fn read(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// Reads bytes, at least one; none at the end of the stream.
    pub fn read_some(&mut self) -> Option<Vec<u8>> {
        let bytes = self.reader.fill_buf().ok()?.to_vec();
        self.reader.consume(bytes.len());
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The socket. No bytes may have been read from it.
    pub fn into_socket(self) -> TcpStream {
        self.reader.into_inner()
    }

    /// Ends the direction of the upstream.
    pub fn finish(&mut self) {
        let _ = self.reader.get_mut().shutdown(Shutdown::Write);
    }

    /// Reads to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
        rest
    }
}

/// Responds with the target of the request.
pub fn echo(request: &Received, stream: &mut TcpStream) -> bool {
    let body = request.target();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).is_ok()
}

fn hello(_: &Received, stream: &mut TcpStream) -> bool {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok()
}

fn serve(mut peer: Peer, answer: &Answering) {
    let mut writer = peer.reader.get_ref().try_clone().unwrap();
    while let Some(request) = read_request(&mut peer.reader, &mut writer) {
        peer.record.receive(request.clone());
        if !answer(&request, &mut writer) {
            return;
        }
    }
}

/// Reads a request; none at the end of the stream. Sends 100 Continue if it is expected.
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

/// Reads `len` bytes; none if the stream ends before. Memory grows with the received bytes only.
fn read_exactly(reader: &mut BufReader<TcpStream>, len: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(len).read_to_end(&mut bytes).ok()?;
    (read as u64 == len).then_some(bytes)
}

/// Reads lines up to an empty one, and joins them; none at the end of the stream.
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
