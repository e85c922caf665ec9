//! Limits whose state another Weir has, so that several replicas share them: its limiter service decides.
//!
//! A worker asks with one call for all limits of a request (`worker`). Calls of one turn of its event loop are one message,
//! on one connection of HTTP/2 for each worker. A limiter that fails is left alone until a probe succeeds (`node`, `monitor`). Refunds and settlements are sent
//! later (`flush`).
//!
//! A call has a number. So what a lost call charged is given back, also if the call arrives after that (`calls`).
//!
//! Not here: decisions without the limiter, and the tables that mirror it (gate, `store::table`), and the limiter itself
//! (gate, grpc).

pub mod proto;

pub mod calls;
mod message;
mod refund;

mod node;

mod undecided;

mod limiter;
mod worker;

mod flush;
mod monitor;

#[cfg(test)]
mod models;

pub(super) use limiter::Limiter;

/// The methods of a limiter.
const CHARGE: &str = "weir.v1.charges.Charges/Charge";
const CORRECT: &str = "weir.v1.charges.Charges/Correct";
const JOIN: &str = "weir.v1.charges.Charges/Join";
