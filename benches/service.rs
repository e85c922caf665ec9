//! The service and the gRPC client of `compare/run.py bodies` and `compare/run.py grpc`.
//!
//! `serve` answers `GET /body` with 1 MiB, reads the body of `POST /upload`, and answers the gRPC methods `Check` and
//! `CheckStream` of `weir.v1.Limiter` with constant messages, over HTTP/1 and cleartext HTTP/2. `calls` and `messages`
//! send gRPC to a port and print what they counted as one line of JSON.

// A generator of load reads clocks, nothing outside reaches its items, and the service is generated.
#![allow(clippy::disallowed_methods, unreachable_pub)]

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use clap::{Parser, Subcommand};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::adapters::Map;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use weir::fleet::grpc::proto::weir::v1::check_stream_response::Result as Answer;
use weir::fleet::grpc::proto::weir::v1::limiter_client::LimiterClient;
use weir::fleet::grpc::proto::weir::v1::limiter_server::{Limiter, LimiterServer};
use weir::fleet::grpc::proto::weir::v1::{
    CheckRequest, CheckResponse, CheckStreamResponse, ReportRequest, ReportResponse,
};

/// Length of the answer to `GET /body`.
const BODY_BYTES: usize = 1 << 20;
/// Requests on one stream of `messages`.
const MESSAGES: usize = 10_000;

/// Serves bodies and gRPC, or calls gRPC, for a comparison of proxies.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What `cargo bench` says to every benchmark
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Serves on a port of 127.0.0.1 until it is killed
    Serve { port: u16 },
    /// Makes unary calls: a number of connections, of streams at once on each, and of seconds
    Calls { port: u16, connections: usize, streams: usize, seconds: u64 },
    /// Sends streams of 10,000 messages each, one after the other on each connection, for a number of seconds
    Messages { port: u16, connections: usize, seconds: u64 },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().command {
        Some(Command::Serve { port }) => serve(port).await?,
        Some(Command::Calls { port, connections, streams, seconds }) => {
            count(port, connections, streams, seconds, calls).await?;
        }
        Some(Command::Messages { port, connections, seconds }) => {
            count(port, connections, 1, seconds, messages).await?;
        }
        None => println!("see benches/README.md: compare/run.py runs this program"),
    }
    Ok(())
}

async fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let pages =
        axum::Router::new().route("/body", get(move || async move { Body::from(body) })).route("/upload", post(upload));
    let routes = Routes::from(pages).add_service(LimiterServer::new(Constant));
    let server = Server::builder().accept_http1(true).tcp_nodelay(true).add_routes(routes);
    Ok(server.serve((Ipv4Addr::LOCALHOST, port).into()).await?)
}

/// Reads the body, and answers with its length.
async fn upload(body: Body) -> String {
    let mut pieces = body.into_data_stream();
    let mut len = 0;
    while let Some(Ok(piece)) = pieces.next().await {
        len += piece.len();
    }
    len.to_string()
}

/// A limiter that allows everything.
struct Constant;

type CheckStream =
    Map<Streaming<CheckRequest>, fn(Result<CheckRequest, Status>) -> Result<CheckStreamResponse, Status>>;

#[tonic::async_trait]
impl Limiter for Constant {
    type CheckStreamStream = CheckStream;

    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Ok(Response::new(allowed()))
    }

    async fn report(&self, _: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        Err(Status::unimplemented("no benchmark reports"))
    }

    async fn check_stream(&self, asked: Request<Streaming<CheckRequest>>) -> Result<Response<CheckStream>, Status> {
        let answer: fn(_) -> _ = |request: Result<CheckRequest, Status>| {
            request.map(|_| CheckStreamResponse { result: Some(Answer::Response(allowed())) })
        };
        Ok(Response::new(asked.into_inner().map(answer)))
    }
}

fn allowed() -> CheckResponse {
    CheckResponse { allowed: true, remaining: 41, limit: 100, limit_name: "per-seller".into(), ..Default::default() }
}

fn request() -> CheckRequest {
    CheckRequest { actor: "4711".into(), scope: "reports".into(), method: "list".into(), ..Default::default() }
}

/// Runs `work` once for each stream until the time is over, and prints the messages that were answered.
async fn count<F, W>(port: u16, connections: usize, streams: usize, seconds: u64, work: W) -> Result<(), Box<dyn Error>>
where
    F: Future<Output = Result<u64, Status>> + 'static,
    W: Fn(LimiterClient<Channel>, Instant) -> F,
{
    let mut channels = Vec::new();
    for _ in 0..connections {
        channels.push(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.tcp_nodelay(true).connect().await?);
    }
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let local = tokio::task::LocalSet::new();
    let mut workers = JoinSet::new();
    for channel in &channels {
        for _ in 0..streams {
            workers.spawn_local_on(work(LimiterClient::new(channel.clone()), end), &local);
        }
    }
    let answered = local.run_until(workers.join_all()).await.into_iter().sum::<Result<u64, Status>>()?;
    println!("{{\"answered\": {answered}, \"seconds\": {}}}", began.elapsed().as_secs_f64());
    Ok(())
}

/// Makes one call after the other.
async fn calls(mut client: LimiterClient<Channel>, end: Instant) -> Result<u64, Status> {
    let mut answered = 0;
    while Instant::now() < end {
        client.check(request()).await?;
        answered += 1;
    }
    Ok(answered)
}

/// Makes one stream of messages after the other; each stream is sent and read to its end.
async fn messages(mut client: LimiterClient<Channel>, end: Instant) -> Result<u64, Status> {
    let mut answered = 0;
    while Instant::now() < end {
        let sent = tokio_stream::iter(std::iter::repeat_with(request).take(MESSAGES));
        let mut answers = client.check_stream(sent).await?.into_inner();
        let before = answered;
        while answers.message().await?.is_some() {
            answered += 1;
        }
        if answered - before != MESSAGES as u64 {
            return Err(Status::data_loss("a stream ended early"));
        }
    }
    Ok(answered)
}
