//! The destination of headers: the text of an HTTP/1 head, or a map for HTTP/2.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Receives headers.
pub trait HeaderSink {
    /// Adds a header. `name` is in lower case. A `value` that is invalid in a header is left out.
    fn put(&mut self, name: &'static str, value: &str);
}

impl HeaderSink for Vec<u8> {
    fn put(&mut self, name: &'static str, value: &str) {
        for piece in [name, ": ", value, "\r\n"] {
            self.extend_from_slice(piece.as_bytes());
        }
    }
}

impl HeaderSink for HeaderMap {
    fn put(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.append(HeaderName::from_static(name), value);
        }
    }
}
