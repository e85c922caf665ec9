//! Request bodies on a wire.

use std::task::{Context, Poll, ready};

use super::{Expectation, Wire};
use crate::base::fields::FieldBuf;
use crate::transport::http1::BodyStep;
use crate::transport::http1::encode::Encoder;
use crate::transport::proxy::replay::{PIECE_MAX, ReadAhead, Replayed, replay};
use crate::transport::upstream::{BodyFault, Source, spend};

/// The most bytes of an unused body that are read to keep a connection.
const SKIPPED_MAX: usize = 64 * 1024;

impl Wire {
    /// Reads the available rest of a body that the response does not need. Returns whether the body has ended, so that
    /// another request can follow.
    pub(in crate::transport::proxy) fn skip_body(&mut self) -> bool {
        let mut taken = 0;
        loop {
            match self.requests.body(self.input.unread()) {
                BodyStep::Data { skipped, len } => {
                    self.input.consume(skipped + len);
                    taken += len;
                    if taken > SKIPPED_MAX {
                        return false;
                    }
                }
                BodyStep::End(len) => {
                    self.input.consume(len);
                    return true;
                }
                BodyStep::Broken(_) => return false,
                BodyStep::More => {
                    self.input.consume(self.input.unread().len());
                    // A client that waits for 100 Continue may send the body or the next request; the bytes do not tell
                    // which.
                    let mut cx = Context::from_waker(std::task::Waker::noop());
                    if self.expectation != Expectation::None || !matches!(self.poll_fill(&mut cx), Poll::Ready(Ok(1..)))
                    {
                        return false;
                    }
                }
            }
        }
    }
}

impl Source for Wire {
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        left: &mut u64,
    ) -> Poll<Result<bool, BodyFault>> {
        if let Some(replayed) = replay(&mut self.ahead, out, encoder, left, self.requests.decoder().trailers()) {
            return Poll::Ready(replayed);
        }
        loop {
            match self.requests.body(self.input.unread()) {
                BodyStep::Data { skipped, len } => {
                    self.expectation = Expectation::None;
                    spend(left, len)?;
                    encoder.data(out, &self.input.unread()[skipped..skipped + len]);
                    self.input.consume(skipped + len);
                    if out.len() >= PIECE_MAX {
                        return Poll::Ready(Ok(true));
                    }
                }
                BodyStep::End(len) => {
                    self.input.consume(len);
                    encoder.end(out, self.requests.decoder().trailers());
                    return Poll::Ready(Ok(false));
                }
                BodyStep::Broken(_) => return Poll::Ready(Err(BodyFault::Broken)),
                BodyStep::More => {
                    self.input.consume(self.input.unread().len());
                    if !out.is_empty() {
                        return Poll::Ready(Ok(true));
                    }
                    if self.expectation == Expectation::Waits {
                        self.expectation = Expectation::None;
                        self.out().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        // The rest goes before the final response.
                        let _ = self.poll_flush(cx);
                    }
                    match ready!(self.poll_fill(cx)) {
                        Ok(1..) => {}
                        _ => return Poll::Ready(Err(BodyFault::Broken)),
                    }
                }
            }
        }
    }

    fn trailers(&self) -> Option<&FieldBuf> {
        self.requests.decoder().trailers()
    }
}

impl Replayed for Wire {
    fn expect_continue(&mut self) -> bool {
        let awaits = self.ahead.is_none();
        if awaits {
            self.expectation = Expectation::Waits;
        }
        awaits
    }

    fn put_back(&mut self, ahead: ReadAhead) {
        self.ahead = Some(Box::new(ahead));
    }

    fn unread(&self) -> usize {
        self.input.unread().len()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;

    use socket2::SockRef;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::super::head::HeadBytes;
    use super::*;
    use crate::base::time;
    use crate::transport::http1::{HeadStep, Limits, Underscores};
    use crate::transport::net::buffer::{BufferPool, InputBuffer, PENDING_MAX};
    use crate::transport::net::socket::Socket;
    use crate::transport::net::stream::Stream;

    const LIMITS: Limits =
        Limits { max_head_bytes: 1024, max_headers: 8, max_uri_bytes: 64, underscores: Underscores::Keep };

    /// A wire on which `first` has arrived, and the client's end of it.
    async fn wire(first: &str) -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::Plain(Socket::Tcp(listener.accept().await.unwrap().0));
        let (buffers, mut input) = (Rc::new(BufferPool::default()), InputBuffer::default());
        input.extend(first.as_bytes(), &buffers);
        (Wire::new(stream, input, time::instant_now(), LIMITS, buffers), client)
    }

    /// A client takes a part of what waits, again and again, but never all.
    #[tokio::test]
    async fn bytes_that_were_sent_leave_the_memory() {
        let (client, server) = UnixStream::pair().unwrap();
        SockRef::from(&server).set_send_buffer_size(16 * 1024).unwrap();
        let stream = Stream::Plain(Socket::Unix(server));
        let mut wire = Wire::new(stream, InputBuffer::default(), time::instant_now(), LIMITS, Rc::default());
        let pouring = poll_fn(|cx| {
            let len = wire.out().len() + PENDING_MAX.saturating_sub(wire.pending());
            wire.out().resize(len, 0);
            wire.poll_flush(cx).map(|flushed| flushed.is_ok())
        });
        let taking = async {
            let (mut taken, mut piece) = (0, [0; 4096]);
            while taken < 1 << 20 {
                client.readable().await.unwrap();
                taken += client.try_read(&mut piece).unwrap_or(0);
            }
        };
        tokio::select! {
            is_sent = pouring => panic!("all is taken: {is_sent}"),
            () = taking => {}
        }
        assert!(wire.memory() <= 4 * PENDING_MAX, "{}", wire.memory());
    }

    #[tokio::test]
    async fn no_interim_response_follows_a_final_one() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        for (is_late, expected) in [(false, &b"HTTP/1.1 100 Continue\r\n\r\n"[..]), (true, b"")] {
            let (mut wire, client) = wire(head).await;
            let HeadStep::Head(head) = wire.requests.head(wire.input.unread()) else { panic!("no head") };
            wire.take_head(head.len, &mut HeadBytes::default());
            wire.expect_continue();
            if is_late {
                wire.begin_response();
            }
            let (mut body, mut left) = (Vec::new(), 5);
            let polled = poll_fn(|cx| Poll::Ready(wire.poll_body(cx, &mut body, &Encoder::Raw, &mut left))).await;
            assert!(polled.is_pending());
            assert!(!is_late || !wire.skip_body(), "the body may still come");
            drop(wire);
            let mut received = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut { client }, &mut received).await.unwrap();
            assert_eq!(received, expected);
        }
    }
}
