//! The stores of limits: made with a configuration, kept by a reload that does not change their settings, and run on the
//! control runtime.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::error::AppError;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::config::Config;
use crate::engine::policy::{KeySecret, Limit};
use crate::engine::store::backend::Mirrors;
use crate::engine::store::{LEASE_NS, RemoteStore};
use crate::fleet::stores::driver::RemoteSettings;
use crate::transport::proxy::SharedState;
use crate::transport::upstream::Directory;

/// The time in which a store that is no longer needed must hear of the last charges.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between looks whether a store is still needed.
const END_PAUSE: Duration = Duration::from_secs(1);

/// The stores of the first configuration.
pub(super) fn first(config: &Config, clock: Clock, metrics: &Metrics) -> Result<Vec<RemoteStore>, AppError> {
    stores(config, &[], clock, metrics).map_err(AppError::system("use the stores"))
}

/// The stores of `config`, in their order. A store of `before` with equal settings is kept. For one with other settings,
/// a server of Redis gets the states of this process first: it may have keys from an earlier time.
///
/// # Errors
/// Why TLS to a store cannot be used.
fn stores(
    config: &Config,
    before: &[RemoteStore],
    clock: Clock,
    metrics: &Metrics,
) -> Result<Vec<RemoteStore>, String> {
    // A store requires a secret, unless no limit uses it.
    let secret =
        config.fleet_secret.as_ref().map(|secret| KeySecret::new(secret.key_secret()).proof()).unwrap_or_default();
    let store = |settings: &RemoteSettings| -> Result<RemoteStore, String> {
        let known = before.iter().find(|store| store.settings().downcast_ref() == Some(settings)).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = settings.clone().store(secret, clock, metrics)?;
        if before.iter().any(|store| *store.name() == settings.name) {
            made.bring_first();
        }
        Ok(made)
    };
    let mut made = Vec::new();
    for settings in &config.stores {
        match store(settings) {
            Ok(store) => made.push(store),
            Err(reason) => {
                retire_unused(&made, before, metrics);
                return Err(format!("TLS to the store {}: {reason}", settings.name));
            }
        }
    }
    Ok(made)
}

/// The stores of a configuration that may come in force. Those that do not lose their series on its drop.
pub(super) struct ProposedStores {
    pub(super) all: Vec<RemoteStore>,
    shared: Arc<SharedState>,
}

impl ProposedStores {
    /// The stores of `config`, in their order. Those of the configuration in force are among them.
    ///
    /// # Errors
    /// Why TLS to a store cannot be used.
    pub(super) fn of(config: &Config, shared: &Arc<SharedState>) -> Result<Self, String> {
        let in_force = shared.running_config.load();
        let all = stores(config, &in_force.stores, shared.gate.clock(), &shared.metrics)?;
        Ok(Self { all, shared: Arc::clone(shared) })
    }
}

impl Drop for ProposedStores {
    fn drop(&mut self) {
        retire_unused(&self.all, &self.shared.running_config.load().stores, &self.shared.metrics);
    }
}

/// Removes the series of those stores that are not in force.
fn retire_unused(stores: &[RemoteStore], in_force: &[RemoteStore], metrics: &Metrics) {
    for store in stores.iter().filter(|store| !in_force.iter().any(|other| store.is(other))) {
        store.retire(in_force, metrics);
    }
}

/// Tells stores the size of the fleet, as `limits` have it.
pub(super) fn set_replicas(stores: &[RemoteStore], limits: &[Limit]) {
    for (index, store) in stores.iter().enumerate() {
        let strategies = limits.iter().map(|limit| limit.strategy).filter(|strategy| strategy.store() == Some(index));
        store.set_replicas(strategies.map(|strategy| strategy.replicas()).max().unwrap_or(1));
    }
}

/// Runs the stores of the configuration in force.
pub(super) async fn run(shared: Arc<SharedState>) {
    let mut changes = shared.changes();
    let mut running: Vec<(RemoteStore, JoinHandle<()>)> = Vec::new();
    let mut ticks = interval(Duration::from_nanos(LEASE_NS / 4));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wanted = shared.running_config.load().stores.clone();
        for store in &wanted {
            if !running.iter().any(|(known, _)| known.is(store)) {
                running.push((store.clone(), tokio::spawn(store.run(Arc::clone(&shared.gate) as Arc<dyn Mirrors>))));
            }
        }
        let is_unused = |store: &RemoteStore| !wanted.iter().any(|other| store.is(other));
        for (store, task) in running.extract_if(.., |(store, _)| is_unused(store)) {
            store.retire(&wanted, &shared.metrics);
            tokio::spawn(end(store, task));
        }
        loop {
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                _ = ticks.tick(), if !wanted.is_empty() => shared.running_config.load().live.return_leases(false),
            }
        }
    }
}

/// Ends a store that is in force no more, after all requests that it has charged. Until then it renews their units in
/// flight, and sends what they give back.
async fn end(store: RemoteStore, task: JoinHandle<()>) {
    while store.has_clones() {
        sleep(END_PAUSE).await;
    }
    let _ = timeout(FLUSH_TIMEOUT, store.flushed()).await;
    task.abort();
}

/// Returns all leases, and waits until the stores in force know of all charges, if they answer in time.
pub(super) async fn flush(shared: &SharedState) {
    shared.running_config.load().live.return_leases(true);
    let stores = shared.running_config.load().stores.clone();
    let flushes: Vec<_> = stores.into_iter().map(|store| tokio::spawn(async move { store.flushed().await })).collect();
    let all = async {
        for flush in flushes {
            let _ = flush.await;
        }
    };
    let _ = timeout(FLUSH_TIMEOUT, all).await;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::engine::store::testing::NoMirrors;

    fn made(text: &str, before: &[RemoteStore], clock: Clock, metrics: &Metrics) -> Vec<RemoteStore> {
        let text = format!("[upstream]\nurl = 'http://127.0.0.1:9'\n{text}");
        let config = config::compile(&text, "", Path::new(""), &|_| None).unwrap();
        stores(&config, before, clock, metrics).unwrap()
    }

    #[test]
    fn a_store_that_does_not_come_in_force_leaves_no_series() {
        let (clock, metrics) = (Clock::start(), Metrics::new("", "").unwrap());
        let of = |text: &str, before: &[RemoteStore]| made(text, before, clock, &metrics);
        let has_series = |name: &str| {
            let shown = String::from_utf8(metrics.render().unwrap()).unwrap();
            shown.contains(&format!("store=\"{name}\""))
        };
        let in_force = of("[store.a]\nredis = 'redis://a'", &[]);
        let proposed = of("[store.a]\nredis = 'redis://a'\n[store.b]\nredis = 'redis://b'", &in_force);
        assert!(has_series("a") && has_series("b"));
        retire_unused(&proposed, &in_force, &metrics);
        assert!(has_series("a") && !has_series("b"));
    }

    #[test]
    fn a_store_that_was_replaced_shows_nothing() {
        let (clock, metrics) = (Clock::start(), Metrics::new("", "").unwrap());
        let before = made("[store.a]\nredis = 'redis://a'", &[], clock, &metrics);
        let after = made("[store.a]\nredis = 'redis://a'\ntimeout = '9ms'", &before, clock, &metrics);
        before[0].retire(&after, &metrics);
        assert!(before[0].metrics().up("b").is_none());
        before[0].metrics().remove_node("a:6379");
        let shown = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(shown.contains("weir_store_up{node=\"a:6379\",store=\"a\"}"), "{shown}");
    }

    #[test]
    fn a_store_is_kept_while_its_settings_are_equal() {
        let (clock, metrics) = (Clock::start(), Metrics::new("", "").unwrap());
        let of = |text: &str, before: &[RemoteStore]| made(text, before, clock, &metrics);
        let before = of("[store.a]\nredis = 'redis://a'\n[store.b]\nredis = 'redis://b'", &[]);
        let after = of("[store.a]\nredis = 'redis://a'\ntimeout = '9ms'\n[store.b]\nredis = 'redis://b'", &before);
        let kept = |store: &RemoteStore| before.iter().position(|known| known.is(store));
        assert_eq!(after.iter().map(kept).collect::<Vec<_>>(), [None, Some(1)]);
    }

    /// A store works on for requests that it has charged, and ends after the last of them.
    #[tokio::test(start_paused = true)]
    async fn a_store_ends_after_the_last_request() {
        let (clock, metrics) = (Clock::start(), Metrics::new("", "").unwrap());
        let text = "[store.a]\nredis = 'redis://127.0.0.1:1'\n[store.b]\nservice = 'http://127.0.0.1:1'\n\
                    [store.c]\netcd = 'http://127.0.0.1:1'";
        for store in made(text, &[], clock, &metrics) {
            let task = tokio::spawn(store.run(Arc::new(NoMirrors)));
            let (request, worker, runs) = (store.clone(), store.connect(), task.abort_handle());
            let ends = tokio::spawn(end(store, task));
            sleep(Duration::from_mins(1)).await;
            assert!(!runs.is_finished(), "{}", request.name());
            drop((request, worker));
            ends.await.unwrap();
            sleep(Duration::from_millis(1)).await;
            assert!(runs.is_finished());
        }
    }
}
