//! The form of a configuration for workers, with the stores, tokens and TLS sessions of the one before.

use std::collections::HashSet;
use std::sync::Arc;

use crate::app::{fleet, stores};
use crate::base::telemetry::Metrics;
use crate::base::time::system_now;
use crate::config::Config;
use crate::engine::gate::Gate;
use crate::engine::store::{RemoteStore, TokenCache};
use crate::transport::net::tls::ServerTls;
use crate::transport::proxy::RunningConfig;
use crate::transport::upstream::Ceiling;

/// Installs a configuration with its stores in the gate, and returns its form for workers. If it differs from the
/// configuration before in overrides only, verified tokens stay cached.
pub(in crate::app) fn install(
    gate: &Gate,
    (mut config, stores): (Config, Vec<RemoteStore>),
    metrics: &Metrics,
    ceiling: &Arc<Ceiling>,
    before: Option<&RunningConfig>,
    only_overrides: bool,
) -> RunningConfig {
    metrics.overrides_left_out.set(i64::try_from(config.run_time.rejected_count).unwrap_or(i64::MAX));
    let fetched: HashSet<&str> = config.policy.fetched_keys().map(|(identity, _)| identity).collect();
    for identity in &fetched {
        metrics.jwks.expose(identity);
    }
    for (identity, _) in before.into_iter().flat_map(|before| before.live.policy.fetched_keys()) {
        if !fetched.contains(identity) {
            metrics.jwks.remove(identity);
        }
    }
    let tokens = match before.filter(|_| only_overrides) {
        Some(before) => Arc::clone(&before.live.tokens),
        None => Arc::new(TokenCache::new(config.max_tokens)),
    };
    config.policy = config.policy.ramped(system_now()).unwrap_or(config.policy);
    stores::set_replicas(&stores, config.policy.limits());
    fleet::warn_of_scarce_limits(&config.policy);
    let live = gate.install_with(config.policy, config.hold, tokens, &stores);
    RunningConfig::new((live, stores), config.proxy, config.log.access, metrics, ceiling, before)
}

/// If the TLS settings are unchanged, uses those in force, so that clients can resume their sessions. Otherwise continues
/// with their certificate by ACME.
pub(super) fn with_tls_sessions(mut config: Config, before: &RunningConfig) -> Config {
    let check = config.proxy.check.as_mut().zip(before.settings.check.as_ref());
    let check = check.map(|(new, before)| (&mut new.tls, &before.tls));
    for (new, before) in check.into_iter().chain([(&mut config.proxy.tls, &before.settings.tls)]) {
        if new == before {
            new.clone_from(before);
        } else if let Some((new, before)) =
            new.as_ref().and_then(ServerTls::acme).zip(before.as_ref().and_then(ServerTls::acme))
        {
            new.adopt(before);
        }
    }
    config
}
