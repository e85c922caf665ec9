//! An HTTP/1 connection: requests one after another, each answered before the next one is parsed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Uri;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::receive::{ReceiveError, receive};
use super::relay::{RelayError, Relayed, poll_relay};
use super::wire::head::{HeadBytes, NextRequest};
use super::wire::{Truncation, Wire};
use crate::base::time;
use crate::engine::gate::Bill;
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::{HeadFault, RequestHead};
use crate::transport::net::deadline::Deadline;
use crate::transport::net::lifecycle::{Lifecycle, idle_drained};
use crate::transport::net::peer::Peer;
use crate::transport::proxy::access_record::AccessRecord;
use crate::transport::proxy::admission::RequestState;
use crate::transport::proxy::answer::{ResponseForm, UpstreamResponse};
use crate::transport::proxy::context::{NotForwarded, RequestContext};
use crate::transport::proxy::forward::ForwardedHead;
use crate::transport::proxy::request::Request;
use crate::transport::proxy::running_config::WorkerConfig;
use crate::transport::proxy::tunnel::{self, GaugeGuard, TunnelClient, TunnelEnd, TunnelTimeouts, UpgradedExchange};
use crate::transport::proxy::untaken::Hold;
use crate::transport::proxy::worker::{ListenerKind, Worker};
use crate::transport::upstream::{ConnectionPin, Exchange};

/// Time that Weir reads from a client after its last response.
const LINGER: Duration = Duration::from_secs(2);

/// An accepted connection of a client.
pub(in crate::transport::proxy) struct Accepted<'w> {
    /// The kind of its listener.
    pub(in crate::transport::proxy) kind: ListenerKind,
    pub(in crate::transport::proxy) peer: &'w Peer,
    /// The most requests on it.
    pub(in crate::transport::proxy) max_requests: u32,
}

/// Serves a connection that began at `since`, until it ends. The future captures the connection, because an async
/// function would store its arguments twice.
pub(in crate::transport::proxy) fn serve<'w>(
    worker: &'w Rc<Worker>,
    wire: Wire,
    Accepted { kind, peer, max_requests }: Accepted<'w>,
    since: Instant,
    mut lifecycle: watch::Receiver<Lifecycle>,
) -> impl Future<Output = ()> + use<'w> {
    let (memory, deadline) = (HeadBytes::default(), Deadline::default());
    let mut connection =
        H1Connection { worker, kind, peer, wire, memory, deadline, requests_remaining: max_requests, pin: None };
    let mut timeouts = Rc::clone(&worker.config.current().timeouts);
    async move {
        let (mut idle_since, mut ends) = (since, pin!(idle_drained(&mut lifecycle)));
        let (mut is_registered, mut is_draining, mut has_ended) = (false, false, false);
        loop {
            let next = poll_fn(|cx| {
                let H1Connection { wire, memory, deadline, .. } = &mut connection;
                if let Poll::Ready(next) = wire.poll_next_request(cx, memory, idle_since, &timeouts, deadline) {
                    return Poll::Ready(next);
                }
                // Polled once it wakes this task; polling it each time would cost every request.
                is_draining |= worker.is_draining();
                if !has_ended && (!is_registered || is_draining) {
                    is_registered = true;
                    // Unconstrained: a task without budget would not be registered.
                    has_ended = pin!(unconstrained(ends.as_mut())).poll(cx).is_ready();
                }
                if has_ended && wire.is_input_empty() {
                    return Poll::Ready(NextRequest::Closed);
                }
                Poll::Pending
            });
            let after = match next.await {
                NextRequest::Head(head) => {
                    let config = worker.config.current();
                    if !Rc::ptr_eq(&timeouts, &config.timeouts) {
                        timeouts = Rc::clone(&config.timeouts);
                    }
                    // Boxed: an idle connection is smaller, and a request gets memory that another one has just used.
                    // Written to it, because `Box::pin` would copy a future of some kilobytes.
                    let memory = Box::new_uninit();
                    Box::into_pin(Box::write(memory, connection.serve_request(&config, &head))).await
                }
                NextRequest::Fault(fault) => connection.refuse(fault).await,
                NextRequest::Closed => break,
            };
            match after {
                AfterResponse::Next(since) => {
                    idle_since = since;
                    connection.requests_remaining -= 1;
                }
                AfterResponse::Linger => break,
                AfterResponse::Truncate(end) => return connection.wire.cut(end, LINGER).await,
                AfterResponse::Close => return,
                // Boxed, so that connections without a tunnel are smaller.
                AfterResponse::Tunnel(upgraded) => {
                    let hold = Hold::new(&worker.untaken);
                    return Box::pin(tunnel(connection.wire, *upgraded, TunnelTimeouts::of(&timeouts), hold)).await;
                }
            }
        }
        connection.wire.linger(LINGER).await;
    }
}

/// Runs the tunnel. The rest of the connection is dropped before, because this may take long.
async fn tunnel(wire: Wire, upgraded: UpgradedExchange<'_>, timeouts: TunnelTimeouts, hold: Hold<'_>) {
    let buffers = wire.buffers();
    let (stream, received, unsent) = wire.into_parts();
    let mut client = TunnelClient { stream, received, unsent };
    if tunnel::run(&mut client, upgraded, &buffers, timeouts, hold).await == TunnelEnd::Complete {
        client.stream.discard(LINGER, &buffers).await;
    }
}

/// The state of the connection after a response.
pub(super) enum AfterResponse<'w> {
    /// Another request may follow. The response was complete at about this instant.
    Next(Instant),
    /// Close after the client has stopped sending.
    Linger,
    /// Close so that the client sees that the response is truncated.
    Truncate(Truncation),
    /// Close at once: the client left.
    Close,
    /// Continue as a tunnel.
    Tunnel(Box<UpgradedExchange<'w>>),
}

/// A connection and its current request.
pub(super) struct H1Connection<'w> {
    pub(super) worker: &'w Rc<Worker>,
    kind: ListenerKind,
    peer: &'w Peer,
    pub(super) wire: Wire,
    pub(super) memory: HeadBytes,
    pub(super) deadline: Deadline,
    /// The most requests still to come, with the current one.
    requests_remaining: u32,
    /// The connection to a service that is pinned to this one; none if no request has authenticated a connection.
    pin: Option<Rc<ConnectionPin>>,
}

/// A response whose head was written.
struct BegunResponse<'w> {
    record: AccessRecord<'w>,
    encoder: Encoder,
    /// The unsettled charges.
    bill: Option<Bill>,
    keeps_alive: bool,
    arrived_at: Instant,
}

impl<'w> H1Connection<'w> {
    /// Whether the connection stays open after a response of this form.
    pub(super) fn keeps_alive(&self, form: ResponseForm) -> bool {
        form.keeps_alive && self.requests_remaining > 1 && !self.worker.is_draining()
    }

    /// Serves the request whose head is in `memory`.
    async fn serve_request(&mut self, config: &WorkerConfig, head: &RequestHead) -> AfterResponse<'w> {
        let worker = self.worker;
        let began = time::instant_now();
        let record = AccessRecord::new(&worker.shared, &config.running, began, self.peer);
        let context = RequestContext::new(worker, config, self.peer, began);
        if self.kind == ListenerKind::Checks {
            // Boxed, so that connections of other listeners are smaller.
            return Box::pin(self.check(&context, head, record)).await;
        }
        let mut state = RequestState::new(record);
        let mut exchange = None;
        // Large values are built in place.
        match self.forward(&context, head, &mut state, &mut exchange).await {
            Ok(None) => match (self.begin_response(&context, exchange.as_mut(), state), &mut exchange) {
                (Some(begun), Some(exchange)) => self.relay(exchange, begun).await,
                _ => AfterResponse::Close,
            },
            Ok(Some(protocol)) => self.switch(&context, exchange, state, protocol),
            Err(not_forwarded) => {
                if let Some(exchange) = &exchange {
                    state.record.transferred(exchange.bytes_in(), 0);
                }
                let (form, record) = (state.form, state.end()); // refunds happen before the client sends again
                drop(exchange);
                self.respond(&context, not_forwarded, form, record).await
            }
        }
    }

    /// Answers a refused head.
    async fn refuse(&mut self, fault: HeadFault) -> AfterResponse<'w> {
        let (worker, began) = (self.worker, time::instant_now());
        let config = worker.config.current();
        let record = AccessRecord::new(&worker.shared, &config.running, began, self.peer);
        let context = RequestContext::new(worker, &config, self.peer, began);
        let not_forwarded = context.refuse(fault);
        self.respond(&context, not_forwarded, ResponseForm::unreadable(), record).await
    }

    /// Serves the request up to the head of the response, which is then in `exchange`. Returns the protocol if the
    /// response switches protocols.
    async fn forward<'v>(
        &mut self,
        context: &RequestContext<'v>,
        head: &RequestHead,
        state: &mut RequestState<'_, 'v>,
        exchange: &mut Option<Exchange>,
    ) -> Result<Option<&'v str>, NotForwarded<'v>> {
        let Self { wire, memory, deadline, pin, peer, .. } = self;
        let RequestState { form, record, admission } = state;
        let mut uri = Uri::default();
        let Some(request) = Request::of_h1(head, memory.bytes(), memory.fields(), &mut uri) else {
            return Err(context.refuse(HeadFault::Malformed("target")));
        };
        *form = ResponseForm::of(&request);
        let mut admitted = context.admit(&request, *form, Some(&mut *wire), None, record, admission).await?;
        if admitted.authenticates_connection && peer.client.is_some() {
            pin.get_or_insert_default();
        }
        if pin.is_some() {
            admitted.stale = None; // the connection tells its client, not the request
        }
        admitted.requirements.pin.clone_from(pin);
        let upstream = &admitted.upstream;
        let connected = match admitted.upstream.check_out(&admitted.requirements) {
            Ok(checkout) => Ok(checkout),
            Err(unconnected) => tokio::select! {
                biased;
                connected = record.connected(admitted.upstream.connect(&admitted.requirements, unconnected)) => connected,
                () = wire.gone() => return Err(NotForwarded::Abandoned),
            },
        };
        let received = match connected {
            Ok(checkout) => {
                let head = ForwardedHead { context, request: &request, admitted: &admitted };
                let exchange = exchange.insert(context.begin(checkout, &head, wire));
                record.sent(exchange);
                receive(wire, exchange, *form, &head, (record, admission), deadline).await
            }
            Err(failure) => Err(ReceiveError::Exchange(failure)),
        };
        let in_place = admitted.stale.as_ref().and_then(|stale| {
            let result = match &received {
                Ok(_) => Ok(exchange.as_mut()?),
                Err(ReceiveError::Exchange(failure)) => Err(failure),
                Err(ReceiveError::Gone) => return None,
            };
            context.after_exchange(stale, &request, result, admission)
        });
        wire.give_back(memory);
        match received {
            Ok(protocol) => match (in_place, exchange) {
                (Some(in_place), Some(exchange)) => {
                    Err(context.in_place_of_answer(in_place, exchange, admission, record))
                }
                _ => Ok(protocol),
            },
            Err(ReceiveError::Gone) => Err(NotForwarded::Abandoned),
            Err(ReceiveError::Exchange(failure)) => {
                let endpoint = exchange.as_ref().and_then(Exchange::endpoint);
                let stop = context.failed(&failure, (upstream, endpoint), state);
                Err(match in_place {
                    Some(in_place) => in_place.of(stop),
                    None => stop,
                })
            }
        }
    }

    /// Writes the head of the response. None if there is no response. Not async: `state` would be stored twice.
    fn begin_response(
        &mut self,
        context: &RequestContext<'_>,
        exchange: Option<&mut Exchange>,
        mut state: RequestState<'w, '_>,
    ) -> Option<BegunResponse<'w>> {
        let RequestState { form, ref mut record, ref mut admission } = state;
        let arrived_at = time::instant_now();
        let exchange = exchange?;
        context.measure(exchange, arrived_at, admission.was_held);
        let mut keeps_alive = self.keeps_alive(form);
        let wire = &mut self.wire;
        let mut bill = admission.identified.charged.bill();
        let (head, reason, fields) = exchange.response()?;
        let profiles = context.config.running.settings.profiles;
        let standing = admission.answered(bill.as_mut(), (head.status, fields), exchange.handed_over());
        let (budgets, back) = (admission.budgets(profiles), exchange.locations());
        let upstream = UpstreamResponse { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
        record.begun(head.status, arrived_at);
        keeps_alive &= wire.begin_response();
        let encoder = upstream.write_h1(wire.out(), form, context.date(arrived_at), &mut keeps_alive);
        let meter = bill.as_ref().and_then(|bill| bill.meter(fields, head.length.is_some()));
        exchange.begin_body();
        exchange.meter_body(meter);
        let record = record.take();
        Some(BegunResponse { record, encoder, bill, keeps_alive, arrived_at })
    }

    /// Relays the body of the response.
    async fn relay(&mut self, exchange: &mut Exchange, begun: BegunResponse<'w>) -> AfterResponse<'w> {
        let BegunResponse { record, encoder, bill, keeps_alive, arrived_at } = begun;
        let Self { wire, deadline, worker, .. } = self;
        let mut relayed = Relayed { exchange, bill, record, taken: 0 };
        let (mut waited, mut hold) = (false, Hold::new(&worker.untaken));
        let result = poll_fn(|cx| {
            let polled = poll_relay(cx, wire, &mut relayed, &encoder, deadline);
            waited |= polled.is_pending();
            let Relayed { exchange, taken, .. } = &mut relayed;
            *taken = exchange.body_bytes().saturating_sub(wire.pending() as u64);
            let memory = wire.memory() + exchange.memory();
            if polled.is_pending() && hold.poll(cx, *taken, wire.pending(), memory).is_ready() {
                exchange.give_up_untaken();
                return Poll::Ready(Err(RelayError::Abandoned));
            }
            polled
        });
        let result = result.await;
        let is_until_end = matches!(encoder, Encoder::Raw) && relayed.exchange.remaining().is_none();
        drop(relayed);
        match result {
            Ok(()) => {}
            Err(RelayError::Abandoned) => return AfterResponse::Close,
            Err(RelayError::Truncated) => {
                return AfterResponse::Truncate(if is_until_end { Truncation::Reset } else { Truncation::Closed });
            }
        }
        if !keeps_alive || !(wire.has_read_all() || wire.skip_body()) {
            return AfterResponse::Linger;
        }
        AfterResponse::Next(if waited { time::instant_now() } else { arrived_at })
    }

    /// Writes the 101, and prepares the tunnel.
    fn switch(
        &mut self,
        context: &RequestContext<'_>,
        exchange: Option<Exchange>,
        mut state: RequestState<'w, '_>,
        protocol: &str,
    ) -> AfterResponse<'w> {
        let RequestState { form, ref mut record, ref mut admission } = state;
        let Some(exchange) = exchange else { return AfterResponse::Close };
        let arrived_at = time::instant_now();
        context.measure(&exchange, arrived_at, admission.was_held);
        let mut bill = admission.identified.charged.bill();
        {
            let Some((head, reason, fields)) = exchange.response() else { return AfterResponse::Close };
            let profiles = context.config.running.settings.profiles;
            let standing = admission.answered(bill.as_mut(), (head.status, fields), exchange.handed_over());
            let (budgets, back) = (admission.budgets(profiles), exchange.locations());
            let upstream =
                UpstreamResponse { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
            record.begun(head.status, arrived_at);
            upstream.write_switch(self.wire.out(), form, protocol, context.date(arrived_at));
        }
        let Some((upstream, received)) = exchange.switch() else { return AfterResponse::Close };
        let counted = GaugeGuard::new(&self.worker.shared.metrics.upgraded);
        let record = record.take();
        AfterResponse::Tunnel(Box::new(UpgradedExchange { upstream, received, bill, record, counted }))
    }
}
