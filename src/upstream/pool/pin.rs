//! A connection to an endpoint that is pinned to one client connection.
//!
//! NTLM, and Negotiate with NTLM inside, authenticate a connection by several requests. The service then takes all later
//! requests on it for those of the authenticated client, so no other client may get it.

use std::cell::RefCell;
use std::rc::Rc;

use super::connection::H1Connection;
use super::endpoint_pool::Pool;
use super::usage::ActiveRequest;

/// The pinned connection of one client connection, between two requests. It closes when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPin(RefCell<Option<PinnedConnection>>);

#[derive(Debug)]
pub(crate) struct PinnedConnection {
    /// The connection counts as an active request of its client while it is pinned.
    pub(crate) active: Option<ActiveRequest>,
    pub(crate) connection: Box<H1Connection>,
    pub(crate) pool: Rc<Pool>,
}

impl ConnectionPin {
    /// Pins a connection in place of the one before.
    pub(crate) fn put(&self, mut pinned: PinnedConnection) {
        let PinnedConnection { connection, pool, .. } = &mut pinned;
        if connection.is_reusable() {
            connection.idle_since = Some(pool.sweeps());
            connection.input.release(pool.buffers());
            connection.out.release(pool.buffers());
            self.0.replace(Some(pinned));
        }
    }

    /// Takes the connection if it belongs to one of `pools` and the service has not closed it. Returns the index of its
    /// pool too.
    pub(crate) fn take(&self, pools: &[Rc<Pool>]) -> Option<(usize, PinnedConnection)> {
        let mut slot = self.0.borrow_mut();
        let index = slot.as_ref().and_then(|pinned| pools.iter().position(|pool| Rc::ptr_eq(pool, &pinned.pool)))?;
        let mut pinned = slot.take()?;
        pinned.connection.is_reusable().then_some((index, pinned))
    }
}
