//! The answer of a limit to requests that it refuses, in place of a problem document.
//!
//! It has no text from clients, so nothing in it needs to be escaped.

use http::StatusCode;

/// Stands for the whole seconds of `Retry-After` in a body.
const RETRY_AFTER: &str = "{retry_after}";

/// An answer to refused requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalAnswer {
    /// A body of this type.
    Body {
        /// The value of `Content-Type`.
        content_type: Box<str>,
        /// The body, with `{retry_after}` in the places of the seconds.
        text: Box<str>,
        /// Whether only clients get it that prefer HTML.
        is_html: bool,
    },
    /// Another place.
    Redirect {
        /// 302, 303 or 307.
        status: StatusCode,
        /// The value of `Location`.
        url: Box<str>,
    },
}

impl RefusalAnswer {
    /// Appends a body. The seconds are left out if a retry never helps.
    pub fn write(text: &str, retry_after_s: Option<u64>, body: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        let seconds = retry_after_s.map_or("", |s| number.format(s));
        for (index, piece) in text.split(RETRY_AFTER).enumerate() {
            body.extend_from_slice(if index == 0 { b"" } else { seconds.as_bytes() });
            body.extend_from_slice(piece.as_bytes());
        }
    }
}
