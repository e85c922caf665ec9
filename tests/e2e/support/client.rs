//! A client that sends exactly the given bytes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::PATIENCE;

/// A connection to Weir.
pub struct Client<S = TcpStream> {
    reader: BufReader<S>,
}

/// A response; its body is without framing.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Status line and fields.
    pub head: String,
    pub body: Vec<u8>,
    /// Trailers as received.
    pub trailers: String,
}

impl Answer {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    /// Connects with a small receive buffer, so that it takes little at once.
    pub fn narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    /// Connects from the address `ip` of this machine.
    pub fn connect_from(ip: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    /// Whether unread bytes have arrived.
    pub fn has_more(&mut self) -> bool {
        self.stream().set_nonblocking(true).unwrap();
        let peeked = self.stream().peek(&mut [0]);
        self.stream().set_nonblocking(false).unwrap();
        !self.reader.buffer().is_empty() || peeked.is_ok()
    }

    /// Ends the direction of the client.
    pub fn finish(&mut self) {
        let _ = self.stream().shutdown(Shutdown::Write);
    }
}

impl<S: Read + Write> Client<S> {
    /// A client over `stream`.
    pub fn over(stream: S) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream().write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends a GET, and reads the response.
    pub fn get(&mut self, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n")).answer()
    }

    /// Reads the response to a request that was not HEAD. Panics without a response.
    pub fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer")
    }

    /// Reads the head of a response, also of an interim one; none at the end of the stream.
    pub fn head(&mut self) -> Option<Answer> {
        let head = self.lines()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head, body: Vec::new(), trailers: String::new() })
    }

    /// Reads a whole response; none if the stream ends before its head does.
    pub fn try_answer(&mut self) -> Option<Answer> {
        let mut answer = self.head()?;
        if answer.status < 200 || matches!(answer.status, 204 | 304) {
            return Some(answer);
        }
        if let Some(len) = answer.header("content-length") {
            answer.body = vec![0; len.parse().unwrap_or_else(|_| panic!("a length in {:?}", answer.head))];
            self.reader.read_exact(&mut answer.body).ok()?;
        } else if answer.header("transfer-encoding").is_some() {
            loop {
                let mut size = String::new();
                self.reader.read_line(&mut size).ok()?;
                let size = usize::from_str_radix(size.trim(), 16).ok()?;
                if size == 0 {
                    answer.trailers = self.lines()?;
                    break;
                }
                let mut chunk = vec![0; size + 2];
                self.reader.read_exact(&mut chunk).ok()?;
                answer.body.extend_from_slice(&chunk[..size]);
            }
        } else {
            self.reader.read_to_end(&mut answer.body).ok()?;
        }
        Some(answer)
    }

    /// Reads `len` bytes.
    pub fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads to the end of the stream. A reset counts as its end; a timeout does not.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.reader.read_to_end(&mut rest) {
            assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "still open after {rest:?}");
        }
        rest
    }

    /// The reader, with bytes that are read and not parsed.
    pub fn reader(&mut self) -> &mut BufReader<S> {
        &mut self.reader
    }

    /// The stream. No unparsed bytes may have been read.
    pub fn into_stream(self) -> S {
        self.reader.into_inner()
    }

    pub fn stream(&mut self) -> &mut S {
        self.reader.get_mut()
    }

    fn lines(&mut self) -> Option<String> {
        let mut lines = String::new();
        loop {
            let mut line = Vec::new();
            if self.reader.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
            if line == b"\r\n" {
                return Some(lines);
            }
            lines.push_str(&String::from_utf8_lossy(&line));
        }
    }
}
