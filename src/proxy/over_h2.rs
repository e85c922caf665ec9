//! Requests over HTTP/2, which hyper speaks: each stream is one request, and a task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request as HttpRequest, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::task::spawn_local;

use super::access_record::AccessRecord;
use super::admission::Admission;
use super::answer::{self, ResponseForm, UpstreamResponse};
use super::context::{NotForwarded, RequestContext};
use super::forward::ForwardedHead;
use super::h2::{self, AnswerBody, FrameIo, InFlight, StreamEnd, Streams};
use super::lifecycle::{Lifecycle, draining};
use super::request::{HttpVersion, Request, Target};
use super::service::RoutedRequest;
use super::settings::{Bounds, Settings};
use super::tunnel::{self, GaugeGuard, TunnelClient, TunnelTimeouts, UpgradedExchange};
use super::upgrade::{self, Upgrade};
use super::worker::Worker;
use crate::fields::FieldBuf;
use crate::gate::Bill;
use crate::http1::Underscores;
use crate::http1::encode::Encoder;
use crate::http1::{Framing, HeadFault};
use crate::net::buffer::{Buffer, Buffers, Out};
use crate::net::deadline::Deadline;
use crate::net::peer::Peer;
use crate::net::stream::Stream as ByteStream;
use crate::time;
use crate::upstream::{BodyFault, Exchange, ExchangeError, ResponseEvent, Source, spend};

/// How often a client is asked whether it is still there, and how long it has to say so.
const PING: Duration = Duration::from_secs(20);

/// Streams that their client resets before they are looked at. Beyond, the connection ends.
const RESETS_MAX: usize = 20;
/// Streams that Weir resets because of their client's mistake, of which one more than may be open is the most usual: a
/// client may open many before it knows how many. Beyond, the connection ends.
const ERRORS_MAX: usize = 256;

/// Switching Protocols (RFC 9110, section 15.2.2).
const SWITCHING: u16 = 101;

/// The client left; the stream is reset.
type Abandoned = std::io::Error;

/// Serves a connection on which `first` has been read until it ends.
pub(super) async fn serve(
    worker: Rc<Worker>,
    stream: ByteStream,
    peer: Peer,
    first: Buffer,
    bounds: Bounds,
    mut stage: watch::Receiver<Lifecycle>,
) {
    let streams = Streams::new(bounds.max_requests, &worker.untaken);
    let view = worker.config.current();
    let timeouts = Rc::clone(&view.timeouts);
    let takes_connect = upgrade::takes_connect(&view.running.settings);
    drop(view);
    let io = FrameIo::new(stream, first, timeouts, Rc::clone(&streams), Rc::clone(&worker.buffers));
    let peer_text = peer.text.clone();
    let peer = Rc::new(peer);
    let (counter, metrics) = (Rc::clone(&streams), Arc::clone(&worker.shared.metrics));
    let service = service_fn(move |request: HttpRequest<Incoming>| {
        serve_one(Rc::clone(&worker), Rc::clone(&peer), counter.request(), request)
    });
    let mut builder = http2::Builder::new(Local);
    if takes_connect {
        builder.enable_connect_protocol();
    }
    let connection = builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.max_h2_streams)
        .max_header_list_size(u32::try_from(bounds.max_head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let last = async {
        tokio::select! {
            () = draining(&mut stage) => {}
            () = streams.all_come() => {}
        }
    };
    let served = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = last => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = served => ended,
        () = streams.ended() => return,
        () = streams.flooded() => {
            metrics.abandoned_streams().inc();
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %peer_text, %error, "connection ended");
    }
}

/// A request as it has come.
struct Come {
    method: Method,
    uri: Uri,
    fields: FieldBuf,
    body: StreamBody,
    /// What it becomes if it is to be a tunnel.
    stream: OnUpgrade,
    connect: Option<Box<Upgrade<'static>>>,
    fault: Option<HeadFault>,
}

impl Come {
    /// Many may wait, and this needs less than what hyper has.
    fn of(mut request: HttpRequest<Incoming>, settings: &Settings) -> Self {
        let stream = hyper::upgrade::on(&mut request);
        let (Parts { method, uri, headers, extensions, .. }, body) = request.into_parts();
        let wanted = extensions.get::<hyper::ext::Protocol>();
        let connect = wanted.and_then(|wanted| Upgrade::connect(wanted.as_str(), settings));
        let method = if connect.is_some() { Method::GET } else { method };
        let underscores = settings.bounds.underscores;
        let fields = FieldBuf::of(&headers, |name| underscores.allows(name) == Ok(true));
        let body = StreamBody::new(body, underscores);
        let fault = h2::fault(&method, &uri, &headers, &settings.bounds);
        Self { method, uri, fields, body, stream, connect, fault }
    }
}

/// Answers one request. What is captured has one place; arguments of an async function have two.
fn serve_one(
    worker: Rc<Worker>,
    peer: Rc<Peer>,
    in_flight: InFlight,
    request: HttpRequest<Incoming>,
) -> impl Future<Output = Result<Response<AnswerBody>, Abandoned>> {
    let began = time::instant_now();
    let view = worker.config.current();
    let mut come = Come::of(request, &view.running.settings);
    async move {
        let mut tally = AccessRecord::new(&worker.shared.metrics, view.running.access_log, began, peer.ip);
        let life = RequestContext::new(&worker, &view, &peer, began);
        let settings = &view.running.settings;
        let (version, target, framing) = (HttpVersion::Http2, Target::of(&come.uri), come.body.framing());
        let (method, connect) = (come.method.clone(), come.connect.take());
        let request = Request { version, method, target, fields: come.fields.fields(), framing, connect };
        let asked = if come.fault.is_some() { ResponseForm::unreadable() } else { ResponseForm::of(&request) };
        let mut passed = Admission::default();
        let admitted = match come.fault.take() {
            Some(fault) => Err(life.refuse(fault)),
            None => life.admit(&request, asked, None, &mut tally, &mut passed).await,
        };
        let forwarded = match admitted {
            // Boxed, so that those who wait are smaller.
            Ok(admitted) => {
                Box::pin(forward(&life, &request, &admitted, come.body, asked, &mut tally, &mut passed)).await
            }
            Err(stop) => Err(stop),
        };
        let response = match forwarded {
            Ok(Forwarded::Answer(answer)) => {
                answer.map(|(exchange, body, bill)| AnswerBody::upstream(exchange, body, bill, in_flight.answered()))
            }
            Ok(Forwarded::Tunnel(response, switched)) => {
                let (patience, buffers) = (TunnelTimeouts::of(&view.timeouts), Rc::clone(&worker.buffers));
                let counted = in_flight.another();
                spawn_local(async move {
                    tunnel(come.stream, switched, patience, buffers).await;
                    drop(counted);
                });
                response.map(|()| AnswerBody::own(Bytes::new(), in_flight.answered()))
            }
            Err(NotForwarded::Answer(own)) => {
                let response = answer::write_own_h2(&own, asked, settings.profiles);
                response.map(|bytes| AnswerBody::own(Bytes::from(bytes), in_flight.answered()))
            }
            Err(NotForwarded::Abandoned) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
        };
        tally.answered(response.status().as_u16());
        Ok(response)
    }
}

/// What has come of a request.
#[expect(clippy::large_enum_variant, reason = "nearly all are answers")]
enum Forwarded {
    /// The head of its answer, and where the rest comes from.
    Answer(Response<(Exchange, StreamBody, Option<Bill>)>),
    /// The stream is a tunnel from now on.
    Tunnel(Response<()>, Box<UpgradedExchange>),
}

/// Moves what is no HTTP any more, once the answer has gone out.
async fn tunnel(stream: OnUpgrade, switched: Box<UpgradedExchange>, patience: TunnelTimeouts, buffers: Rc<Buffers>) {
    match stream.await {
        Ok(stream) => {
            let mut client =
                TunnelClient { stream: StreamEnd::new(stream), received: Buffer::default(), unsent: Out::default() };
            tunnel::run(&mut client, *switched, &buffers, patience).await;
        }
        Err(error) => tracing::debug!(%error, "the client left before its stream became a tunnel"),
    }
}

/// From the admission of a request to the head of its response.
async fn forward<'v>(
    life: &RequestContext<'v>,
    request: &Request<'_>,
    admitted: &RoutedRequest<'_, 'v>,
    mut body: StreamBody,
    asked: ResponseForm,
    tally: &mut AccessRecord<'_>,
    passed: &mut Admission<'v>,
) -> Result<Forwarded, NotForwarded<'v>> {
    let connected = match admitted.upstream.check_out(&admitted.requirements) {
        Ok(checkout) => Ok(checkout),
        Err(place) => tally.connected(admitted.upstream.connect(&admitted.requirements, place)).await,
    };
    let received = match connected {
        Ok(checkout) => {
            let head = life.head(request, admitted);
            receive(life.begin(checkout, &head, admitted), &mut body, &head, passed).await
        }
        Err(failure) => Err(failure),
    };
    let mut exchange = received.map_err(|failure| life.failed(&failure, passed, asked.is_grpc))?;
    life.measure(exchange.handed_over(), time::instant_now(), passed.was_held);
    let Some((head, reason, fields)) = exchange.response() else { return Err(NotForwarded::Abandoned) };
    let (mut standing, profiles) = (passed.standing(), life.config.running.settings.profiles);
    let mut bill = passed.identified.charged.bill();
    if let Some(bill) = &mut bill {
        standing = bill.answered(head.status, fields, standing);
    }
    let (budgets, back) = (passed.budgets(profiles), exchange.locations());
    let upstream = UpstreamResponse { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
    if head.status == SWITCHING {
        let response = upstream.write_tunnel((), asked);
        let Some((upstream, received)) = exchange.switch() else { return Err(NotForwarded::Abandoned) };
        let counted = GaugeGuard::new(&life.worker.shared.metrics.upgraded);
        let switched = UpgradedExchange { upstream, received, bill, counted };
        return Ok(Forwarded::Tunnel(response, Box::new(switched)));
    }
    let response = upstream.write_h2((), asked);
    exchange.begin_body();
    Ok(Forwarded::Answer(response.map(|()| (exchange, body, bill))))
}

/// Sends the request and waits for the head of the response. Interim answers end here: hyper cannot send them.
async fn receive(
    mut exchange: Exchange,
    body: &mut StreamBody,
    head: &ForwardedHead<'_, '_>,
    passed: &mut Admission<'_>,
) -> Result<Exchange, ExchangeError> {
    let mut deadline = Deadline::default();
    loop {
        passed.identified.charged.commit(true);
        let arrived = poll_fn(|cx| exchange.poll_head(cx, body, &mut deadline)).await;
        passed.identified.charged.commit(exchange.is_touched());
        match arrived? {
            // To whoever sent a CONNECT, any 2xx means that there is a tunnel.
            ResponseEvent::Final if head.upgrade.is_some() && exchange.has_succeeded() => {
                return Err(ExchangeError::Ignored);
            }
            ResponseEvent::Final => return Ok(exchange),
            ResponseEvent::Retry => exchange.reopen(head).await?,
            ResponseEvent::Interim => {}
            ResponseEvent::Switch => return upgrade::confirm(head.upgrade, &exchange).map(|_| exchange),
        }
    }
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct StreamBody {
    /// None once it has ended.
    body: Option<Incoming>,
    /// What came after it. Boxed, because hardly any has them and many requests wait.
    trailers: Option<Box<FieldBuf>>,
    underscores: Underscores,
}

impl StreamBody {
    fn new(body: Incoming, underscores: Underscores) -> Self {
        Self { body: Some(body).filter(|body| !body.is_end_stream()), trailers: None, underscores }
    }

    /// How it is sent on.
    fn framing(&self) -> Framing {
        match &self.body {
            None => Framing::Length(0),
            Some(body) => body.size_hint().exact().map_or(Framing::Chunked, Framing::Length),
        }
    }
}

impl Source for StreamBody {
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        left: &mut u64,
    ) -> Poll<Result<bool, BodyFault>> {
        loop {
            let Some(body) = &mut self.body else {
                encoder.end(out, None);
                return Poll::Ready(Ok(false));
            };
            match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        spend(left, data.len())?;
                        encoder.data(out, &data);
                        return Poll::Ready(Ok(true));
                    }
                    Err(frame) => {
                        self.body = None;
                        if let Some(trailers) = frame.trailers_ref() {
                            let underscores = self.underscores;
                            if trailers.keys().any(|name| underscores.allows(name.as_str().as_bytes()).is_err()) {
                                return Poll::Ready(Err(BodyFault::Broken));
                            }
                            let fields = FieldBuf::of(trailers, |name| underscores.allows(name) == Ok(true));
                            self.trailers = Some(Box::new(fields));
                        }
                        encoder.end(out, self.trailers());
                        return Poll::Ready(Ok(false));
                    }
                },
                Some(Err(_)) => return Poll::Ready(Err(BodyFault::Broken)),
                None => self.body = None,
            }
        }
    }

    fn trailers(&self) -> Option<&FieldBuf> {
        self.trailers.as_deref()
    }
}

/// Runs the tasks of streams on their worker.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}
