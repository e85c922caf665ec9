//! The kinds of stores: one table, from the settings of a store to the store.

use std::sync::Arc;

use super::etcd::EtcdStore;
use super::etcd::settings::EtcdSettings;
use super::redis::Store;
use super::redis::settings::StoreSettings;
use super::service::Limiter;
use super::service::settings::LimiterSettings;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::limit::Key;
use crate::engine::store::RemoteStore;
use crate::transport::net::tls::{service_tls, store_tls};

/// The settings of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteSettings {
    /// Of Redis.
    Redis(StoreSettings),
    /// Of the limiter service of another Weir.
    Service(LimiterSettings),
    /// Of etcd.
    Etcd(EtcdSettings),
}

impl RemoteSettings {
    /// The name of the store.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Redis(settings) => &settings.name,
            Self::Service(settings) => &settings.name,
            Self::Etcd(settings) => &settings.name,
        }
    }

    /// The store with these settings. `proof` shows a limiter that the fleet secret is known.
    ///
    /// # Errors
    /// Why TLS to the store cannot be used.
    pub fn store(&self, proof: Key, clock: Clock, metrics: &Metrics) -> Result<RemoteStore, String> {
        Ok(match self.clone() {
            Self::Redis(settings) => {
                let tls = settings.tls.as_ref().map(store_tls).transpose()?;
                RemoteStore::new(Store::new(settings, tls, clock, metrics))
            }
            Self::Service(settings) => {
                let tls = settings.tls.as_ref().map(service_tls).transpose()?;
                RemoteStore::new(Limiter::new(settings, tls, proof, clock, metrics))
            }
            Self::Etcd(settings) => {
                let tls = settings.tls.as_ref().map(service_tls).transpose()?;
                RemoteStore::new(EtcdStore::new(settings, tls, clock, metrics))
            }
        })
    }

    /// Whether `store` was made from these settings.
    pub fn made(&self, store: &RemoteStore) -> bool {
        match self {
            Self::Redis(settings) => store.of_kind().is_some_and(|store: &Store| &store.settings == settings),
            Self::Service(settings) => store.of_kind().is_some_and(|store: &Limiter| &store.settings == settings),
            Self::Etcd(settings) => store.of_kind().is_some_and(|store: &EtcdStore| &store.settings == settings),
        }
    }
}
