//! An upstream that records every request byte for byte, and answers as it is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

/// The upstream. Its threads end with the process.
pub struct Upstream {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    open: Arc<Mutex<HashMap<u64, TcpStream>>>,
}

impl Upstream {
    /// Answers everything with 200 and `hello`.
    pub fn start() -> Self {
        Self::answering(|_, stream| stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_ok())
    }

    /// Answers with what `answer` writes, once head and body have been read and recorded.
    pub fn answering(answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(answer))
    }

    fn on(listener: TcpListener, answer: Arc<Answering>) -> Self {
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let open = Arc::<Mutex<HashMap<u64, TcpStream>>>::default();
        let (all_received, all_open) = (Arc::clone(&received), Arc::clone(&open));
        std::thread::spawn(move || {
            for (id, stream) in (0..).zip(listener.incoming().map_while(Result::ok)) {
                let (received, open, answer) = (Arc::clone(&all_received), Arc::clone(&all_open), Arc::clone(&answer));
                open.lock().unwrap().insert(id, stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    serve(stream, &received, &*answer);
                    open.lock().unwrap().remove(&id);
                });
            }
        });
        Self { address, received, open }
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

fn serve(stream: TcpStream, received: &Mutex<Vec<Received>>, answer: &Answering) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader, &mut writer) {
        received.lock().unwrap().push(request.clone());
        if !answer(&request, &mut writer) {
            let _ = writer.shutdown(std::net::Shutdown::Both);
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
