//! Metrics of a configuration from etcd or HTTPS, which exist only with such a configuration.

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

/// The metrics of a remote configuration.
#[derive(Debug)]
pub struct RemoteConfigMetrics {
    revision: IntGauge,
    info: IntGaugeVec,
    /// 1 if etcd or the web server answers.
    pub reachable: IntGauge,
}

impl RemoteConfigMetrics {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let info = Opts::new("weir_config_info", "1, with the revision of the configuration in force.");
        Ok(Self {
            revision: IntGauge::new("weir_config_revision", "The revision in etcd of the configuration in force.")?,
            info: IntGaugeVec::new(info, &["revision"])?,
            reachable: IntGauge::new("weir_config_source_reachable", "1 if the source of the configuration answers.")?,
        })
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.revision.clone()))?;
        registry.register(Box::new(self.info.clone()))?;
        registry.register(Box::new(self.reachable.clone()))
    }

    /// Records the revision in force. An `ETag` is no number, so its number is 0.
    pub fn in_force(&self, revision: &str) {
        self.info.reset();
        self.info.with_label_values(&[revision]).set(1);
        self.revision.set(revision.parse().unwrap_or(0));
    }
}
