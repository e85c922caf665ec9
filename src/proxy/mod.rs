//! The data path: accepts connections, takes requests through the gate, and forwards them.
//!
//! Each worker is one thread with a runtime of its own. What workers share is behind [`Shared`]: the gate,
//! the newest configuration and the metrics. Not here: which limits there are, and what a refusal says.

pub mod settings;

mod body;
mod connection;
mod continuation;
mod deadline;
mod error;
mod forward;
pub mod h1;
mod h2;
mod hop;
mod host;
mod interim;
mod listener;
mod service;
mod tally;
mod untaken;
mod upstream;
mod view;
mod wire;
mod worker;

pub use listener::bind;
pub use view::Current;
pub use worker::{Shared, Stage, run};
