//! What every test needs: a Weir, an upstream that records what reaches it, and clients that send bytes.

mod client;
mod upstream;
mod weir;

pub use client::{Answer, Client};
pub use upstream::{Received, Upstream};
pub use weir::Weir;

use std::time::Duration;

/// How long anything may take before a test gives up on it. Nothing takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);
