//! A verdict as an answer: status, headers, body.
//!
//! Not here: sending it (proxy), and why it came about (gate).

mod answer;
mod headers;
mod problem;
mod sink;

pub use answer::{Answer, is_grpc};
pub use headers::{Disposition, Profiles, expose, is_limit_header, limit_headers};
pub use problem::ProblemKind;
pub use sink::HeaderSink;
