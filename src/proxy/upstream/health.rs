//! Active checks: asks each endpoint every so often whether it is well, from the control runtime.
//!
//! An endpoint is well until checks say otherwise, so that a start or a reload does not wait for them.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::buffer::Out;
use super::super::h1;
use super::super::settings::Health;
use super::super::tls::ClientTls;
use super::super::worker::Shared;
use super::state::EndpointState;
use super::transport::Transport;
use crate::policy::Spans;

/// Checks on one endpoint, for as long as this is kept.
struct Checks {
    state: Arc<EndpointState>,
    health: Health,
    tls: Option<ClientTls>,
    task: AbortHandle,
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Checks whatever is configured to be checked, and goes on as configured after each reload; until dropped.
pub async fn check_health(shared: Arc<Shared>) {
    let mut reloads = shared.reloads.subscribe();
    let mut running: Vec<Checks> = Vec::new();
    loop {
        let current = shared.current.load_full();
        let upstreams = current.settings.upstreams.iter().zip(&current.upstreams);
        let wanted: Vec<_> = upstreams
            .filter_map(|(settings, state)| Some((settings, settings.health.as_ref()?, &state.endpoints)))
            .flat_map(|(settings, health, endpoints)| endpoints.iter().map(move |state| (health, &settings.tls, state)))
            .collect();
        let is_same = |one: &Checks, state| Arc::ptr_eq(&one.state, state);
        for one in &running {
            if wanted.iter().all(|(.., state)| !is_same(one, state)) {
                one.state.set_healthy(true); // nobody would notice that it is well again
            }
        }
        running.retain(|one| {
            let mut wanted = wanted.iter();
            wanted.any(|(health, tls, state)| is_same(one, state) && one.health == **health && one.tls == **tls)
        });
        for (health, tls, state) in wanted {
            if running.iter().all(|one| !is_same(one, state)) {
                let (state, health, tls) = (Arc::clone(state), health.clone(), tls.clone());
                let task = tokio::spawn(check(Arc::clone(&state), health.clone(), tls.clone())).abort_handle();
                running.push(Checks { state, health, tls, task });
            }
        }
        drop(current);
        if reloads.changed().await.is_err() {
            return;
        }
    }
}

/// Checks one endpoint for ever.
async fn check(state: Arc<EndpointState>, health: Health, tls: Option<ClientTls>) {
    let mut ticks = interval(health.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut streak = 0;
    loop {
        ticks.tick().await;
        let failure = ask(&state, &health, tls.as_ref()).await.err();
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
async fn ask(state: &EndpointState, health: &Health, tls: Option<&ClientTls>) -> io::Result<()> {
    let status = timeout(health.timeout, status(state, &health.path, tls));
    match status.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"))?? {
        200..=399 => Ok(()),
        status => Err(io::Error::other(format!("it answered {status}"))),
    }
}

async fn status(state: &EndpointState, path: &str, tls: Option<&ClientTls>) -> io::Result<u16> {
    let mut socket = Transport::open(&state.endpoint, state.resolved, tls).await?;
    let mut out = Out::default();
    let host = &state.endpoint.host;
    write!(out.bytes(), "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: weir\r\nconnection: close\r\n\r\n")?;
    poll_fn(|cx| socket.poll_send(cx, &mut out)).await?;
    let (mut read, mut spans) = (Vec::new(), Spans::default());
    loop {
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(head) = h1::parse(&read, false, &mut spans).map_err(io::Error::other)? {
            if head.status >= 200 {
                return Ok(head.status);
            }
            read.drain(..head.len);
        }
    }
}
