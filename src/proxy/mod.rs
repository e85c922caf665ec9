//! The data path: accepts connections, takes requests through the gate, and forwards them.
//!
//! Each worker is one thread with a runtime of its own. What workers share is behind [`Shared`]: the gate,
//! the newest configuration and the metrics. Not here: which limits there are, and what a refusal says.

pub mod settings;

mod accept;
mod answer;
mod connection;
mod context;
mod date;
mod error;
mod forward;
mod h2;
mod host;
mod http1;
mod lifecycle;
mod over_h2;
mod passed;
mod request;
mod service;
mod tally;
mod tunnel;
mod untaken;
mod upgrade;
mod view;
mod worker;

pub use accept::run;
pub use lifecycle::Stage;
pub use view::Current;
pub use worker::Shared;
