//! Clients that speak HTTP/2: a task for each connection, and a task for each stream, which is one request.
//!
//! The task of the connection reads frames and writes what the tasks of the streams have put together in one turn of the
//! loop. What they share is a [`link::Link`], borrowed within a poll only. Not here: frames, which are `crate::transport::http2`.

mod answer;
mod body;
pub(super) mod connection;
mod driver;
mod link;
mod relay;
mod request;
mod stored;
mod stream;
mod tunnel;
