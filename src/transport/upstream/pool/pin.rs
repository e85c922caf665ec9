//! A connection to an endpoint that is pinned to one client connection.
//!
//! NTLM, and Negotiate with NTLM inside, authenticate a connection by several requests. The service then takes all later
//! requests on it for those of the authenticated client, so no other client may get it.

use std::cell::RefCell;
use std::rc::Rc;

use super::endpoint_pool::Pool;
use super::pinned::PinnedConnection;

/// The pinned connection of one client connection, between two requests: its pool and its key there. It closes when this
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPin(RefCell<Option<(Rc<Pool>, u64)>>);

impl ConnectionPin {
    /// Pins a connection of `pool` in place of the one before.
    pub(crate) fn put(&self, pool: Rc<Pool>, mut pinned: PinnedConnection) {
        if !pool.is_closed() && pinned.connection.is_reusable() {
            pool.rest(&mut pinned.connection);
            let key = pool.pinned.put(pinned);
            self.replace(Some((pool, key)));
        }
    }

    /// Takes the connection if it belongs to one of `pools` and is still open. Returns the index of its pool too.
    pub(crate) fn take(&self, pools: &[Rc<Pool>]) -> Option<(usize, PinnedConnection)> {
        let (index, key) = {
            let slot = self.0.borrow();
            let (own, key) = slot.as_ref()?;
            (pools.iter().position(|pool| Rc::ptr_eq(pool, own))?, *key)
        };
        self.0.take();
        let mut pinned = pools[index].pinned.take(key)?;
        pinned.connection.is_reusable().then_some((index, pinned))
    }

    fn replace(&self, place: Option<(Rc<Pool>, u64)>) {
        if let Some((pool, key)) = self.0.replace(place) {
            drop(pool.pinned.take(key));
        }
    }
}

impl Drop for ConnectionPin {
    fn drop(&mut self) {
        self.replace(None);
    }
}
