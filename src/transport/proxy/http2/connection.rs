//! Connections over HTTP/2, from their first byte to their end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::task::spawn_local;

use super::super::settings::Bounds;
use super::super::untaken::Hold;
use super::super::upgrade;
use super::super::worker::{OpenConnection, Worker};
use super::driver::{Cause, Driver};
use super::link::{Link, StreamHandle};
use super::stream::{self, Incoming};
use crate::base::time;
use crate::transport::http2::{Config, Connection};
use crate::transport::net::buffer::{InputBuffer, OutputBuffer};
use crate::transport::net::lifecycle::{Lifecycle, draining};
use crate::transport::net::peer::Peer;
use crate::transport::net::stream::Stream;

/// Serves a connection, which counts as open and on which `first` has been read, until it ends.
pub(in crate::transport::proxy) async fn serve(
    worker: Rc<Worker>,
    _open: OpenConnection,
    (stream, first): (Stream, InputBuffer),
    peer: Peer,
    bounds: Bounds,
    mut stage: watch::Receiver<Lifecycle>,
) {
    let view = worker.config.current();
    let config = Config {
        max_streams: bounds.max_h2_streams,
        max_head_bytes: bounds.max_head_bytes,
        max_fields: bounds.max_headers,
        takes_protocol: upgrade::takes_connect(&view.running.settings),
    };
    let timeouts = Rc::clone(&view.timeouts);
    drop(view); // a connection may outlive many
    let (mut out, buffers, peer) = (OutputBuffer::default(), Rc::clone(&worker.buffers), Rc::new(peer));
    out.prepare(&buffers);
    let link = Link::new(Connection::new(config, out.bytes()), out, buffers);
    let hold = Hold::new(&worker.untaken);
    let mut driver = Driver::new(stream, first, Rc::clone(&link), timeouts, bounds.max_requests, hold);
    let mut ends = pin!(draining(&mut stage));
    let (mut listens, mut is_ending) = (false, false);
    let cause = poll_fn(|cx| {
        // Asked once, it wakes this task: asking every time would cost every request.
        if !is_ending && (!listens || worker.is_draining()) {
            listens = true;
            // Unconstrained: a task without budget would not be put among those to be woken.
            is_ending = pin!(unconstrained(ends.as_mut())).poll(cx).is_ready();
            if is_ending {
                driver.announce_end();
            }
        }
        driver.poll(cx, &mut |key, head, has_ended| {
            let (stream, began) = (StreamHandle::new(&link, key), time::instant_now());
            let incoming = Incoming { head, has_ended, began };
            spawn_local(stream::serve(Rc::clone(&worker), Rc::clone(&peer), stream, incoming));
        })
    });
    let cause = cause.await;
    if let Cause::Fatal(fatal) = cause {
        worker.shared.metrics.problems.with_label_values(&[fatal.kind()]).inc();
        tracing::debug!(peer = %peer.text, reason = fatal.reason, "connection ended");
    }
    driver.close(cause).await;
}
