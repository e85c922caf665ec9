//! The services behind: connections to their endpoints, each worker's pools of them, and one exchange on one of them.
//!
//! A connection has no task of its own. Whoever has it in hand drives it: the exchange until the head of the
//! response is there, then the response's body. That saves two hops through the scheduler for each request.
//! In the pool nobody drives it; that it was closed meanwhile is seen when it is taken out.

mod balance;
mod ceiling;
mod ejection;
mod endpoints;
mod health;
mod lease;
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
pub(super) use ceiling::Hands;
pub use ejection::Eject;
pub(super) use endpoints::{Endpoints, Own};
pub(super) use exchange::Exchange;
pub use health::check_health;
pub(super) use lease::{Lease, SwitchedEnd, Wanted};
pub(super) use outcome::{Arrived, ExchangeError};
pub(super) use pool::SWEEP_EVERY;
pub(super) use queue::WorkerBell;
pub use resolve::resolve_names;
pub(super) use state::UpstreamState;
pub(super) use upload::{BodyFault, Sent, Source, spend};
