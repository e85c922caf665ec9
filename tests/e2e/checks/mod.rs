//! Checks of other proxies and services: Weir decides about requests that it does not get.

mod connections;
mod decisions;
mod json;
mod proxies;
mod reloads;
mod waits;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use crate::support::{Answer, Client, PATIENCE, Weir};

/// The text of a configuration that only answers checks, of proxies on 127.0.0.1.
fn config(check: &str, rest: &str) -> String {
    format!(
        "[server]\nworkers = 2\ntrusted_proxies = [\"127.0.0.1\"]\n[check]\nlisten = \"127.0.0.1:0\"\n{check}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\nlevel = \"trace\"\naccess = \"all\"\n{rest}\n"
    )
}

/// Starts a Weir that only answers checks, with these limits and other tables.
fn start(rest: &str) -> Weir {
    Weir::start_as(&config("", rest))
}

fn connect(weir: &Weir) -> Client {
    Client::connect(weir.checks())
}

/// A client at another loopback address, which is no trusted proxy.
fn stranger(to: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client::over(stream)
}

/// A request that a proxy asks about, as Traefik and Caddy describe it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    method: &'a str,
    uri: &'a str,
    host: &'a str,
    client: &'a str,
    /// Lines of other headers.
    more: &'a str,
}

const GET: Asked<'_> = Asked { method: "GET", uri: "/", host: "shop.test", client: "192.0.2.1", more: "" };

impl Asked<'_> {
    /// The bytes of a check with this target.
    fn bytes(&self, target: &str) -> String {
        let Self { method, uri, host, client, more } = self;
        format!(
            "GET {target} HTTP/1.1\r\nHost: weir.internal:8082\r\nX-Forwarded-Method: {method}\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: {host}\r\nX-Forwarded-Uri: {uri}\r\n\
             X-Forwarded-For: {client}\r\n{more}\r\n"
        )
    }

    fn ask<S: Read + Write>(&self, client: &mut Client<S>) -> Answer {
        client.send(self.bytes("/auth")).answer()
    }
}

/// Sends a body to `/v1/check`.
fn post(client: &mut Client, body: &str) -> Answer {
    let length = body.len();
    client.send(format!("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: {length}\r\n\r\n{body}")).answer()
}

/// The detail of a problem.
fn detail(answer: &Answer) -> String {
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", answer.head);
    assert_eq!(problem["status"], answer.status);
    problem["detail"].as_str().unwrap().to_owned()
}
