//! The data path: accepts connections, takes requests through the gate, and forwards them.
//!
//! Each worker is one thread with a runtime of its own. What workers share is behind [`Shared`]: the gate,
//! the newest configuration and the metrics. Not here: which limits there are, and what a refusal says.

pub mod settings;

mod answer;
mod buffer;
mod clients;
mod connection;
mod date;
mod deadline;
mod encode;
mod error;
mod forward;
pub mod h1;
mod h2;
mod hop;
mod host;
mod listener;
mod location;
mod over_h1;
mod over_h2;
mod pace;
mod passed;
mod peer;
pub mod proxy_protocol;
mod relay;
mod request;
mod service;
mod socket;
mod stream;
mod tally;
pub mod tls;
mod tunnel;
mod untaken;
mod upgrade;
mod upstream;
mod view;
mod wire;
mod worker;

pub use clients::Clients;
pub use listener::{Listen, Listener, SOCKET_PATH_MAX, SocketFile, bind, bind_beside, bind_unix};
pub use upstream::{Ceiling, check_health, resolve_names};
pub use view::Current;
pub use worker::{Shared, Stage, run};
