//! Requests over HTTP/1: one after another, each answered before the next is looked at.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::super::answer::{self, Asked, Upstream};
use super::super::context::{Life, Stop};
use super::super::lifecycle::{Stage, last_call};
use super::super::passed::Passed;
use super::super::request::{Protocol, Request};
use super::super::tally::Tally;
use super::super::tunnel::{self, Client, Counted, Ended, Patience, Switched};
use super::super::untaken::Hold;
use super::super::upgrade::{self, Upgrade};
use super::super::view::View;
use super::super::worker::Worker;
use super::relay::{Unfinished, poll_relay};
use super::wire::Wire;
use super::wire::close::CutEnd;
use super::wire::head::{HeadBytes, Said};
use crate::http1::encode::Encoder;
use crate::http1::{Head, HeadFault};
use crate::net::deadline::Deadline;
use crate::net::peer::Peer;
use crate::time;
use crate::upstream::{Exchange, ExchangeError, ResponseEvent};

/// How long a client that is still sending is listened to after its last answer.
const LINGER: Duration = Duration::from_secs(2);

/// Serves a connection on which `first` has been read, since `since`, until it ends.
pub(in crate::proxy) async fn serve(
    worker: &Rc<Worker>,
    wire: Wire,
    peer: &Peer,
    since: Instant,
    max_requests: u32,
    mut stage: watch::Receiver<Stage>,
) {
    let (memory, deadline) = (HeadBytes::default(), Deadline::default());
    let mut session = Session { worker, peer, wire, memory, deadline, requests_left: max_requests };
    let mut timeouts = Rc::clone(&worker.views.view().timeouts);
    let (mut idle_since, mut ends) = (since, pin!(last_call(&mut stage)));
    let (mut listens, mut was_called) = (false, false);
    loop {
        let said = poll_fn(|cx| {
            let Session { wire, memory, deadline, .. } = &mut session;
            if let Poll::Ready(said) = wire.poll_said(cx, memory, idle_since, &timeouts, deadline) {
                return Poll::Ready(said);
            }
            // Asked once, it wakes this task: asking every time would cost every request.
            was_called |= worker.is_draining();
            if !listens || was_called {
                listens = true;
                // Unconstrained: a task without budget would not be put among those to be woken.
                let has_ended = pin!(unconstrained(ends.as_mut())).poll(cx).is_ready();
                if has_ended && wire.is_silent() {
                    return Poll::Ready(Said::Nothing);
                }
            }
            Poll::Pending
        });
        let after = match said.await {
            Said::Head(head) => {
                let view = worker.views.view();
                if !Rc::ptr_eq(&timeouts, &view.timeouts) {
                    timeouts = Rc::clone(&view.timeouts);
                }
                session.request(&view, &head).await
            }
            Said::Fault(fault) => session.fault(fault).await,
            Said::Nothing => break,
        };
        match after {
            After::Next(since) => {
                idle_since = since;
                session.requests_left -= 1;
            }
            After::End => break,
            After::Cut(end) => return session.wire.cut(end, LINGER).await,
            After::Break => return,
            // Boxed, so that the usual connection is smaller.
            After::Switch(switched) => {
                return Box::pin(tunnel(session.wire, *switched, Patience::of(&timeouts))).await;
            }
        }
    }
    session.wire.linger(LINGER).await;
}

/// Moves what is no HTTP any more. The rest of the session is gone by then; this may take long.
async fn tunnel(wire: Wire, switched: Switched, patience: Patience) {
    let buffers = wire.buffers();
    let (end, said, owed) = wire.into_parts();
    let mut client = Client { end, said, owed };
    if tunnel::run(&mut client, switched, &buffers, patience).await == Ended::Whole {
        client.end.discard(LINGER, &buffers).await;
    }
}

/// What becomes of the connection.
enum After {
    /// Another request may come; this one was answered at about this instant.
    Next(Instant),
    /// The client may still be sending.
    End,
    /// The response ended too early, and the client must see that.
    Cut(CutEnd),
    /// Nobody is left: closed at once.
    Break,
    /// It speaks another protocol from now on.
    Switch(Box<Switched>),
}

/// A connection and the request in hand.
struct Session<'w> {
    worker: &'w Rc<Worker>,
    peer: &'w Peer,
    wire: Wire,
    memory: HeadBytes,
    deadline: Deadline,
    /// Requests that may still come, the one in hand included.
    requests_left: u32,
}

/// What becomes known of the request in hand.
struct Progress<'w, 'v> {
    asked: Asked,
    tally: Tally<'w>,
    passed: Passed<'v>,
}

impl Session<'_> {
    /// Whether a request that wants it may be followed by another.
    fn keeps_alive(&self, asked: Asked) -> bool {
        asked.keeps_alive && self.requests_left > 1 && !self.worker.is_draining()
    }

    /// Answers the request whose head is in memory.
    async fn request(&mut self, view: &View, head: &Head) -> After {
        let worker = self.worker;
        let began = time::instant_now();
        worker.date.set(worker.shared.gate.clock().at(began));
        let tally = Tally::new(&worker.shared.metrics, view.current.access_log, began, self.peer.ip);
        let life = Life::new(worker, view, self.peer, began);
        let mut progress = Progress { asked: Asked::nothing(), tally, passed: Passed::default() };
        let mut exchange = None;
        // What is large is made where it stays.
        match self.forward(&life, head, &mut progress, &mut exchange).await {
            Ok(None) => self.relay(&life, &mut exchange, progress).await,
            Ok(Some(protocol)) => self.switch(&life, exchange, progress, protocol),
            Err(stop) => {
                let Progress { asked, tally, passed } = progress;
                drop((passed, exchange)); // what is given back is there before the client comes again
                self.stop(&life, stop, asked, tally).await
            }
        }
    }

    /// Answers a head that is refused.
    async fn fault(&mut self, fault: HeadFault) -> After {
        let (worker, began) = (self.worker, time::instant_now());
        worker.date.set(worker.shared.gate.clock().at(began));
        let view = worker.views.view();
        let tally = Tally::new(&worker.shared.metrics, view.current.access_log, began, self.peer.ip);
        let life = Life::new(worker, &view, self.peer, began);
        let stop = life.refuse(fault);
        self.stop(&life, stop, Asked::nothing(), tally).await
    }

    /// From the head of the request to the head of the response, with which it leaves `exchange`. Gives the protocol
    /// if that is an agreement to change it.
    async fn forward<'v>(
        &mut self,
        life: &Life<'v>,
        head: &Head,
        progress: &mut Progress<'_, 'v>,
        exchange: &mut Option<Exchange>,
    ) -> Result<Option<&'v str>, Stop<'v>> {
        let Self { wire, memory, deadline, .. } = self;
        let Progress { asked, tally, passed } = progress;
        let mut uri = Uri::default();
        let Some(request) = Request::of_h1(head, memory.bytes(), memory.fields(), &mut uri) else {
            return Err(life.refuse(HeadFault::Malformed("target")));
        };
        *asked = Asked::by(&request);
        let admitted = life.admit(&request, *asked, Some(&mut *wire), tally, passed).await?;
        let upgrade = admitted.upgrade.as_deref();
        let connected = match admitted.upstream.check_out(&admitted.requirements) {
            Ok(checkout) => Ok(checkout),
            Err(place) => tokio::select! {
                biased;
                connected = tally.connected(admitted.upstream.connect(&admitted.requirements, place)) => connected,
                () = wire.gone() => return Err(Stop::Abandoned),
            },
        };
        let received = match connected {
            Ok(checkout) => {
                let exchange = exchange.insert(life.begin(checkout, &request, &admitted));
                if request.expects_continue() {
                    wire.expect_continue();
                }
                wire.give_back(memory);
                receive(wire, exchange, *asked, upgrade, passed, deadline).await
            }
            Err(failure) => Err(Failed::Exchange(failure)),
        };
        received.map_err(|failed| match failed {
            Failed::Gone => Stop::Abandoned,
            Failed::Exchange(failure) => life.failed(&failure, passed, asked.is_grpc),
        })
    }

    /// Sends the response on.
    async fn relay(&mut self, life: &Life<'_>, exchange: &mut Option<Exchange>, progress: Progress<'_, '_>) -> After {
        let Progress { asked, mut tally, mut passed } = progress;
        let arrived_at = time::instant_now();
        let Some(exchange) = exchange else { return After::Break };
        life.measure(exchange.handed_over(), arrived_at, passed.was_held);
        let mut keeps_alive = self.keeps_alive(asked);
        let Self { wire, deadline, worker, .. } = self;
        let mut bill = passed.identified.charged.bill();
        let encoder = {
            let Some((head, reason, fields)) = exchange.response() else { return After::Break };
            let profiles = life.view.current.settings.profiles;
            let mut standing = passed.standing();
            if let Some(bill) = &mut bill {
                standing = bill.answered(head.status, fields, standing);
            }
            let (budgets, back) = (passed.budgets(profiles), exchange.back());
            let upstream = Upstream { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
            tally.answered(head.status);
            wire.begin_response();
            upstream.write_h1(wire.out(), asked, &worker.date, &mut keeps_alive)
        };
        drop((tally, passed));
        exchange.begin_body();
        let (mut waited, mut hold) = (false, Hold::new(&worker.untaken));
        let relayed = poll_fn(|cx| {
            let polled = poll_relay(cx, wire, exchange, &encoder, deadline);
            waited |= polled.is_pending();
            if polled.is_pending() && hold.poll(cx, exchange.body_bytes(), wire.pending()).is_ready() {
                exchange.give_up_untaken();
                return Poll::Ready(Err(Unfinished::Abandoned));
            }
            polled
        });
        let relayed = relayed.await;
        if let Some(mut bill) = bill {
            bill.sent(exchange.body_bytes());
        }
        match relayed {
            Ok(()) => {}
            Err(Unfinished::Abandoned) => return After::Break,
            Err(Unfinished::Cut) => {
                let is_until_end = matches!(encoder, Encoder::Raw) && exchange.left().is_none();
                return After::Cut(if is_until_end { CutEnd::Reset } else { CutEnd::Closed });
            }
        }
        if !keeps_alive || !(wire.has_read_all() || wire.skip_body()) {
            return After::End;
        }
        After::Next(if waited { time::instant_now() } else { arrived_at })
    }

    /// Sends the agreement to another protocol on, and leaves what follows to a tunnel.
    fn switch(
        &mut self,
        life: &Life<'_>,
        exchange: Option<Exchange>,
        progress: Progress<'_, '_>,
        protocol: &str,
    ) -> After {
        let Progress { asked, mut tally, mut passed } = progress;
        let Some(exchange) = exchange else { return After::Break };
        life.measure(exchange.handed_over(), time::instant_now(), passed.was_held);
        let mut bill = passed.identified.charged.bill();
        {
            let Some((head, reason, fields)) = exchange.response() else { return After::Break };
            let profiles = life.view.current.settings.profiles;
            let mut standing = passed.standing();
            if let Some(bill) = &mut bill {
                standing = bill.answered(head.status, fields, standing);
            }
            let (budgets, back) = (passed.budgets(profiles), exchange.back());
            let upstream = Upstream { head, reason, fields, standing: standing.as_ref(), budgets, profiles, back };
            tally.answered(head.status);
            upstream.write_switch(self.wire.out(), asked, protocol, &self.worker.date);
        }
        let Some((upstream, said)) = exchange.switch() else { return After::Break };
        let counted = Counted::new(&self.worker.shared.metrics.upgraded);
        After::Switch(Box::new(Switched { upstream, said, bill, counted }))
    }

    /// Answers in place of the upstream.
    async fn stop(&mut self, life: &Life<'_>, stop: Stop<'_>, asked: Asked, mut tally: Tally<'_>) -> After {
        let Stop::Answer(own) = stop else { return After::Break };
        let keeps_alive = self.keeps_alive(asked) && !own.closes();
        let Self { wire, memory, deadline, worker, .. } = self;
        wire.give_back(memory);
        let keeps_alive = keeps_alive && wire.skip_body();
        let profiles = life.view.current.settings.profiles;
        answer::write_own_h1(wire.out(), &own, asked, profiles, &worker.date, keeps_alive);
        tally.answered(own.status().as_u16());
        drop(tally);
        let answered_at = life.lately();
        let by = answered_at + life.view.timeouts.body_idle;
        let flushed = poll_fn(|cx| match wire.poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
            Poll::Pending => deadline.poll(cx, by).map(|()| false),
        });
        match (flushed.await, keeps_alive) {
            (false, _) => After::Break,
            (true, true) => After::Next(answered_at),
            (true, false) => After::End,
        }
    }
}

/// Why there is no response.
enum Failed {
    /// The client left.
    Gone,
    Exchange(ExchangeError),
}

/// Sends the request and waits for the head of the response.
async fn receive<'v>(
    wire: &mut Wire,
    exchange: &mut Exchange,
    asked: Asked,
    upgrade: Option<&Upgrade<'v>>,
    passed: &mut Passed<'_>,
    deadline: &mut Deadline,
) -> Result<Option<&'v str>, Failed> {
    loop {
        passed.identified.charged.commit(true);
        let arrived = poll_fn(|cx| {
            let polled = exchange.poll_head(cx, wire, deadline);
            if polled.is_pending() && wire.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Failed::Gone));
            }
            polled.map_err(Failed::Exchange)
        });
        let arrived = arrived.await;
        passed.identified.charged.commit(exchange.is_touched());
        match arrived? {
            ResponseEvent::Final => return Ok(None),
            ResponseEvent::Switch => return upgrade::confirm(upgrade, exchange).map(Some).map_err(Failed::Exchange),
            ResponseEvent::Retry => {
                let reopened = tokio::select! {
                    biased;
                    reopened = exchange.reopen() => reopened,
                    () = wire.gone() => return Err(Failed::Gone),
                };
                reopened.map_err(Failed::Exchange)?;
            }
            ResponseEvent::Interim => write_interim(wire, exchange, asked),
        }
    }
}

/// Passes an interim answer on to those who can read it (RFC 9110, section 15.2). A 100 they get when their body is
/// first asked for. Whoever reads none of them gets no more.
fn write_interim(wire: &mut Wire, exchange: &Exchange, asked: Asked) {
    let Some((head, reason, fields)) = exchange.response() else { return };
    if asked.protocol == Protocol::Http11 && head.status != 100 && !wire.is_full() {
        answer::write_interim(wire.out(), head.status, reason, fields);
        // What is not taken now goes before the answer.
        let _ = wire.poll_flush(&mut Context::from_waker(std::task::Waker::noop()));
    }
}
