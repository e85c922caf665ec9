//! The end of a wire: after the last response, or in the middle of one.

use std::time::Duration;

use super::Wire;

/// How a client learns that a response is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::proxy) enum Truncation {
    /// The connection closes before the announced length, or before the last chunk.
    Closed,
    /// The connection is reset, because its end would be the end of the body.
    Reset,
}

impl Wire {
    /// Closes our direction after the last response, and reads what the client still sends. Otherwise the kernel would
    /// answer it with a reset, which destroys the response in flight (RFC 9112, section 9.6).
    pub(in crate::transport::proxy) async fn linger(&mut self, at_most: Duration) {
        self.stream.finish(&self.buffers);
        self.discard(at_most).await;
    }

    /// Closes our direction in the middle of a response, so that the client can tell.
    pub(in crate::transport::proxy) async fn cut(&mut self, end: Truncation, at_most: Duration) {
        if !self.stream.cut(end == Truncation::Reset) {
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
