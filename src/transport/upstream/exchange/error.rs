//! Why a transport returns no response head or no further part of a body.

use std::io;

use crate::transport::http1::ResponseFault;

/// Bytes of a response body that are moved at once, about.
pub(crate) const PIECE_MAX: usize = 64 * 1024;

/// Why no response head arrived.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// The head is malformed.
    Malformed(ResponseFault),
    /// The protocol of the upstream cannot express the request.
    Unencodable,
    Disconnected(Disconnect),
}

/// A connection or stream that ended before the response head.
#[derive(Debug)]
pub(crate) struct Disconnect {
    pub(crate) error: io::Error,
    /// Another request has used the connection before. It may close at any time, which says little about the endpoint.
    pub(crate) was_idle: bool,
    /// The request may be sent again.
    pub(crate) may_retry: bool,
    /// A retry on a new connection to the same endpoint may succeed.
    pub(crate) may_succeed: bool,
}

/// What one poll of a response body has moved.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the body that were written.
    pub(crate) bytes: u64,
    /// The upstream has sent bytes.
    pub(crate) has_moved: bool,
}

/// Why a response body ends early, for the log.
pub(crate) type Cause = &'static str;

impl TransportError {
    /// There is no connection any more.
    pub(crate) fn closed() -> Self {
        let error = closed();
        Self::Disconnected(Disconnect { error, was_idle: false, may_retry: false, may_succeed: false })
    }
}

/// The end of the stream in place of a response.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the upstream closed the connection before it answered")
}
