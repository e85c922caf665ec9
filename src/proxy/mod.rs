//! The data path: accepts connections, takes requests through the gate, and forwards them.
//!
//! Each worker is one thread with a runtime of its own. What workers share is behind [`Shared`]: the gate,
//! the newest configuration and the metrics. Not here: which limits there are, and what a refusal says.

pub mod settings;

mod answer;
mod connection;
mod date;
mod error;
mod forward;
mod h2;
mod host;
mod over_h1;
mod over_h2;
mod passed;
mod relay;
mod request;
mod service;
mod tally;
mod tunnel;
mod untaken;
mod upgrade;
mod view;
mod wire;
mod worker;

pub use view::Current;
pub use worker::{Shared, Stage, run};
