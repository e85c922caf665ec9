//! The end of a client's connection: after the last response, and in the middle of one.

use std::time::Duration;

use super::Wire;

/// How a client sees that a response is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum CutEnd {
    /// The connection closes before the announced length, or before the last chunk.
    Closed,
    /// The end of the connection would be the end of the body, so it is reset instead.
    Reset,
}

impl Wire {
    /// After the last answer: closes our side, and takes what the client still sends, so that the kernel does not
    /// answer it with a reset that destroys the answer on its way (RFC 9112, section 9.6).
    pub(in crate::proxy) async fn linger(&mut self, at_most: Duration) {
        self.stream.finish(&self.buffers);
        self.discard(at_most).await;
    }

    /// After a response that is not whole: closes our side so that the client can tell.
    pub(in crate::proxy) async fn cut(&mut self, end: CutEnd, at_most: Duration) {
        if !self.stream.cut(end == CutEnd::Reset) {
            self.discard(at_most).await;
        }
    }

    async fn discard(&self, at_most: Duration) {
        let socket = self.stream.socket();
        let may_send = !self.requests.decoder().has_ended() || !self.input.is_empty();
        if !may_send && !socket.try_read(&mut [0; 1]).is_ok_and(|len| len > 0) {
            return;
        }
        self.stream.discard(at_most, &self.buffers).await;
    }
}
