//! The timeouts of connections, requests and bodies.

use std::time::Duration;

use super::pace::MinRate;

/// Timeouts. Each restarts at the event that its text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of a connection, or the first byte of a later request, to the end of the head. After that: 408.
    pub request_head: Duration,
    /// Between requests on one connection. The connection closes after that, and before twice that.
    pub keep_alive: Duration,
    /// To connect to the upstream. After that: 504.
    pub connect: Duration,
    /// From the last progress of the request to the head of the response. After that: 504; 408 if the client stalls.
    pub response_head: Duration,
    /// Between two reads of a body, in either direction. After that: 408, or the connection breaks off.
    pub body_idle: Duration,
    /// Rate at which a client must send a body while Weir waits for it, until the response begins. Below it: 408.
    pub min_send: Option<MinRate>,
    /// Rate at which a client must read a response. Below it the connection breaks off.
    pub min_read: Option<MinRate>,
    /// From the start of the exchange to the end of the response; `None` for no bound. After that: 504, or the
    /// connection breaks off.
    pub total: Option<Duration>,
    /// Between two bytes on an upgraded connection, in either direction. The connection closes after that.
    pub upgraded_idle: Duration,
}
