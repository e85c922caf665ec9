//! The deadlines of connections, requests and bodies.

use std::time::Duration;

use super::pace::MinRate;

/// Deadlines; each restarts where its text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head. Past it: 408.
    pub request_head: Duration,
    /// Between requests on one connection. Past it, and before twice that: closed.
    pub keep_alive: Duration,
    /// To connect to the upstream. Past it: 504.
    pub connect: Duration,
    /// From the last progress of the request to the head of the response. Past it: 504; 408 if the client stalls.
    pub response_head: Duration,
    /// Between two pieces of a body, in either direction. Past it: 408 or a broken connection.
    pub body_idle: Duration,
    /// What a client has to send of a body while that is waited for, until the response begins. Below it: 408.
    pub min_send: Option<MinRate>,
    /// What a client has to take of a response while there is something to take. Below it: a broken connection.
    pub min_read: Option<MinRate>,
    /// From the hand-over to the upstream to the end of the response; `None` for no bound. Past it: 504 or a broken connection.
    pub total: Option<Duration>,
    /// Between two bytes on an upgraded connection, in either direction. Past it: closed.
    pub upgraded_idle: Duration,
}
