//! HTTP/2 as a server speaks it: pure, without sockets, clocks or async.
//!
//! Bytes go in, [`Event`]s and bytes come out ([`Connection`]). A mistake within one request is an error of its stream;
//! only what leaves both sides with different states, and floods, end the connection ([`Fatal`]). Everything that a peer can
//! make a connection hold or do is bounded by [`Config`] or by a constant.
//!
//! - How the bytes were cut into reads never changes the events, but that DATA comes in other pieces.
//! - Nothing of a response is queued here: the caller asks how much the windows allow.
//!
//! RFC 9113, 7541 and 8441. Priorities (RFC 9218) are ignored, and there is no push. Not here: sockets and deadlines,
//! whether a method, a path or a host is good, the answers.

mod connection;
mod error;
mod flow;
mod frame;
mod head;
mod hpack;
mod settings;
mod stream;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests;

pub use connection::{BLOCK_BYTES_MIN, Block, CONTINUATIONS_MAX, Connection, Event, IDLE_FRAMES_MAX, Step};
pub use error::{ErrorCode, Fatal};
pub use frame::PREFACE;
pub use head::{Head, HeadFault};
pub use settings::Config;
pub use stream::Key;
