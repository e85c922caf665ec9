//! The body of the request in hand, taken from a client's connection.

use std::task::{Context, Poll, ready};

use super::{Expectation, Wire};
use crate::fields::FieldBuf;
use crate::http1::Step;
use crate::http1::encode::Encoder;
use crate::upstream::{BodyFault, Source, spend};

/// Bytes of a body that are taken in for nothing, to keep a connection.
const SKIPPED_MAX: usize = 64 * 1024;
/// What is moved at once from the client to the upstream.
const PIECE_MAX: usize = 64 * 1024;

impl Wire {
    /// Before an answer that does not wait for the body of its request: takes what has come of that. Says whether
    /// that was all, so that another request can follow.
    pub(in crate::proxy) fn skip_body(&mut self) -> bool {
        let mut taken = 0;
        loop {
            match self.requests.body(self.input.unread()) {
                Step::Data { skipped, len } => {
                    self.input.consume(skipped + len);
                    taken += len;
                    if taken > SKIPPED_MAX {
                        return false;
                    }
                }
                Step::End(len) => {
                    self.input.consume(len);
                    return true;
                }
                Step::Broken(_) => return false,
                Step::More => {
                    self.input.consume(self.input.unread().len());
                    // A client that waits for a 100 may send the body or the next request: the bytes cannot tell.
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
        loop {
            match self.requests.body(self.input.unread()) {
                Step::Data { skipped, len } => {
                    self.expectation = Expectation::None;
                    spend(left, len)?;
                    encoder.data(out, &self.input.unread()[skipped..skipped + len]);
                    self.input.consume(skipped + len);
                    if out.len() >= PIECE_MAX {
                        return Poll::Ready(Ok(true));
                    }
                }
                Step::End(len) => {
                    self.input.consume(len);
                    encoder.end(out, self.requests.decoder().trailers());
                    return Poll::Ready(Ok(false));
                }
                Step::Broken(_) => return Poll::Ready(Err(BodyFault::Broken)),
                Step::More => {
                    self.input.consume(self.input.unread().len());
                    if !out.is_empty() {
                        return Poll::Ready(Ok(true));
                    }
                    if self.expectation == Expectation::Waits {
                        self.expectation = Expectation::None;
                        self.out().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        // What the socket does not take now goes before the answer.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;

    use tokio::net::{TcpListener, TcpStream};

    use super::super::head::HeadBytes;
    use super::*;
    use crate::http1::{Limits, Next, Underscores};
    use crate::net::buffer::{Buffer, Buffers};
    use crate::net::socket::Socket;
    use crate::net::stream::Stream;
    use crate::time;

    const LIMITS: Limits =
        Limits { max_head_bytes: 1024, max_headers: 8, max_uri_bytes: 64, underscores: Underscores::Keep };

    /// A connection on which this has come, and the client's end of it.
    async fn wire(first: &str) -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::Plain(Socket::Tcp(listener.accept().await.unwrap().0));
        let (buffers, mut input) = (Rc::new(Buffers::default()), Buffer::default());
        input.extend(first.as_bytes(), &buffers);
        (Wire::new(stream, input, time::instant_now(), LIMITS, buffers), client)
    }

    #[tokio::test]
    async fn no_interim_response_follows_a_final_one() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        for (is_late, expected) in [(false, &b"HTTP/1.1 100 Continue\r\n\r\n"[..]), (true, b"")] {
            let (mut wire, client) = wire(head).await;
            let Next::Head(head) = wire.requests.head(wire.input.unread()) else { panic!("no head") };
            wire.take_head(head.len, &mut HeadBytes::default());
            wire.expect_continue();
            if is_late {
                wire.begin_response();
            }
            let (mut body, mut left) = (Vec::new(), 5);
            let polled = poll_fn(|cx| Poll::Ready(wire.poll_body(cx, &mut body, &Encoder::Raw, &mut left))).await;
            assert!(polled.is_pending());
            assert!(!is_late || !wire.skip_body(), "it may still come");
            drop(wire);
            let mut said = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut { client }, &mut said).await.unwrap();
            assert_eq!(said, expected);
        }
    }
}
