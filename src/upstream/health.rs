//! Active checks: asks each endpoint every so often whether it is well, from the control runtime.
//!
//! An endpoint is well until checks say otherwise, so that a start or a reload does not wait for them.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::directory::Directory;
use super::settings::{Health, Upstream};
use super::state::EndpointState;
use super::transport::Transport;
use super::{head_h2, trunk};
use crate::fields::Spans;
use crate::http1;
use crate::net::Protocol;
use crate::net::buffer::Out;
use crate::net::proxy_protocol::{self, Version};
use crate::net::tls::ClientTls;

/// Checks on one endpoint, for as long as this is kept.
struct Checks {
    state: Arc<EndpointState>,
    way: Way,
    task: AbortHandle,
}

/// How an endpoint is asked.
#[derive(Clone, PartialEq)]
struct Way {
    health: Health,
    tls: Option<ClientTls>,
    protocol: Protocol,
    /// Connections to it begin with a header, also this one.
    proxy_protocol: Option<Version>,
}

impl Way {
    /// None if it is not asked.
    fn of(settings: &Upstream) -> Option<Self> {
        let &Upstream { ref health, ref tls, protocol, proxy_protocol, .. } = settings;
        Some(Self { health: health.clone()?, tls: tls.clone(), protocol, proxy_protocol })
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Checks whatever is configured to be checked, and goes on as configured after each reload; until dropped.
pub(crate) async fn check_health(directory: Arc<impl Directory>) {
    let mut changes = directory.changes();
    let mut running: Vec<Checks> = Vec::new();
    loop {
        let in_force = directory.in_force();
        let upstreams = in_force.settings.iter().zip(&in_force.states);
        let wanted: Vec<_> = upstreams
            .filter_map(|(settings, state)| Some((Way::of(settings)?, &state.endpoints)))
            .flat_map(|(way, endpoints)| endpoints.iter().map(move |state| (way.clone(), state)))
            .collect();
        let is_same = |one: &Checks, state| Arc::ptr_eq(&one.state, state);
        for one in &running {
            if wanted.iter().all(|(_, state)| !is_same(one, state)) {
                one.state.set_healthy(true); // nobody would notice that it is well again
            }
        }
        running.retain(|one| {
            let mut wanted = wanted.iter();
            wanted.any(|(way, state)| is_same(one, state) && one.way == *way)
        });
        for (way, state) in wanted {
            if running.iter().all(|one| !is_same(one, state)) {
                let state = Arc::clone(state);
                let task = tokio::spawn(check(Arc::clone(&state), way.clone())).abort_handle();
                running.push(Checks { state, way, task });
            }
        }
        drop(in_force);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Checks one endpoint for ever.
async fn check(state: Arc<EndpointState>, way: Way) {
    let health = &way.health;
    let mut ticks = interval(health.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut streak = 0;
    loop {
        ticks.tick().await;
        let failure = ask(&state, &way).await.err();
        // What contradicts the present state, in a row.
        streak = if failure.is_none() == state.is_healthy() { 0 } else { streak + 1 };
        let enough = if failure.is_none() { health.healthy_after } else { health.unhealthy_after };
        if streak >= enough {
            streak = 0;
            let endpoint = &state.endpoint;
            match &failure {
                None => tracing::info!(%endpoint, "an endpoint is well again"),
                Some(error) => tracing::warn!(%endpoint, %error, "an endpoint is not well"),
            }
            state.set_healthy(failure.is_none());
        }
    }
}

/// Asks once. Any status from 200 to 399 is well.
async fn ask(state: &EndpointState, way: &Way) -> io::Result<()> {
    let status = timeout(way.health.timeout, status(state, way));
    match status.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"))?? {
        200..=399 => Ok(()),
        status => Err(io::Error::other(format!("it answered {status}"))),
    }
}

async fn status(state: &EndpointState, way: &Way) -> io::Result<u16> {
    let preamble = way.proxy_protocol.map(proxy_protocol::local);
    let mut socket = Transport::open(&state.endpoint, state.resolved, way.tls.as_ref(), preamble).await?;
    let mut out = Out::default();
    let (host, path) = (&state.endpoint.host, &way.health.path);
    write!(out.bytes(), "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: weir\r\nconnection: close\r\n\r\n")?;
    if way.protocol == Protocol::H2 {
        let request = head_h2::request(out.bytes(), state.endpoint.scheme()).ok_or(io::ErrorKind::InvalidInput)?;
        return trunk::ask(socket, request).await;
    }
    poll_fn(|cx| socket.poll_send(cx, &mut out)).await?;
    let (mut read, mut spans) = (Vec::new(), Spans::default());
    loop {
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(head) = http1::parse(&mut read, false, &mut spans).map_err(io::Error::other)? {
            if head.status >= 200 {
                return Ok(head.status);
            }
            read.drain(..head.len);
        }
    }
}
