//! What stores of all kinds share in tests.

use std::sync::Arc;
use std::time::Duration;

use super::health::StoreContext;
use super::settings::{RemoteSettings, Servers};
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::store::backend::OnFailure;

impl StoreContext {
    /// The context of a store of any kind.
    pub(in crate::fleet::stores) fn of_test(on_failure: OnFailure, timeout: Duration, clock: Clock) -> Arc<Self> {
        let servers = Servers::Service { host: "limiter".into(), port: 1 };
        let settings = RemoteSettings { name: "main".into(), servers, tls: None, timeout, on_failure };
        Self::new(settings, clock, &Metrics::new("", "").unwrap())
    }
}
