//! HTTP/1 as Weir reads it: pure, without sockets, clocks or async.
//!
//! A proxy must see the same messages as whoever is behind it. So requests are read strictly: where two readers could
//! take a different view of a boundary, the request is refused ([`HeadFault`]) or its body breaks. Only what was
//! checked here is sent on, and it is written anew from its parts.
//!
//! - How the bytes were cut into reads never changes the outcome.
//! - Memory is bounded by one head and one read.
//!
//! Not here: sockets and deadlines, whether Host agrees with the target, what a path means, the answers.

mod body;
mod chunked;
pub(crate) mod encode;
mod head;
pub(crate) mod hop;
mod limits;
mod reader;
mod response;
mod syntax;
mod target;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod differential;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use body::{Decoder, Framing};
pub use chunked::{EXTENSION_BYTES_MAX, Step, TRAILER_BYTES_MAX};
pub use head::{Head, HeadScan};
pub(crate) use limits::MEMBERS_MAX;
pub use limits::{HeadFault, Limits, Underscores};
pub use reader::{Next, Requests};
pub(crate) use response::FIELDS_MAX;
pub use response::{RESPONSE_HEAD_BYTES_MAX, ResponseFault, ResponseHead, parse};
pub(crate) use syntax::{is_method, length};
pub(crate) use target::{is_text, origin_len};
