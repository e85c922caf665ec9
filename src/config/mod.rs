//! TOML to validated runtime values.
//!
//! A configuration compiles whole or not at all, and all of its problems are reported at once. Nothing here watches
//! files, logs or decides about requests.

pub mod api_keys;
mod change;
mod load;

mod schema;

mod reader;

mod compile;

mod overrides;

mod derived;
mod diagnostics;
mod difference;
mod effective;
mod files;
mod json_schema;
mod redact;
mod sources;
mod written;

#[cfg(test)]
mod tests;

pub use change::{Changed, change};
pub use compile::limit::DEFAULT_LIMIT;
pub use compile::{AdminSettings, Config, GrpcSettings, PeerSettings};
pub use diagnostics::Diagnostics;
pub use difference::{Difference, listed};
pub use effective::{InForce, SettingFilter};
pub use json_schema::json_schema;
pub use load::{ConfigInForce, Origin, compile, compile_at, compile_with_empty, load, load_after, load_in_force};
pub use overrides::{OverridesInForce, OverridesPlace, RunTimeOverrides};
pub use schema::{Kind, Opt, Preset, options};
pub use sources::Sources;
pub use written::Written;
