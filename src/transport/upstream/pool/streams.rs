//! Streams of a pool's HTTP/2 connections: which connection a request gets, and when another one is opened.

use std::rc::Rc;

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::Request;
use http::uri::Scheme;
use tokio::task::spawn_local;

use super::connection::{ConnectError, in_time};
use super::endpoint_pool::Pool;
use super::permit::ConnectionPermit;
use super::stream::EndpointStream;
use crate::transport::upstream::h2::connection::H2Connection;
use crate::transport::upstream::h2::pending::PendingConnection;

/// The right to one stream of an HTTP/2 connection. The stream counts as in use until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    connection: Rc<H2Connection>,
    pool: Rc<Pool>,
    was_used: bool,
}

impl StreamPermit {
    fn new(connection: Rc<H2Connection>, pool: &Rc<Pool>) -> Self {
        let was_used = connection.reserve_stream();
        Self { connection, pool: Rc::clone(pool), was_used }
    }

    /// Whether another request has used the connection before.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used
    }

    /// The scheme of the endpoint's URLs.
    pub(crate) fn scheme(&self) -> Scheme {
        self.pool.spec.endpoint.scheme()
    }

    /// Begins the stream with `request`; `is_whole`: no body follows. Errs if no stream may begin any more.
    pub(crate) fn send(
        &self,
        request: Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.connection.send(request, is_whole)
    }

    /// Has the connection send a ping. The next action on the stream wakes the connection's driver.
    pub(crate) fn request_ping(&self) {
        self.connection.request_ping();
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.release_stream();
        self.pool.stream_ended(&self.connection);
    }
}

impl Pool {
    /// A stream of a connection that is open.
    pub(crate) fn stream(self: &Rc<Self>) -> Option<StreamPermit> {
        self.h2.with_capacity().map(|connection| StreamPermit::new(connection, self))
    }

    /// Begins to open an HTTP/2 connection, which holds `permit`.
    pub(crate) fn open_h2(self: &Rc<Self>, permit: ConnectionPermit) -> Rc<PendingConnection> {
        let pending = self.h2.begin();
        let (pool, opened) = (Rc::clone(self), Rc::clone(&pending));
        spawn_local(async move {
            let result = pool.connect_h2(permit).await;
            pool.h2.end(&opened);
            opened.finish(result);
            // A closed pool is not swept, and no request is left that would use the connection.
            if pool.is_closed() && opened.waiting() == 0 {
                pool.retire_surplus();
            }
            pool.wake_waiters();
        });
        pending
    }

    async fn connect_h2(&self, permit: ConnectionPermit) -> Result<(), ConnectError> {
        let (spec, ping_timeout) = (&self.spec, self.spec.connect_timeout);
        let opening = async {
            let stream = EndpointStream::open(&spec.endpoint, self.state.resolved, spec.tls.as_ref(), None).await?;
            stream.require_h2()?;
            H2Connection::open(stream, ping_timeout, Some(permit)).await
        };
        let (connection, driver) = in_time(opening, ping_timeout).await?;
        spawn_local(driver.run());
        connection.mark_idle(self.sweeps());
        self.h2.add(connection);
        Ok(())
    }

    /// Waits for a connection that is being opened, and takes a stream of it. None if other requests took all streams.
    pub(crate) async fn stream_on(
        self: &Rc<Self>,
        pending: &PendingConnection,
    ) -> Result<Option<StreamPermit>, ConnectError> {
        pending.wait(&self.spec.endpoint).await?;
        let permit = self.stream();
        self.retire_surplus();
        Ok(permit)
    }

    /// A stream of `connection` has ended, or did not begin.
    fn stream_ended(&self, connection: &H2Connection) {
        if connection.is_idle() {
            connection.mark_idle(self.sweeps());
            self.retire_surplus();
            if self.has_ceiling_waiters() {
                connection.retire();
            }
        }
        if self.wake_waiters() == Some(false) {
            // The first waiter is on another worker and cannot use this connection. Closing it frees a permit for it.
            connection.retire();
        }
    }

    fn retire_surplus(&self) {
        let max_idle = if self.is_closed() { Some(0) } else { self.spec.max_idle };
        if let Some(max_idle) = max_idle {
            self.h2.retire_surplus(max_idle);
        }
    }
}
