//! Runs Weir: builds the state, starts the workers, reloads, drains, and hands over to a successor.
//!
//! Workers serve requests on threads of their own. The control runtime, on the caller's thread, serves operators, sweeps
//! idle keys, watches files and takes signals; no request waits for it.

mod build;
mod control;
mod drain;
mod installed;
mod reload;
mod takeover;
mod traces;

pub mod remote;

mod snapshots;
mod stores;
mod terms;

mod acme;
mod adapt;
mod api_keys;
mod config_reader;
mod jwks;
mod listeners;
mod operators;
mod overload;

mod descriptors;
mod error;
pub(crate) mod exchange;
mod fetch;
mod files;
mod fleet;
mod fleet_overrides;
mod override_changes;
mod overrides_copy;
mod signals;
mod stoppable;
mod systemd;
mod versions;
mod workers;

pub use build::App;
pub use config_reader::check_body;
pub use error::AppError;
pub(crate) use operators::routing;
pub use signals::ignore_signals;
