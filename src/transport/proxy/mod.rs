//! The data path: accepts connections, passes requests through the gate, and forwards them.
//!
//! Each worker is one thread with its own runtime. [`SharedState`] holds what workers share: the gate, the running
//! configuration and the metrics.
//!
//! Not here: the limits, and the texts of refusals.

pub mod settings;

mod accept;
mod access_record;
mod admission;
mod answer;
mod check;
mod connection;
mod context;
mod date;
mod error;
mod forward;
mod hold;
mod host;
mod http1;
mod http2;
mod leaving;
mod own_fields;
mod own_limits;
mod read_ahead;
mod refusals;
mod replay;
mod request;
mod request_id;
mod running_config;
mod service;
mod stale;
mod tls_redirect;
mod trace_context;
mod tunnel;
mod untaken;
mod upgrade;
mod worker;

pub use accept::{WorkerService, run};
pub use running_config::RunningConfig;
pub use worker::{ConnectionCount, ListenerKind, SharedState};
