//! TOML to validated runtime values.
use crate::{admin, gate, policy, proxy, telemetry};
/// A configuration, compiled.
#[derive(Debug)]
pub struct Config {
    /// Fixed at start.
    pub fixed: proxy::settings::Fixed,
    /// The data path.
    pub proxy: proxy::settings::Settings,
    /// What is decided.
    pub policy: policy::Policy,
    /// How much may wait.
    pub hold: gate::HoldCaps,
    /// Verified tokens remembered.
    pub max_tokens: usize,
    /// The admin listener, fixed at start.
    pub admin: admin::Settings,
    /// Logs; only the access log changes on reload.
    pub log: telemetry::LogSettings,
    /// Files it was read from: itself, keys, secrets. A change of any is a reason to reload.
    pub files: Vec<std::path::PathBuf>,
}
