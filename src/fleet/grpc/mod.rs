//! The limiter service: answers checks of programs whose requests do not pass through Weir, over gRPC, and charges the keys
//! of other Weirs.
//!
//! Each worker serves its connections on its own runtime. The services of tonic need futures that any thread may run.
//! So a check of local limits is decided in place, and one that a store decides is passed to a task of the worker, which
//! has the connections to stores (`gate::StoreTasks`).
//!
//! Not here: the decision (gate), and the rules that map callers to limits (`policy::descriptors`).

pub mod fleet;
pub mod settings;

mod server;
mod watched;

mod accept;
mod preface;
mod routes;

mod limiter;
mod rate_limit;

mod askers;
mod charges;

mod answer;
mod check_stream;
mod checks;

pub mod proto;

pub use accept::serve;
pub use server::{OPENING_MIN, Server};
