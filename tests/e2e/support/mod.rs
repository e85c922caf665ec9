//! What every test needs: a Weir, an upstream that records what reaches it, and clients that send bytes.

mod client;
mod dns;
mod h2;
mod h2_service;
mod servers;
mod tls;
mod upstream;
mod weir;

pub use client::{Answer, Client};
pub use dns::{Dns, Known, Record};
pub use h2::{Channel, H2Answer, H2Client, over_h2, over_h2_tls};
pub use h2_service::{Call, H2Service, Taking, send_all};
pub use servers::{Kind, Server};
pub use tls::{Cert, TlsClient, connect_tls, trusting};
pub use upstream::{Peer, Received, Upstream, echo};
pub use weir::{NEVER, Weir};

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it. Nothing takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Looks until there is something to see.
pub fn poll<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < until, "nothing to see");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
