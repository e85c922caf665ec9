//! Limits whose state another Weir has, so that several replicas share them: its limiter service decides.
//!
//! A worker asks with one call for all limits of a request (`worker`, `call`). Calls share one connection of HTTP/2 for each
//! worker. A limiter that fails is left alone until a probe succeeds (`node`, `monitor`). Refunds and settlements are sent
//! later (`flush`).
//!
//! A call has a number. So what a lost call charged is given back, also if the call arrives after that (`calls`).
//!
//! Not here: decisions without the limiter, and the tables that mirror it (gate, `store::table`), and the limiter itself
//! (gate, grpc).

pub mod proto;
pub mod settings;

pub mod calls;
pub mod receipt;

mod call;
mod node;

mod limiter;
mod worker;

mod flush;
mod monitor;

pub use limiter::Limiter;
pub use worker::WorkerLimiter;

/// Bytes of a message between two Weirs.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
