//! What every test needs: a Weir, an upstream that records what reaches it, and clients that send bytes.

mod client;
mod h2;
mod upstream;
mod weir;

pub use client::{Answer, Client};
pub use h2::{H2Answer, H2Client, over_h2};
pub use upstream::{Peer, Received, Upstream};
pub use weir::Weir;

use std::time::Duration;

/// How long anything may take before a test gives up on it. Nothing takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);
