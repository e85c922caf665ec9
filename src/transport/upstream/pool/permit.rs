//! The right to one connection to an endpoint.

use std::sync::Arc;

use super::queue::Queue;
use crate::transport::upstream::state::EndpointState;

/// One of the connections that an endpoint may have. Dropping it gives the connection back to the endpoint's bound and
/// to the process ceiling.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    endpoint: Arc<EndpointState>,
    queue: Arc<Queue>,
}

impl ConnectionPermit {
    /// A permit for one more connection to `endpoint`. None if it has `max_connections` already, or if the process has
    /// as many upstream connections as it may have.
    pub(crate) fn new(endpoint: &Arc<EndpointState>, queue: &Arc<Queue>, max_connections: usize) -> Option<Self> {
        if !endpoint.open(max_connections) {
            return None;
        }
        if !queue.ceiling.open() {
            endpoint.close();
            return None;
        }
        Some(Self { endpoint: Arc::clone(endpoint), queue: Arc::clone(queue) })
    }

    /// The endpoint of the connection.
    pub(crate) fn endpoint(&self) -> &EndpointState {
        &self.endpoint
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.endpoint.close();
        self.queue.ceiling.close();
        self.queue.wake_front();
    }
}
