//! Active health checks: sends each endpoint a GET at an interval, on the control runtime.
//!
//! An endpoint is healthy until checks say otherwise, so that a start or a reload does not wait for them.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::directory::Directory;
use super::exchange::head::{self, OwnHead};
use super::h2::connection;
use super::pool::stream::EndpointStream;
use super::settings::{Health, Upstream};
use super::state::EndpointState;
use crate::base::fields::Spans;
use crate::transport::http1;
use crate::transport::net::Protocol;
use crate::transport::net::buffer::OutputBuffer;
use crate::transport::net::proxy_protocol::{self, Version};
use crate::transport::net::tls::ClientTls;

/// The task that checks one endpoint; it ends when this is dropped.
struct HealthTask {
    state: Arc<EndpointState>,
    settings: CheckSettings,
    _task: JoinSet<()>,
}

/// How an endpoint is checked.
#[derive(Clone, PartialEq)]
struct CheckSettings {
    health: Health,
    tls: Option<ClientTls>,
    protocol: Protocol,
    /// The version of the PROXY header with which the connection begins.
    proxy_protocol: Option<Version>,
}

impl CheckSettings {
    /// None if the upstream has no checks.
    fn of(settings: &Upstream) -> Option<Self> {
        let &Upstream { ref health, ref tls, protocol, proxy_protocol, .. } = settings;
        Some(Self { health: health.clone()?, tls: tls.clone(), protocol, proxy_protocol })
    }
}

/// Runs all configured checks, also after each reload, until dropped.
pub(crate) async fn check_health(directory: Arc<impl Directory>) {
    let mut changes = directory.changes();
    let mut running: Vec<HealthTask> = Vec::new();
    loop {
        let in_force = directory.in_force();
        let upstreams = in_force.settings.iter().zip(&in_force.states);
        let configured: Vec<_> = upstreams
            .filter_map(|(settings, state)| Some((CheckSettings::of(settings)?, &state.endpoints)))
            .flat_map(|(settings, endpoints)| endpoints.iter().map(move |state| (settings.clone(), state)))
            .collect();
        let checks = |task: &HealthTask, state| Arc::ptr_eq(&task.state, state);
        for task in &running {
            if configured.iter().all(|(_, state)| !checks(task, state)) {
                task.state.set_health(None); // no later check could do that
            }
        }
        running.retain(|task| {
            let mut configured = configured.iter();
            configured.any(|(settings, state)| checks(task, state) && task.settings == *settings)
        });
        for (settings, state) in configured {
            if running.iter().all(|task| !checks(task, state)) {
                let state = Arc::clone(state);
                let mut task = JoinSet::new();
                task.spawn(check(Arc::clone(&state), settings.clone()));
                running.push(HealthTask { state, settings, _task: task });
            }
        }
        drop(in_force);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Checks one endpoint repeatedly and never returns.
async fn check(state: Arc<EndpointState>, settings: CheckSettings) {
    let health = &settings.health;
    let mut ticks = interval(health.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut streak = 0;
    loop {
        ticks.tick().await;
        let failure = probe(&state, &settings).await.err();
        // The number of results in a row that contradict the present state.
        streak = if failure.is_none() == state.is_healthy() { 0 } else { streak + 1 };
        let threshold = if failure.is_none() { health.healthy_after } else { health.unhealthy_after };
        if streak >= threshold {
            streak = 0;
            let (upstream, endpoint) = (&*state.upstream, &state.endpoint);
            match &failure {
                None => tracing::info!(upstream, %endpoint, "an endpoint is healthy again"),
                Some(error) => tracing::warn!(upstream, %endpoint, %error, "an endpoint is unhealthy"),
            }
            state.set_health(failure.map(|error| error.to_string()));
        }
    }
}

/// Checks once. Errs unless the status is between 200 and 399.
async fn probe(state: &EndpointState, settings: &CheckSettings) -> io::Result<()> {
    let status = timeout(settings.health.timeout, status(state, settings));
    match status.await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))?? {
        200..=399 => Ok(()),
        status => Err(io::Error::other(format!("the status is {status}"))),
    }
}

async fn status(state: &EndpointState, settings: &CheckSettings) -> io::Result<u16> {
    let preamble = settings.proxy_protocol.map(proxy_protocol::local);
    let mut stream = EndpointStream::open(&state.endpoint, state.resolved, settings.tls.as_ref(), preamble).await?;
    let (host, head) = (&*state.endpoint.host, OwnHead { target: &settings.health.path });
    if settings.protocol == Protocol::H2 {
        let request = head::encode_h2(&head, host, state.endpoint.scheme()).ok_or(io::ErrorKind::InvalidInput)?;
        return connection::probe(stream, request).await;
    }
    let mut out = OutputBuffer::default();
    head::encode_h1(out.bytes(), &head, host);
    poll_fn(|cx| stream.poll_send(cx, &mut out)).await?;
    let (mut read, mut spans) = (Vec::new(), Spans::default());
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(head) = http1::parse_response(&mut read, false, &mut spans).map_err(io::Error::other)? {
            if head.status >= 200 {
                return Ok(head.status);
            }
            read.drain(..head.len);
        }
    }
}
