//! An HTTP/2 connection that is being opened. Requests that wait for it share the result.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

use crate::transport::upstream::pool::connection::ConnectError;
use crate::transport::upstream::settings::Endpoint;

/// See the [module](self). Opening belongs to no request, so a request that leaves cancels nothing.
#[derive(Debug, Default)]
pub(crate) struct PendingConnection {
    /// Requests that wait for it.
    waiting: Cell<usize>,
    result: RefCell<Option<Result<(), ConnectError>>>,
    done: Notify,
}

/// Counts one waiting request until dropped.
struct WaitGuard<'p>(&'p PendingConnection);

impl PendingConnection {
    pub(crate) fn new() -> Rc<Self> {
        Rc::default()
    }

    /// The number of requests that wait for it.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Reports the result to all waiting requests.
    pub(crate) fn finish(&self, result: Result<(), ConnectError>) {
        self.result.replace(Some(result));
        self.done.notify_waiters();
    }

    /// Waits until the connection to `endpoint` is open. Errs if it cannot be opened.
    pub(crate) async fn wait(&self, endpoint: &Endpoint) -> Result<(), ConnectError> {
        let _waiting = WaitGuard::new(self);
        loop {
            if let Some(result) = &*self.result.borrow() {
                return result.as_ref().copied().map_err(|error| error.at(endpoint));
            }
            // No notification is lost between the check and this await: both run on one thread.
            self.done.notified().await;
        }
    }
}

impl<'p> WaitGuard<'p> {
    fn new(pending: &'p PendingConnection) -> Self {
        pending.waiting.set(pending.waiting.get() + 1);
        Self(pending)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}
