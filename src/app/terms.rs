//! The store connections and the secret that a new configuration must fit.
//!
//! Not here: reading it (`config`), putting it in force (`reload`), and settings that only a restart changes (`installed`).

use std::sync::Arc;

use super::stores::ProposedStores;
use crate::config::{self, Config, ConfigInForce, Diagnostics, Difference, Origin, OverridesInForce, Sources};
use crate::engine::policy::FleetSecret;
use crate::transport::proxy::SharedState;

/// The store connections and the secret that a new configuration must fit.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) shared: Arc<SharedState>,
    /// The secret of the fleet with which the process began.
    pub(super) fleet_secret: Option<FleetSecret>,
}

/// A configuration that this process can put in force.
pub(super) struct Accepted {
    pub(super) config: Config,
    pub(super) stores: ProposedStores,
    /// How it differs from the configuration in force.
    pub(super) difference: Difference,
}

/// The files of a configuration, and the configuration, or why it cannot be put in force.
pub(super) type Loaded = (Sources, Result<Box<Accepted>, String>);

impl Terms {
    /// Compiles the configuration at `origin` after one with the overrides `in_force`.
    pub(super) fn load(&self, origin: &Origin, in_force: &OverridesInForce) -> Result<Loaded, Diagnostics> {
        if let Some(bytes) = origin.large_bytes() {
            tracing::info!(bytes, "compiling a large configuration");
        }
        self.loaded(config::load_after(origin, Some(in_force)))
    }

    /// Compiles the configuration in force with the overrides on disk.
    pub(super) fn load_in_force(&self, in_force: &ConfigInForce) -> Result<Loaded, Diagnostics> {
        self.loaded(config::load_in_force(in_force))
    }

    fn loaded(&self, compiled: Result<Config, Diagnostics>) -> Result<Loaded, Diagnostics> {
        let config = compiled?;
        Ok((config.sources.clone(), self.accept(config)))
    }

    /// Makes the stores of `config`.
    ///
    /// # Errors
    /// Why `config` cannot be put in force.
    pub(super) fn accept(&self, config: Config) -> Result<Box<Accepted>, String> {
        let has_shared = config.policy.limits().iter().any(|limit| !limit.strategy.counts_alone());
        // Keys in a store are under the new secret, and the process has keys under the old one.
        if has_shared && self.fleet_secret != config.fleet_secret {
            let reason = "replicas count limits together, and `fleet.secret` changes only with a restart";
            return Err(reason.to_owned());
        }
        let stores = ProposedStores::of(&config, &self.shared)?;
        Ok(Box::new(Accepted { config, stores, difference: Difference::default() }))
    }
}
