//! One request over HTTP/2, from its head to the end of its response: the task of a stream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::time::Instant;

use super::super::access_record::AccessRecord;
use super::super::admission::RequestState;
use super::super::answer::{ResponseForm, UpstreamResponse, write_interim_h2};
use super::super::context::{NotForwarded, RequestContext};
use super::super::forward::ForwardedHead;
use super::super::request::Request;
use super::super::service::RoutedRequest;
use super::super::settings::Settings;
use super::super::stale::InPlace;
use super::super::tunnel::{self, GaugeGuard, TunnelClient, TunnelTimeouts, UpgradedExchange};
use super::super::untaken::Hold;
use super::super::upgrade;
use super::super::worker::Worker;
use super::answer;
use super::body::StreamBody;
use super::link::StreamHandle;
use super::relay::{Answered, Relay};
use super::request;
use super::stored;
use super::tunnel::StreamEnd;
use crate::base::time;
use crate::transport::http1::HeadFault;
use crate::transport::http2::{ErrorCode, Head};
use crate::transport::net::buffer::{InputBuffer, OutputBuffer};
use crate::transport::net::deadline::Deadline;
use crate::transport::net::peer::Peer;
use crate::transport::respond::{HeaderSink, StoredReply};
use crate::transport::upstream::{Endpoints, Exchange, ExchangeError, ResponseEvent};

/// Switching Protocols (RFC 9110, section 15.2.2).
const SWITCHING: u16 = 101;
const OK: u16 = 200;

/// The head of a request, as the connection read it.
pub(super) struct Incoming {
    pub(super) head: Head,
    /// Whether the request has no body.
    pub(super) has_ended: bool,
    pub(super) began: Instant,
}

/// Answers one request. Ends early if the client resets the stream.
#[expect(clippy::manual_async_fn, reason = "arguments of an async function have two places")]
pub(super) fn serve(
    worker: Rc<Worker>,
    peer: Rc<Peer>,
    stream: StreamHandle,
    mut incoming: Incoming,
) -> impl Future<Output = ()> {
    async move {
        let mut served = pin!(request(&worker, &peer, &stream, &mut incoming));
        poll_fn(|cx| match stream.poll_gone(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => served.as_mut().poll(cx),
        })
        .await;
    }
}

/// A request on its stream.
struct Course<'s, 'v> {
    stream: &'s StreamHandle,
    state: RequestState<'s, 'v>,
}

async fn request(worker: &Worker, peer: &Peer, stream: &StreamHandle, incoming: &mut Incoming) {
    let view = worker.config.current();
    let settings = &view.running.settings;
    let record = AccessRecord::new(&worker.shared, &view.running, incoming.began, peer);
    let context = RequestContext::new(worker, &view, peer, incoming.began);
    let mut course = Course { stream, state: RequestState::new(record) };
    let is_malformed = incoming.head.fault.is_some();
    // In one statement: a variable of its own would stay in the task of a held request.
    let (request, head_memory) = match read(incoming, settings) {
        Ok(read) => read,
        Err(fault) => {
            let body = own(&context, course, context.refuse(fault));
            incoming.head = Head::default(); // the client may leave the answer for long
            send_own(&context, stream, &body).await;
            if is_malformed {
                stream.reset(ErrorCode::Protocol);
            }
            return;
        }
    };
    course.state.form = ResponseForm::of(&request);
    let RequestState { form, record, admission } = &mut course.state;
    let mut body = StreamBody::new(stream, settings.bounds.underscores);
    let (course, stop) = match context.admit(&request, *form, None, Some(&mut body), record, admission).await {
        // Boxed, so that the task of a held request is small.
        Ok(admitted) => match Box::pin(forward(&context, &request, &admitted, course, (body, head_memory))).await {
            Some(unanswered) => unanswered,
            None => return,
        },
        Err(stop) => (course, stop),
    };
    drop(request);
    incoming.head = Head::default();
    if let NotForwarded::Stored(stored) = stop {
        return Box::pin(send_stored(&context, course, stored)).await;
    }
    let reply = own(&context, course, stop);
    send_own(&context, stream, &reply).await;
}

/// The request of a head, and the bytes of memory that the head takes.
fn read<'i>(incoming: &'i mut Incoming, settings: &Settings) -> Result<(Request<'i>, usize), HeadFault> {
    request::check(&mut incoming.head, settings)?;
    let request = request::request(&incoming.head, incoming.has_ended, settings);
    Ok((request.ok_or(HeadFault::Malformed("host"))?, incoming.head.memory()))
}

/// Writes the head of a response of Weir itself. Returns the body to send; it is empty if there is none.
fn own(context: &RequestContext<'_>, course: Course<'_, '_>, stop: NotForwarded<'_>) -> Vec<u8> {
    let Course { stream, state } = course;
    let (form, mut record) = (state.form, state.end()); // refunds come first: the client may ask again at once
    let (profiles, date) = (context.config.running.settings.profiles, context.date(context.lately()));
    match stop {
        NotForwarded::Reply(mut own) => {
            context.name(&mut own, &mut record);
            let body = answer::write_own(stream, &*own, form, profiles, date);
            record.replied(&*own, body.len());
            body
        }
        NotForwarded::OwnLimits(own) => {
            let body = answer::write_own(stream, &*own, form, profiles, date);
            record.replied(&*own, body.len());
            body
        }
        NotForwarded::Stored(_) | NotForwarded::Abandoned => Vec::new(),
    }
}

/// Sends a stored answer.
async fn send_stored(context: &RequestContext<'_>, course: Course<'_, '_>, mut stored: Box<StoredReply<'_>>) {
    let Course { stream, state } = course;
    let (form, mut record) = (state.form, state.end()); // refunds come first: the client may ask again at once
    context.name_stored(&mut stored, &mut record);
    stored::send(context, stream, &stored, form, record).await;
}

/// Sends the body of a response of Weir itself.
async fn send_own(context: &RequestContext<'_>, stream: &StreamHandle, body: &[u8]) {
    if !body.is_empty() {
        let by = context.lately() + context.config.timeouts.body_idle;
        answer::send_own(stream, body, &mut Hold::of_stream(&context.worker.untaken, 0), by).await;
    }
}

/// A request that is to be answered without its service.
type Unanswered<'s, 'v> = (Course<'s, 'v>, NotForwarded<'v>);

/// Forwards an admitted request, and returns the response to the client, unless there is none.
#[expect(clippy::manual_async_fn, reason = "arguments of an async function have two places")]
fn forward<'f, 's, 'v>(
    context: &'f RequestContext<'v>,
    request: &'f Request<'_>,
    admitted: &'f RoutedRequest<'_, 'v>,
    mut course: Course<'s, 'v>,
    (mut body, head_memory): (StreamBody<'s>, usize),
) -> impl Future<Output = Option<Unanswered<'s, 'v>>> {
    async move {
        let stream = course.stream;
        let mut received = receive(context, request, admitted, &mut course, &mut body).await;
        let in_place = admitted.stale.as_ref().and_then(|stale| {
            let result = received.as_mut().map_err(|failed| &failed.error);
            context.after_exchange(stale, request, result, &course.state.admission)
        });
        if let Some(in_place) = in_place {
            let stop = instead(context, in_place, received, &mut course.state, &admitted.upstream);
            return Some((course, stop));
        }
        let answered = match received {
            Ok(exchange) => respond(context, exchange, course)?,
            Err(FailedExchange { error, endpoint }) => {
                let stop = context.failed(&error, (&admitted.upstream, endpoint.as_deref()), &mut course.state);
                return Some((course, stop));
            }
        };
        let hold = Hold::of_stream(&context.worker.untaken, head_memory);
        if answered.is_tunnel {
            Box::pin(tunnel(context, stream, answered, hold)).await;
        } else {
            let mut relay = Relay::new(stream, answered, body, hold);
            poll_fn(|cx| relay.poll(cx)).await;
        }
        None
    }
}

/// Sends the request and waits for the head of the response.
async fn receive<'v>(
    context: &RequestContext<'v>,
    request: &Request<'_>,
    admitted: &RoutedRequest<'_, 'v>,
    course: &mut Course<'_, 'v>,
    body: &mut StreamBody<'_>,
) -> Result<Exchange, FailedExchange> {
    let Course { stream, state: RequestState { record, admission, .. } } = course;
    let checkout = match admitted.upstream.check_out(&admitted.requirements) {
        Ok(checkout) => checkout,
        Err(unconnected) => {
            let connected = record.connected(admitted.upstream.connect(&admitted.requirements, unconnected)).await;
            connected.map_err(|error| FailedExchange { error, endpoint: None })?
        }
    };
    let head = ForwardedHead { context, request, admitted };
    let mut exchange = context.begin(checkout, &head, body);
    record.sent(&exchange);
    let mut deadline = Deadline::default();
    loop {
        admission.identified.charged.commit(true);
        let arrived = poll_fn(|cx| exchange.poll_head(cx, body, &mut deadline)).await;
        admission.identified.charged.commit(exchange.is_touched());
        let outcome = match arrived {
            // A client that sent CONNECT takes any 2xx for a tunnel.
            Ok(ResponseEvent::Final) if admitted.upgrade.is_some() && exchange.has_succeeded() => {
                Err(ExchangeError::Ignored)
            }
            Ok(ResponseEvent::Final) => return Ok(exchange),
            Ok(ResponseEvent::Retry) => exchange.reopen(&head).await.map(|()| record.sent(&exchange)),
            Ok(ResponseEvent::Interim) => {
                interim(stream, &exchange);
                Ok(())
            }
            Ok(ResponseEvent::Switch) => match upgrade::confirm(admitted.upgrade.as_deref(), &exchange) {
                Ok(_) => return Ok(exchange),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            record.transferred(exchange.bytes_in(), 0);
            return Err(FailedExchange { error, endpoint: exchange.endpoint().map(Box::from) });
        }
    }
}

/// An exchange without a response.
struct FailedExchange {
    error: ExchangeError,
    /// The endpoint that had the request; none if no connection was made.
    endpoint: Option<Box<str>>,
}

/// Forwards an interim response (RFC 9110, section 15.2), unless the client's window is full. `StreamBody` writes the 100
/// itself, when the service first needs the body.
fn interim(stream: &StreamHandle, exchange: &Exchange) {
    let Some((head, _, fields)) = exchange.response() else { return };
    if head.status != 100 && stream.state().capacity() > 0 {
        stream.write_head(head.status, false, |block| write_interim_h2(block, fields));
    }
}

/// The reply with a stored answer in place of what was received.
fn instead<'v>(
    context: &RequestContext<'v>,
    in_place: InPlace,
    received: Result<Exchange, FailedExchange>,
    state: &mut RequestState<'_, 'v>,
    upstream: &Endpoints,
) -> NotForwarded<'v> {
    match received {
        Ok(mut exchange) => {
            context.in_place_of_answer(in_place, &mut exchange, &mut state.admission, &mut state.record)
        }
        Err(FailedExchange { error, endpoint }) => {
            in_place.of(context.failed(&error, (upstream, endpoint.as_deref()), state))
        }
    }
}

/// Writes the head of the response. None if the response has ended.
fn respond<'s, 'v>(
    context: &RequestContext<'v>,
    mut exchange: Exchange,
    course: Course<'s, 'v>,
) -> Option<Answered<'s>> {
    let Course { stream, mut state } = course;
    let RequestState { form, ref mut record, ref mut admission } = state;
    let arrived_at = time::instant_now();
    context.measure(&exchange, arrived_at, admission.was_held);
    let mut bill = admission.identified.charged.bill();
    let (head, reason, fields) = exchange.response()?;
    let standing = admission.answered(bill.as_mut(), (head.status, fields), exchange.handed_over());
    let profiles = context.config.running.settings.profiles;
    let (budgets, back) = (admission.budgets(profiles), exchange.locations());
    let upstream = UpstreamResponse { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
    let is_tunnel = head.status == SWITCHING;
    let status = if is_tunnel { OK } else { head.status };
    let has_ended = !is_tunnel && exchange.has_ended();
    record.begun(status, arrived_at);
    stream.write_head(status, has_ended, |block| {
        upstream.write_h2(block, is_tunnel);
        if !fields.contains("date") {
            context.date(arrived_at).with_value(|date| block.put("date", date));
        }
        upstream.write_limits(form, block);
    });
    if !is_tunnel {
        let meter = bill.as_ref().and_then(|bill| bill.meter(fields, head.length.is_some()));
        exchange.begin_body();
        exchange.meter_body(meter);
    }
    record.transferred(exchange.bytes_in(), 0);
    if is_tunnel || !exchange.has_ended() {
        return Some(Answered { record: record.take(), exchange, bill, is_tunnel });
    }
    if let Some(bill) = &mut bill {
        bill.end(0, None, record.for_gate());
    }
    None
}

/// Relays the bytes of an upgraded stream in both directions.
async fn tunnel(context: &RequestContext<'_>, stream: &StreamHandle, answered: Answered<'_>, hold: Hold<'_>) {
    let Answered { record, exchange, bill, .. } = answered;
    let Some((upstream, received)) = exchange.switch() else { return };
    let counted = GaugeGuard::new(&context.worker.shared.metrics.upgraded);
    let switched = UpgradedExchange { upstream, received, bill, record, counted };
    let mut client =
        TunnelClient { stream: StreamEnd(stream), received: InputBuffer::default(), unsent: OutputBuffer::default() };
    tunnel::run(&mut client, switched, stream.buffers(), TunnelTimeouts::of(&context.config.timeouts), hold).await;
}
