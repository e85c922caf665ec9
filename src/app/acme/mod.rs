//! Orders the certificate of `server.tls.acme`, stores it, and renews it in the background.
//!
//! [`RenewalSchedule`] computes when an order is due; `order` makes it; `files` keeps the account and the certificate. A failed
//! order changes nothing: the certificate in use stays.

mod client;
mod files;
mod order;
mod schedule;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use client::{Client, RetryDelay};
use files::Files;
use order::{in_background, order};
use schedule::RenewalSchedule;

use super::fetch::Trust;
use crate::base::time::{Timestamp, system_now};
use crate::transport::net::Lifecycle;
use crate::transport::net::lifecycle::{draining, wait_for};
use crate::transport::net::tls::{Acme, AcmeSettings, ServerCertificate};
use crate::transport::proxy::SharedState;

/// The bound on the time of an order.
const ORDER_MAX: Duration = Duration::from_mins(10);
/// The longest sleep, so that an order is not late by more if the date of the system changes.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// Shows the stored certificate, before the first client connects.
pub(super) fn restore(shared: &SharedState) {
    if let Some(acme) = in_force(shared) {
        // A damaged file is reported later.
        let read = Files::of(&acme.settings).certificate().unwrap_or_default();
        acme.show(stored(&acme.settings, Ok(read), system_now()));
    }
}

/// Orders and renews until the process drains. A successor that takes over orders by itself.
pub(super) async fn run(shared: Arc<SharedState>, mut lifecycle: watch::Receiver<Lifecycle>) {
    while wait_for(&mut lifecycle, |stage| stage != Lifecycle::HandingOver).await == Lifecycle::Running {
        tokio::select! {
            () = draining(&mut lifecycle) => {}
            never = follow(&shared) => match never {},
        }
    }
}

/// Follows the configuration in force.
async fn follow(shared: &Arc<SharedState>) -> Infallible {
    let mut reloads = shared.reloads.subscribe();
    loop {
        shared.metrics.acme.clear_times();
        let settings = in_force(shared).map(|acme| Arc::clone(&acme.settings));
        let replaced = async {
            while in_force(shared).map(|acme| Arc::clone(&acme.settings)) == settings {
                let _ = reloads.changed().await; // the sender lives as long as `shared`
            }
        };
        match &settings {
            None => replaced.await,
            Some(settings) => {
                tokio::select! {
                    () = replaced => {}
                    never = renew(shared, settings) => match never {},
                }
            }
        }
    }
}

/// The certificate by ACME of the configuration in force.
fn in_force(shared: &SharedState) -> Option<Arc<Acme>> {
    shared.running_config.load().settings.tls.as_ref()?.acme().map(Arc::clone)
}

/// Shows a certificate in the configuration in force, which may be newer than the order.
fn show(shared: &SharedState, settings: &AcmeSettings, certificate: &Arc<ServerCertificate>) {
    if let Some(acme) = in_force(shared) {
        acme.show(Some(Arc::clone(certificate)));
    }
    shared.metrics.acme.set_time(first(settings), certificate.valid()[1]);
}

/// The label of metrics: the first host.
fn first(settings: &AcmeSettings) -> &str {
    settings.domains.first().map_or("", String::as_str)
}

/// The certificate that was read, if it is valid for all hosts.
fn stored(
    settings: &AcmeSettings,
    read: Result<Option<ServerCertificate>, String>,
    now: Timestamp,
) -> Option<Arc<ServerCertificate>> {
    let read = read.unwrap_or_else(|error| {
        tracing::error!(%error, "the stored certificate cannot be used; Weir orders a new one");
        None
    });
    let is_whole = |read: &ServerCertificate| settings.domains.iter().all(|host| read.is_for(host));
    read.filter(|read| is_whole(read) && read.valid()[1] > now).map(Arc::new)
}

/// Orders a certificate when it is due, again and again.
async fn renew(shared: &Arc<SharedState>, settings: &Arc<AcmeSettings>) -> Infallible {
    let (files, clock) = (Files::of(settings), shared.gate.clock());
    let mut schedule = RenewalSchedule::default();
    shared.metrics.acme.expose(first(settings));
    let read = in_background(&files, Files::certificate).await;
    let mut current = stored(settings, read, system_now());
    if let Some(certificate) = &current {
        let expires = certificate.valid()[1].as_secs();
        tracing::info!(domains = ?settings.domains, expires, "stored certificate in use");
        show(shared, settings, certificate);
    }
    loop {
        let random = random();
        loop {
            let valid = current.as_ref().map(|certificate| certificate.valid());
            match schedule.until_due(valid, random, (system_now(), clock.now())) {
                0 => break,
                ns => sleep(Duration::from_nanos(ns).min(SLEEP_MAX)).await,
            }
        }
        let asked = RetryDelay::default();
        let outcome = attempt(shared, settings, &files, current.as_deref(), &asked).await;
        let now = clock.now();
        match outcome {
            Ok(None) => schedule.wait(now),
            Ok(Some(certificate)) => {
                schedule.succeeded(now, certificate.valid());
                current = Some(certificate);
            }
            Err(error) => {
                shared.metrics.acme.count(first(settings), false);
                schedule.failed(now, asked.take(), random);
                let retry_s = schedule.until_due(None, random, (system_now(), now)) / 1_000_000_000;
                tracing::error!(domains = ?settings.domains, %error, retry_s, "no certificate by ACME");
            }
        }
    }
}

/// A random number; if the system has none, an order is not spread.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Shows the certificate that another process has stored, or orders one. `None` if another process orders.
async fn attempt(
    shared: &Arc<SharedState>,
    settings: &Arc<AcmeSettings>,
    files: &Files,
    current: Option<&ServerCertificate>,
    asked: &RetryDelay,
) -> Result<Option<Arc<ServerCertificate>>, String> {
    let locked = in_background(files, |files| {
        let lock = files.lock().map_err(|error| format!("cannot use the folder of `server.tls.acme`: {error}"))?;
        Ok(lock.map(|lock| (lock, files.certificate())))
    });
    let Some((_lock, read)) = locked.await? else {
        tracing::debug!("another process orders the certificate");
        return Ok(None);
    };
    let until = current.map_or(Timestamp::ZERO, |current| current.valid()[1]);
    // A damaged file was reported when Weir read it first.
    if let Some(newer) =
        stored(settings, Ok(read.unwrap_or_default()), system_now()).filter(|read| read.valid()[1] > until)
    {
        show(shared, settings, &newer);
        tracing::info!(domains = ?settings.domains, "certificate of another process in use");
        return Ok(Some(newer));
    }
    let pem = ordered(shared, settings, files, asked).await?;
    let certificate = ServerCertificate::new(pem.as_bytes(), pem.as_bytes());
    let certificate = certificate.map_err(|error| format!("the issued certificate is invalid: {error}"))?;
    let certificate = Arc::new(certificate);
    shared.metrics.acme.count(first(settings), true);
    show(shared, settings, &certificate);
    if let Err(error) = in_background(files, move |files| files.save_certificate(pem.as_bytes())).await {
        tracing::error!(%error, "the certificate is in use, but a restart has to order it again");
    }
    let expires = certificate.valid()[1].as_secs();
    tracing::info!(domains = ?settings.domains, expires, "certificate issued");
    Ok(Some(certificate))
}

/// Orders in a task of its own, so that a panic is a failed order. The task ends with this future.
async fn ordered(
    shared: &Arc<SharedState>,
    settings: &Arc<AcmeSettings>,
    files: &Files,
    asked: &RetryDelay,
) -> Result<String, String> {
    tracing::info!(domains = ?settings.domains, "ordering a certificate");
    let tls = match &settings.trust {
        Some(tls) => Some(tls.clone()),
        None => Trust::default().tls_for(&settings.directory)?.cloned(),
    };
    let client = {
        let asked = asked.clone();
        move || Client { tls: tls.clone(), asked: asked.clone() }
    };
    let challenges = Challenges(Arc::clone(shared));
    let mut task = JoinSet::new();
    let (settings, files) = (Arc::clone(settings), files.clone());
    task.spawn(async move { order(&settings, &files, client, |answers| challenges.answer(answers)).await });
    let joined = timeout(ORDER_MAX, task.join_next()).await.map_err(|_| "the order takes too long".to_owned())?;
    joined.map_or_else(|| Err(String::new()), |ended| ended.map_err(|error| error.to_string())?)
}

/// The answers to the challenges of an order, in the configuration in force; none once it is dropped.
struct Challenges(Arc<SharedState>);

impl Challenges {
    fn answer(&self, answers: Vec<ServerCertificate>) -> Result<(), String> {
        in_force(&self.0).map_or(Ok(()), |acme| acme.answer(answers))
    }
}

impl Drop for Challenges {
    fn drop(&mut self) {
        let _ = self.answer(Vec::new()); // no certificates are always valid
    }
}
