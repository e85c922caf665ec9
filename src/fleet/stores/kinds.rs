//! The kinds of stores: one table, from the settings of a store to the store.

use super::driver::{RemoteSettings, Servers, StoreContext};
use super::etcd::EtcdStore;
use super::redis::Store;
use super::service::Limiter;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::limit::Key;
use crate::engine::store::RemoteStore;
use crate::transport::net::tls::{service_tls, store_tls};

impl RemoteSettings {
    /// The store with these settings. `proof` shows a limiter that the fleet secret is known.
    ///
    /// # Errors
    /// Why TLS to the store cannot be used.
    pub fn store(self, proof: Key, clock: Clock, metrics: &Metrics) -> Result<RemoteStore, String> {
        let tls = if matches!(self.servers, Servers::Redis { .. }) { store_tls } else { service_tls };
        let (tls, servers) = (self.tls.as_ref().map(tls).transpose()?, self.servers.clone());
        // The series of the store begin here, so nothing after this fails.
        let context = StoreContext::new(self, clock, metrics);
        Ok(match servers {
            Servers::Redis { topology, login, prefix } => {
                RemoteStore::new(Store::new(context, tls, topology, &login, &prefix))
            }
            Servers::Service { host, port } => RemoteStore::new(Limiter::new(context, tls, (host, port), proof)),
            Servers::Etcd { members, login, prefix } => {
                RemoteStore::new(EtcdStore::new(context, tls, (members, login), prefix))
            }
        })
    }
}
