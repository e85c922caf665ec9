//! The guard between a client's HTTP/1 bytes and hyper's parser.
//!
//! hyper is lenient where a proxy must not be: it takes bare LF, `gzip, chunked`, Content-Length beside
//! Transfer-Encoding, and it answers what it cannot parse by itself, with an empty body and without
//! telling anyone. The [`Guard`] reads the same bytes first and strictly. It follows where messages begin
//! and end, releases a head only when it is complete and clean, and in place of a bad one releases a fixed
//! substitute, so that hyper always calls our service, which looks the [`HeadFault`] up by the ordinal of
//! the request, answers it with the right problem and closes.
//!
//! All of it is pure: no socket, no clock, no async. Invariants:
//!
//! - Every byte that hyper gets was checked before. Where guard and hyper could take a different view of a
//!   boundary the guard refuses, so a refusal may be stricter than RFC 9112 but never laxer than hyper.
//! - How the bytes were cut into reads never changes the outcome.
//! - Memory is bounded by one head and one read, and given back when nothing is held.
//!
//! hyper must be built with `max_headers` of at least [`Limits::max_headers`] and a `max_buf_size` of at
//! least [`Limits::max_head_bytes`] + [`LEADING_BYTES_MAX`] + 1; then it never refuses what was released.
//!
//! Not here: sockets and deadlines, whether Host agrees with the target, what a path means, the answers.

mod chunked;
mod guard;
mod head;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod differential;
#[cfg(test)]
mod tests;

pub use chunked::TRAILER_BYTES_MAX;
pub use guard::{Guard, Phase, SUBSTITUTE};
pub use head::LEADING_BYTES_MAX;

/// hyper reserves a map of this order up front and `http::HeaderMap` panics beyond 24 576 fields.
const HEADERS_MAX: usize = 16_384;

/// The longest target that `http::Uri` takes.
const URI_BYTES_MAX: usize = u16::MAX as usize - 1;

/// What one request head may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the method to the empty line, both included. Beyond: [`HeadFault::TooLarge`].
    pub max_head_bytes: usize,
    /// Field lines; at most 16 384. Beyond: [`HeadFault::TooLarge`].
    pub max_headers: usize,
    /// Bytes of the target; at most 65 534. Beyond: [`HeadFault::UriTooLong`].
    pub max_uri_bytes: usize,
}

impl Limits {
    /// These limits, lowered to what hyper and the `http` crate can represent.
    fn clamped(self) -> Self {
        Self {
            max_head_bytes: self.max_head_bytes,
            max_headers: self.max_headers.min(HEADERS_MAX),
            max_uri_bytes: self.max_uri_bytes.min(URI_BYTES_MAX),
        }
    }
}

/// Why a head was not released; each closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// 400: not HTTP/1.x as RFC 9112 writes it. A short, fixed reason.
    Malformed(&'static str),
    /// 400: two readers could disagree about where the body ends. A short, fixed reason.
    AmbiguousFraming(&'static str),
    /// 431: too many bytes or fields.
    TooLarge,
    /// 414: the target is too long.
    UriTooLong,
    /// 408: the head did not come in time.
    Timeout,
    /// 405: Weir is no tunnel.
    ConnectRefused,
}
