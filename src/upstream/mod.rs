//! The services behind: connections to their endpoints, each worker's pools of them, and one exchange on one of them.
//!
//! A connection has no task of its own. Whoever has it in hand drives it: the exchange until the head of the
//! response is there, then the response's body. That saves two hops through the scheduler for each request.
//! In the pool nobody drives it; that it was closed meanwhile is seen when it is taken out.

pub mod settings;

mod balance;
mod ceiling;
mod directory;
mod ejection;
mod endpoints;
mod health;
mod lease;
pub(crate) mod location;
mod names;
mod pool;
mod queue;
mod resolve;
mod room;
mod state;

mod connection;
mod transport;
mod trunk;
mod trunks;

mod exchange;
mod head_h2;
mod outcome;
mod patience;
mod stream_h2;
mod upload;
mod way;
mod way_h1;
mod way_h2;

pub use ceiling::Ceiling;
pub(crate) use ceiling::Hands;
pub(crate) use directory::{Directory, InForce};
pub use ejection::Eject;
pub(crate) use endpoints::{Endpoints, Own};
pub(crate) use exchange::Exchange;
pub(crate) use health::check_health;
pub(crate) use lease::{Lease, SwitchedEnd, Wanted};
pub(crate) use outcome::{Arrived, ExchangeError};
pub(crate) use pool::SWEEP_EVERY;
pub(crate) use queue::WorkerBell;
pub(crate) use resolve::resolve_names;
pub(crate) use state::UpstreamState;
pub(crate) use upload::{BodyFault, Sent, Source, spend};
