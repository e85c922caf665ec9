//! Sans-IO reader and writer of HTTP/1: no sockets, no clocks, no async.
//!
//! A proxy and the service behind it must see the same messages. So requests are parsed strictly: where two readers
//! could disagree on a boundary, the request is refused ([`HeadFault`]) or its body is broken. Only checked parts are
//! sent on, in a new head.
//!
//! - The result never depends on the boundaries of reads.
//! - Memory is bounded by one head and one read.
//!
//! Not here: sockets and deadlines, the agreement of Host and target, the meaning of a path, responses of Weir.

mod body;
mod chunked;
pub(crate) mod encode;
mod head;
pub(crate) mod hop;
mod limits;
mod reader;
mod response;
mod syntax;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;

pub use body::{Decoder, Framing};
pub use chunked::{BodyStep, EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX};
pub use head::{HeadParser, RequestHead};
pub(crate) use limits::MEMBERS_MAX;
pub use limits::{HeadFault, Limits, Underscores};
pub use reader::{HeadStep, RequestReader};
pub(crate) use response::FIELDS_MAX;
pub use response::{RESPONSE_HEAD_BYTES_MAX, ResponseFault, ResponseHead, parse_response};
pub(crate) use syntax::{is_method, is_text, origin_len};
