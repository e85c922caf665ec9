//! Bounds of a request head, and the faults that refuse it.

/// The longest target that `http::Uri` takes.
const URI_BYTES_MAX: usize = u16::MAX as usize - 1;

/// Members of the lists in a request that say how its connection and its trailers are meant: Connection, TE, Trailer and
/// Upgrade together. Beyond: [`HeadFault::TooLarge`]. Clients send a handful.
pub(crate) const MEMBERS_MAX: usize = 256;

/// What one request head may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the method to the empty line, both included. Beyond: [`HeadFault::TooLarge`].
    pub max_head_bytes: usize,
    /// Field lines. Beyond: [`HeadFault::TooLarge`].
    pub max_headers: usize,
    /// Bytes of the target; at most 65 534. Beyond: [`HeadFault::UriTooLong`].
    pub max_uri_bytes: usize,
    /// What becomes of fields whose names have `_`.
    pub underscores: Underscores,
}

/// What becomes of request fields whose names have `_`. CGI and WSGI make one variable of `X-Name` and `X_Name`, so that
/// a client could write what a service takes for the word of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// They are left out.
    Drop,
    /// They are fields like any other.
    Keep,
    /// The request is malformed.
    Refuse,
}

impl Underscores {
    /// Whether the field of this name stays.
    ///
    /// # Errors
    /// The request is to be refused because of it.
    pub(crate) fn keeps(self, name: &[u8]) -> Result<bool, HeadFault> {
        match self {
            Self::Keep => Ok(true),
            _ if !name.contains(&b'_') => Ok(true),
            Self::Drop => Ok(false),
            Self::Refuse => Err(HeadFault::Malformed("`_` in a field name")),
        }
    }
}

impl Limits {
    /// These limits, lowered to what the `http` crate can represent.
    pub(super) fn clamped(self) -> Self {
        Self { max_uri_bytes: self.max_uri_bytes.min(URI_BYTES_MAX), ..self }
    }
}

/// Why a head is refused; each closes the connection.
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
