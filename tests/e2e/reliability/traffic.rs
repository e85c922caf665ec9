//! Clients of every kind, each one a while, over and over.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustls::ClientConfig;

use super::load::PAUSE;
use crate::support::{Client, PATIENCE, connect_tls, over_h2, over_h2_tls};

/// Where they ask, and until when.
pub struct Traffic {
    pub plain: SocketAddr,
    pub tls: SocketAddr,
    pub over_http1: ClientConfig,
    pub over_http2: ClientConfig,
    pub is_over: AtomicBool,
    pub rounds: AtomicU64,
}

/// The name in the certificate.
pub const HOST: &str = "weir.test";

/// Requests of a connection that is kept.
const REQUESTS: usize = 50;

impl Traffic {
    /// All kinds of clients, each on a thread of its own.
    pub const KINDS: [fn(&Self, u64); 7] =
        [Self::kept, Self::anew, Self::streams, Self::over_tls, Self::upgraded, Self::leaving, Self::held];

    /// Lets one kind of client ask until it is over.
    pub fn run(&self, kind: fn(&Self, u64)) {
        for round in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let began = Instant::now();
            kind(self, round);
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if !PAUSE.is_zero() {
                std::thread::sleep(PAUSE.max(3 * began.elapsed()));
            }
        }
    }

    fn kept(&self, round: u64) {
        let mut client = Client::connect(self.plain);
        for number in 0..REQUESTS as u64 {
            let answer = client.get(&format!("/who?who={}", (round * 7 + number) % 1000));
            assert!(matches!(answer.status, 200 | 429), "{}", answer.head);
        }
    }

    fn anew(&self, round: u64) {
        let body = "x".repeat(usize::try_from(round % 40).unwrap() * 1000);
        let mut client = Client::connect(self.plain);
        client.send(format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(client.answer().status, 200);
    }

    fn streams(&self, round: u64) {
        let ask = async |client: crate::support::H2Client, _| {
            for _ in 0..REQUESTS {
                let mut client = client.clone();
                assert_eq!(client.get("/").await.unwrap().status, 200);
            }
        };
        if round.is_multiple_of(2) {
            over_h2(self.plain, ask);
        } else {
            over_h2_tls(self.tls, self.over_http2.clone(), HOST, ask);
        }
    }

    fn over_tls(&self, _: u64) {
        let mut client = connect_tls(self.tls, &self.over_http1, HOST).unwrap();
        for _ in 0..5 {
            assert_eq!(client.get("/").status, 200);
        }
    }

    fn upgraded(&self, _: u64) {
        let mut client = Client::connect(self.plain);
        client.send(
            "GET /ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        assert_eq!(client.head().unwrap().status, 101);
        for _ in 0..5 {
            assert_eq!(client.send("hello").read(5), b"hello");
        }
    }

    /// Goes before there is an answer: in the middle of the head, of the body, while it waits, or without reading.
    fn leaving(&self, round: u64) {
        let said: [&[u8]; 4] = [
            b"GET / HTTP/1.1\r\nhost:",
            b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\nsome",
            b"GET /never HTTP/1.1\r\nhost: h\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: h\r\n\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\n",
        ];
        let mut stream = TcpStream::connect(self.plain).unwrap();
        stream.write_all(said[usize::try_from(round % 4).unwrap()]).unwrap();
        if round.is_multiple_of(3) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read(&mut [0; 10]);
        }
    }

    fn held(&self, _: u64) {
        assert_eq!(Client::connect(self.plain).get("/held").status, 200);
    }
}
