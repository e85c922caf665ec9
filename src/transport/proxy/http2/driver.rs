//! The task of a connection: bytes in, events to the streams, and their frames out.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::super::untaken::Hold;
use super::link::{Link, LinkState};
use crate::base::time;
use crate::transport::http2::{Connection, Event, Fatal, Head, Key};
use crate::transport::net::Timeouts;
use crate::transport::net::buffer::{InputBuffer, PENDING_MAX};
use crate::transport::net::deadline::Deadline;
use crate::transport::net::stream::Stream;

/// How often a client is asked whether it is still there, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);

/// Bytes that are read before the streams have their turn. What came is then passed on from the caches of the processor.
const TURN: usize = 64 * 1024;

/// How long a client may take to answer the PING of the end, and for the last frames, and how long it is listened to after
/// them.
const LINGER: Duration = Duration::from_secs(2);

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Everything was served, and nothing more is.
    Done,
    /// No request came in time.
    Idle,
    /// The peer broke a rule.
    Fatal(Fatal),
    /// The socket is of no use any more.
    Broken,
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// The client knows that the end is near; requests that are on their way are served.
    Announced,
    /// The client knows which request was the last one.
    Final,
}

/// Deadlines of a connection, and since when what they bound goes on.
#[derive(Debug, Default)]
struct Clocks {
    /// No stream has an owner.
    idle_since: Option<Instant>,
    /// A frame that is not whole.
    partial_since: Option<Instant>,
    /// The socket takes nothing.
    blocked_since: Option<Instant>,
    /// When to look whether the client says anything.
    ping_at: Option<Instant>,
    /// When the announced end comes, whatever the client says.
    end_at: Option<Instant>,
    idle: Deadline,
    partial: Deadline,
    blocked: Deadline,
    ping: Deadline,
    end: Deadline,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Driver<'w> {
    stream: Stream,
    input: InputBuffer,
    link: Rc<Link>,
    timeouts: Rc<Timeouts>,
    /// Requests that may still come.
    remaining_requests: u32,
    closing: Closing,
    /// The client opens no more streams.
    is_leaving: bool,
    /// Something came since the last look.
    has_read: bool,
    is_pinged: bool,
    clocks: Clocks,
    hold: Hold<'w>,
}

impl<'w> Driver<'w> {
    /// Drives a connection on which `input` has been read.
    pub(super) fn new(
        stream: Stream,
        input: InputBuffer,
        link: Rc<Link>,
        timeouts: Rc<Timeouts>,
        max_requests: u32,
        hold: Hold<'w>,
    ) -> Self {
        stream.socket().bound_unsent();
        Self {
            stream,
            input,
            link,
            timeouts,
            remaining_requests: max_requests,
            closing: Closing::No,
            is_leaving: false,
            has_read: false,
            is_pinged: false,
            clocks: Clocks::default(),
            hold,
        }
    }

    /// Lets what runs come to its end, and nothing new begin.
    pub(super) fn announce_end(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Announced;
            self.clocks.end_at = Some(time::instant_now() + LINGER);
            self.link.state().write(&self.link.buffers, |http2, out| {
                http2.announce_end(out);
                http2.ping(out);
            });
        }
    }

    /// Moves everything on. `serve` is given each request.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, serve: &mut impl FnMut(Key, Head, bool)) -> Poll<Cause> {
        self.link.state().set_driver(cx);
        let is_flushed = loop {
            let read = self.poll_read(cx, serve);
            if let Poll::Ready(Err(cause)) = read {
                return Poll::Ready(cause);
            }
            match self.poll_flush(cx) {
                Err(()) => return Poll::Ready(Cause::Broken),
                // Reading ended for want of room. The flush has made some, which the streams fill after this poll.
                Ok(_) if read.is_ready() && self.link.state().out.pending() < PENDING_MAX => {}
                Ok(is_flushed) => break is_flushed,
            }
        };
        if self.remaining_requests == 0 && self.closing == Closing::No {
            self.announce_end();
            cx.waker().wake_by_ref();
        }
        self.poll_announced(cx);
        let is_empty = self.link.state().http2.is_empty();
        if is_empty && is_flushed && (self.closing == Closing::Final || self.is_leaving) {
            return Poll::Ready(Cause::Done);
        }
        if !is_flushed && self.poll_blocked(cx).is_ready() {
            return Poll::Ready(Cause::Broken);
        }
        if self.poll_silent(cx, is_empty).is_ready() {
            return Poll::Ready(Cause::Idle);
        }
        self.poll_ping(cx, is_empty)
    }

    /// Reads what has come, as long as there is room for answers, and at most about [`TURN`] bytes in one poll.
    fn poll_read(&mut self, cx: &mut Context<'_>, serve: &mut impl FnMut(Key, Head, bool)) -> Poll<Result<(), Cause>> {
        let mut read = 0;
        loop {
            self.events(serve)?;
            if read >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.link.state().out.pending() >= PENDING_MAX {
                return Poll::Ready(Ok(()));
            }
            match std::task::ready!(self.stream.poll_fill(cx, &mut self.input, &self.link.buffers)) {
                Ok(len @ 1..) => {
                    self.has_read = true;
                    read += len;
                }
                _ => return Poll::Ready(Err(Cause::Broken)),
            }
        }
    }

    /// Reads the frames that are whole.
    fn events(&mut self, serve: &mut impl FnMut(Key, Head, bool)) -> Result<(), Cause> {
        let link = Rc::clone(&self.link);
        while !self.input.is_empty() {
            let mut state = link.state();
            let step = state.write(&link.buffers, |http2, out| http2.receive(self.input.unread(), out));
            let step = step.map_err(Cause::Fatal)?;
            let consumed = step.consumed;
            if consumed > 0 && !state.http2.is_in_head() {
                self.clocks.partial_since = None; // what follows has its own time
            }
            match step.event {
                None if consumed == 0 => break,
                None => {}
                Some(Event::Head { key, head, has_ended }) => {
                    self.remaining_requests = self.remaining_requests.saturating_sub(1);
                    if let Some(slot) = state.http2.get_mut(key) {
                        slot.has_ended = has_ended;
                    }
                    drop(state);
                    serve(key, head, has_ended);
                }
                Some(Event::Pong) if self.closing == Closing::Announced => {
                    self.closing = Closing::Final;
                    state.write(&link.buffers, Connection::end);
                }
                Some(Event::GoAway) => self.is_leaving = true,
                Some(event) => deliver(&link, &mut state, event),
            }
            self.input.consume(consumed);
        }
        Ok(())
    }

    /// Writes what the socket takes. Whether that was all.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<bool, ()> {
        let Self { stream, link, clocks, .. } = self;
        let mut state = link.state();
        let before = state.out.pending();
        let written = stream.poll_write(cx, &mut state.out, &link.buffers);
        let moved = before - state.out.pending();
        if moved > 0 {
            state.has_moved(moved);
            clocks.blocked_since = None;
        }
        match written {
            Poll::Ready(Ok(())) => {
                clocks.blocked_since = None;
                state.out.clear();
                state.out.release(&link.buffers);
            }
            Poll::Ready(Err(_)) => return Err(()),
            Poll::Pending => state.out.compact(),
        }
        state.pass_on();
        Ok(written.is_ready())
    }

    /// Ready once the client has taken nothing for too long, or what is held for it is wanted.
    fn poll_blocked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (moved, pending, memory) = {
            let (state, sealed) = (self.link.state(), self.stream.pending());
            (state.moved(), state.out.pending() + sealed, state.out.memory() + sealed)
        };
        if self.hold.poll(cx, moved, pending, memory).is_ready() {
            return Poll::Ready(());
        }
        let since = *self.clocks.blocked_since.get_or_insert_with(time::instant_now);
        self.clocks.blocked.poll(cx, since + self.timeouts.body_idle)
    }

    /// Ready once nothing has been asked for, whatever else has come, or a frame has not become whole, for too long.
    fn poll_silent(&mut self, cx: &mut Context<'_>, is_empty: bool) -> Poll<()> {
        let is_partial = !self.input.is_empty() || self.link.state().http2.is_in_head();
        let Self { clocks, timeouts, .. } = self;
        if is_empty {
            let since = *clocks.idle_since.get_or_insert_with(time::instant_now);
            if clocks.idle.poll(cx, since + timeouts.keep_alive).is_ready() {
                return Poll::Ready(());
            }
        } else {
            clocks.idle_since = None;
        }
        if !is_partial {
            clocks.partial_since = None;
            return Poll::Pending;
        }
        let since = *clocks.partial_since.get_or_insert_with(time::instant_now);
        clocks.partial.poll(cx, since + timeouts.request_head)
    }

    /// Ends what was announced to a client that does not answer.
    fn poll_announced(&mut self, cx: &mut Context<'_>) {
        if self.closing == Closing::Announced
            && self.clocks.end_at.is_some_and(|at| self.clocks.end.poll(cx, at).is_ready())
        {
            self.closing = Closing::Final;
            self.link.state().write(&self.link.buffers, Connection::end);
        }
    }

    /// Ready once a client with open streams says nothing, not even that it is there, although it has taken everything.
    fn poll_ping(&mut self, cx: &mut Context<'_>, is_empty: bool) -> Poll<Cause> {
        if is_empty {
            self.clocks.ping_at = None;
            return Poll::Pending;
        }
        let at = *self.clocks.ping_at.get_or_insert_with(|| time::instant_now() + PING);
        if self.clocks.ping.poll(cx, at).is_pending() {
            return Poll::Pending;
        }
        // Behind what the client has not taken yet, a PING reaches it late. Other timeouts bound that.
        let is_blocked = self.clocks.blocked_since.is_some();
        if std::mem::take(&mut self.has_read) || is_blocked {
            self.is_pinged = false;
        } else if std::mem::replace(&mut self.is_pinged, true) {
            return Poll::Ready(Cause::Broken);
        } else {
            self.link.state().write(&self.link.buffers, Connection::ping);
        }
        self.clocks.ping_at = None;
        cx.waker().wake_by_ref(); // the next deadline is not armed yet
        Poll::Pending
    }

    /// Tells the client why the connection ends, ends all streams, and gives the stream back, with what was not sent.
    pub(super) async fn close(self, cause: Cause) {
        let Self { mut stream, link, .. } = self;
        link.close();
        if cause == Cause::Broken {
            return;
        }
        link.state().write(&link.buffers, |http2, out| match cause {
            Cause::Fatal(fatal) => http2.fail(fatal, out),
            Cause::Idle => http2.end(out),
            Cause::Done | Cause::Broken => {}
        });
        let flushed = std::future::poll_fn(|cx| stream.poll_write(cx, &mut link.state().out, &link.buffers));
        if let Ok(Ok(())) = tokio::time::timeout(LINGER, flushed).await {
            stream.finish(&link.buffers);
            stream.discard(LINGER, &link.buffers).await;
        }
    }
}

/// Hands what came on a stream to its task.
fn deliver(link: &Link, state: &mut LinkState, event: Event<'_>) {
    let slot = |state: &mut LinkState, key: Key, change: &mut dyn FnMut(&mut super::link::Slot)| {
        if let Some(slot) = state.http2.get_mut(key) {
            change(slot);
            slot.wake();
        }
    };
    match event {
        Event::Data { key, data, has_ended } => slot(state, key, &mut |slot| {
            if !data.is_empty() {
                slot.input.extend(data, &link.buffers);
            }
            slot.has_ended = has_ended;
        }),
        Event::Trailers { key, trailers } => {
            let mut trailers = Some(Box::new(trailers));
            slot(state, key, &mut |slot| {
                slot.trailers = trailers.take();
                slot.has_ended = true;
            });
        }
        Event::Reset { key } | Event::WindowOpened { key: Some(key) } => slot(state, key, &mut |_| {}),
        Event::WindowOpened { key: None } => state.pass_on(),
        Event::WindowsChanged => {
            state.http2.owners_mut().for_each(|slot| slot.wake());
            state.pass_on();
        }
        Event::Head { .. } | Event::Pong | Event::GoAway => {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use socket2::SockRef;
    use tokio::net::UnixStream;

    use super::*;
    use crate::transport::http2::Config;
    use crate::transport::net::buffer::OutputBuffer;
    use crate::transport::net::socket::Socket;
    use crate::transport::proxy::untaken::Untaken;

    /// The preface, SETTINGS and PING.
    const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x08\x06\0\0\0\0\0weirweir";

    /// A driver of `server`, whose timeouts do not end it, and its link.
    fn driver(server: UnixStream) -> (Driver<'static>, Rc<Link>) {
        const LONG: Duration = Duration::from_hours(1);
        let config = Config { max_streams: 1, max_head_bytes: 1000, max_fields: 10, takes_protocol: false };
        let timeouts = Timeouts {
            request_head: LONG,
            keep_alive: LONG,
            connect: LONG,
            response_head: LONG,
            body_idle: LONG,
            min_send: None,
            min_read: None,
            total: None,
            upgraded_idle: LONG,
        };
        let mut out = OutputBuffer::default();
        let untaken: &Rc<Untaken> = Box::leak(Box::default());
        let link = Link::new(Connection::new(config, out.bytes()), out, Rc::default());
        let (stream, hold) = (Stream::Plain(Socket::Unix(server)), Hold::new(untaken));
        (Driver::new(stream, InputBuffer::default(), Rc::clone(&link), Rc::new(timeouts), 1, hold), link)
    }

    /// The socket takes a part of what is to be written, and then the streams have filled it again.
    #[tokio::test]
    async fn it_reads_while_a_client_takes_its_responses_slowly() {
        let (client, server) = UnixStream::pair().unwrap();
        SockRef::from(&server).set_send_buffer_size(16 * 1024).unwrap();
        client.writable().await.unwrap();
        assert_eq!(client.try_write(OPENING).unwrap(), OPENING.len());
        let (mut driver, link) = driver(server);
        let driving = poll_fn(|cx| {
            {
                let out = &mut link.state().out;
                let room = PENDING_MAX.saturating_sub(out.pending());
                let len = out.bytes().len() + room;
                out.bytes().resize(len, 0);
            }
            driver.poll(cx, &mut |_, _, _| {})
        });
        let taking = async {
            let (mut taken, mut piece) = (0, [0; 4096]);
            while taken < 1 << 20 {
                client.readable().await.unwrap();
                taken += client.try_read(&mut piece).unwrap_or(0);
            }
        };
        tokio::select! {
            cause = driving => panic!("{cause:?}"),
            () = taking => {}
        }
        assert!(driver.has_read);
    }

    /// A client that has not taken what was written before a PING cannot answer it.
    #[tokio::test(start_paused = true)]
    async fn a_client_is_asked_for_a_sign_of_life_once_it_has_taken_everything() {
        for (is_blocked, expected) in [(true, None), (false, Some(Cause::Broken))] {
            let (_client, server) = UnixStream::pair().unwrap();
            SockRef::from(&server).set_send_buffer_size(16 * 1024).unwrap();
            let (mut driver, link) = driver(server);
            if is_blocked {
                link.state().out.bytes().resize(1 << 20, 0);
            }
            let blocked = poll_fn(|cx| {
                let is_flushed = driver.poll_flush(cx).unwrap();
                if !is_flushed {
                    assert!(driver.poll_blocked(cx).is_pending());
                }
                driver.poll_ping(cx, false)
            });
            let ended = tokio::time::timeout(Duration::from_mins(2), blocked).await.ok();
            assert_eq!(ended, expected, "{is_blocked}");
        }
    }
}
