//! The life of a request, one phase per line.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use http::{Method, Request, Response, Version, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body::{AnswerBody, RequestBody};
use super::error::{self, Abandoned};
use super::forward::{self, Sender};
use super::tally::Tally;
use super::upstream::{Exchanged, UpstreamBody, exchange};
use super::view::View;
use super::wire::Wire;
use super::worker::Worker;
use super::{h2, hop, host, interim};
use crate::gate::{Charged, Pass, Refusal, Standing, Step, Waiting};
use crate::policy::client_ip::unmap;
use crate::policy::{Facts, Stage, path};
use crate::respond::{self, Kind, Problem, Verdict};
use crate::telemetry::Outcome;
use crate::time::{self, Timestamp};

/// A request that is not forwarded: with an answer, or without because nobody is left to read it.
enum Stop {
    Answer(Box<Response<Bytes>>),
    Abandoned,
}

impl From<Response<Bytes>> for Stop {
    fn from(response: Response<Bytes>) -> Self {
        Self::Answer(Box::new(response))
    }
}

/// Answers one request. Everything of it that is kept across waits is in the future once, because hyper moves
/// the future about.
pub(super) fn serve(
    worker: Rc<Worker>,
    wire: Rc<Wire>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<AnswerBody>, Abandoned>> {
    let began = time::instant_now();
    let (ordinal, in_flight) = wire.begin();
    let view = worker.views.view();
    let mut request = Some(request.map(RequestBody::new));
    async move {
        let peer = unmap(wire.peer.ip());
        let mut tally = Tally::new(&worker.shared.metrics, view.current.access_log, began, peer);
        let life = Life { worker: &worker, view: &view, wire: &wire, began, peer };
        let is_head = request.as_ref().is_some_and(|request| *request.method() == Method::HEAD);
        let has_origin = request.as_ref().is_some_and(|request| request.headers().contains_key(header::ORIGIN));
        let mut response = match life.run(ordinal, &mut request, &mut tally).await {
            Ok(response) => response.map(|body| AnswerBody::upstream(body, in_flight)),
            Err(Stop::Answer(response)) => {
                let (parts, bytes) = own(*response, is_head, &wire).into_parts();
                Response::from_parts(parts, AnswerBody::own(bytes, in_flight))
            }
            Err(Stop::Abandoned) => return Err(Abandoned),
        };
        if has_origin {
            respond::expose(response.headers_mut(), view.current.settings.profiles);
        }
        tally.answered(response.status());
        Ok(response)
    }
}

/// What all phases of a request go by.
struct Life<'v> {
    worker: &'v Worker,
    view: &'v View,
    wire: &'v Wire,
    began: Instant,
    /// The address of the other end, IPv4 if it is one.
    peer: IpAddr,
}

impl<'v> Life<'v> {
    /// The request is taken when it is sent.
    async fn run(
        &self,
        ordinal: u64,
        slot: &mut Option<Request<RequestBody>>,
        tally: &mut Tally<'_>,
    ) -> Result<Response<UpstreamBody>, Stop> {
        let Some(request) = slot.as_mut() else { return Err(Stop::Abandoned) };
        tally.asked(request.method(), request.uri());
        self.refuse_malformed(ordinal, request)?;
        let is_grpc = respond::is_grpc(request.method(), request.headers());
        let uri = request.uri();
        let path = path::normalise(uri.path()).map_err(|error| self.stop(Kind::BadPath, error.to_string()))?;
        let authority = host::authority(request).map_err(|detail| self.stop(Kind::BadHost, detail))?;
        let client_ip = &self.view.current.live.policy.client_ip;
        let facts = Facts {
            method: request.method(),
            host: &host::host(authority),
            path: &path,
            query: uri.query(),
            headers: request.headers(),
            client_ip: client_ip.client_ip(self.peer, request.headers()),
        };
        tally.identified(facts.client_ip, facts.host, facts.path);
        let passed = self.admit(&facts, is_grpc, tally).await?;
        let unfit = |error: http::Error| self.stop(Kind::BadPath, error.to_string());
        let target = forward::target(uri, &path).map_err(unfit)?;
        interim::listen(request, self.wire.interim());
        let is_trusted = client_ip.is_trusted(self.peer);
        let sender = Sender { peer: self.peer, peer_text: &self.wire.peer_text, is_trusted };
        forward::prepare(request, target, &sender, &self.view.current.settings).map_err(unfit)?;
        self.forward(slot, passed, is_grpc).await
    }

    /// What no policy needs to look at.
    fn refuse_malformed(&self, ordinal: u64, request: &Request<RequestBody>) -> Result<(), Stop> {
        let bounds = &self.view.current.settings.bounds;
        let fault = if self.wire.is_h1() { self.wire.fault(ordinal) } else { h2::fault(request, bounds) };
        if let Some(fault) = fault {
            let (kind, detail) = error::head_fault(fault);
            return Err(self.stop(kind, detail));
        }
        if *request.method() == Method::CONNECT {
            return Err(self.stop(Kind::MethodRefused, "this is no tunnel"));
        }
        Ok(())
    }

    /// Both stages, one after the other.
    async fn admit(&self, facts: &Facts<'_>, is_grpc: bool, tally: &mut Tally<'_>) -> Result<Passed<'v>, Stop> {
        let clock = self.worker.shared.gate.clock();
        let now = clock.at(self.began);
        let mut arrival = self.pass(Stage::Arrival, facts, is_grpc, now, tally).await?;
        arrival.charged.keep(true); // it has arrived, whatever becomes of it
        let now = if arrival.held.is_some() { clock.now() } else { now };
        let identified = self.pass(Stage::Identified, facts, is_grpc, now, tally).await?;
        let was_held = arrival.held.is_some() || identified.held.is_some();
        tally.outcome = if was_held { Outcome::Held } else { Outcome::Forwarded };
        Ok(Passed { arrival: arrival.standing, identified: identified.standing, charged: identified.charged, was_held })
    }

    /// Decides one stage, and waits if it must.
    async fn pass(
        &self,
        stage: Stage,
        facts: &Facts<'_>,
        is_grpc: bool,
        now: Timestamp,
        tally: &mut Tally<'_>,
    ) -> Result<Pass<'v>, Stop> {
        let gate = &self.worker.shared.gate;
        let passed = match gate.admit(&self.view.current.live, stage, facts, || head_bytes(facts), now) {
            Ok(Step::Pass(pass)) => return Ok(pass),
            Ok(Step::Refuse(refusal)) => Err(*refusal),
            Ok(Step::Wait(waiting)) => {
                tally.outcome = Outcome::Abandoned;
                tally.waits(waiting.held_by());
                let passed = Box::pin(self.wait(*waiting)).await?; // boxed, so that those who need not wait are smaller
                tally.waited();
                passed
            }
            Err(missing) => {
                self.count(Kind::Unidentified);
                return Err(Stop::from(respond::unidentified(&missing, is_grpc)));
            }
        };
        match passed {
            Ok(pass) => Ok(pass),
            Err(refusal) => {
                tally.outcome = Outcome::Rejected;
                tally.limited(refusal.violated.first().unwrap_or(&""));
                Err(Stop::from(respond::refusal(&refusal, self.view.current.settings.profiles, is_grpc)))
            }
        }
    }

    /// Waits until the request passes, is refused after all, or has nobody left to answer. A client on HTTP/2
    /// that leaves takes this future with it.
    async fn wait(&self, waiting: Waiting<'v>) -> Result<Result<Pass<'v>, Refusal<'v>>, Stop> {
        if !self.wire.is_h1() {
            return Ok(waiting.wait().await);
        }
        tokio::select! {
            biased;
            passed = waiting.wait() => Ok(passed),
            () = self.wire.gone() => Err(Stop::Abandoned),
        }
    }

    /// Sends the request on and takes the head of the response.
    async fn forward(
        &self,
        slot: &mut Option<Request<RequestBody>>,
        mut passed: Passed<'v>,
        is_grpc: bool,
    ) -> Result<Response<UpstreamBody>, Stop> {
        let settings = &self.view.current.settings;
        let exchanged = {
            let mut exchange = pin!(exchange(&self.view.pool, slot, &settings.timeouts, &mut passed.charged));
            poll_fn(|cx| {
                let polled = exchange.as_mut().poll(cx);
                self.wire.write_interim();
                polled
            })
            .await
        };
        let standing = passed.standing();
        match exchanged {
            Ok(Exchanged { mut response, handed_over }) => {
                self.measure(handed_over, passed.was_held);
                self.wire.answer_by(settings.timeouts.total.map(|total| handed_over + total));
                *response.version_mut() = Version::HTTP_11;
                hop::strip(response.headers_mut());
                if let Some(standing) = standing {
                    respond::limit_headers(response.headers_mut(), settings.profiles, &standing, Verdict::Passed);
                }
                Ok(response)
            }
            Err(failure) => {
                let (kind, detail) = error::exchange_error(&failure, &self.worker.problems);
                self.count(kind);
                let mut response = Problem::new(kind, detail).into_response(is_grpc);
                if let Some(standing) = standing {
                    respond::limit_headers(response.headers_mut(), settings.profiles, &standing, Verdict::Passed);
                }
                Err(response.into())
            }
        }
    }

    fn measure(&self, handed_over: Instant, was_held: bool) {
        let metrics = &self.worker.shared.metrics;
        if !was_held {
            metrics.overhead.observe(handed_over.saturating_duration_since(self.began));
        }
        metrics.upstream_duration.observe(time::instant_now().saturating_duration_since(handed_over));
    }

    /// An answer to someone of whom nothing is known yet, not even that they speak gRPC.
    fn stop(&self, kind: Kind, detail: impl Into<Cow<'static, str>>) -> Stop {
        self.count(kind);
        Problem::new(kind, detail).into_response(false).into()
    }

    fn count(&self, kind: Kind) {
        self.worker.shared.metrics.problems.with_label_values(&[kind.label()]).inc();
    }
}

/// A request that may be forwarded.
struct Passed<'l> {
    arrival: Option<Standing<'l>>,
    identified: Option<Standing<'l>>,
    charged: Charged<'l>,
    was_held: bool,
}

impl<'l> Passed<'l> {
    /// The tightest limit of both stages, as it is after a refund if there will be one.
    fn standing(&self) -> Option<Standing<'l>> {
        let is_kept = self.charged.is_kept();
        let identified = self.identified.map(|standing| if is_kept { standing } else { standing.refunded() });
        Standing::tightest(self.arrival, identified)
    }
}

/// An answer of our own as this client can read it.
fn own(mut response: Response<Bytes>, is_head: bool, wire: &Wire) -> Response<Bytes> {
    if !wire.is_h1() {
        response.headers_mut().remove(header::CONNECTION); // RFC 9113, section 8.2.2
    }
    if is_head {
        let len = response.body().len();
        response.headers_mut().insert(header::CONTENT_LENGTH, len.into());
        *response.body_mut() = Bytes::new();
    }
    response
}

/// What a waiting request keeps in memory of its head, about.
fn head_bytes(facts: &Facts<'_>) -> usize {
    let headers: usize = facts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    facts.path.len() + facts.query.map_or(0, str::len) + headers
}
