//! A verdict as a response: status, headers, body.
//!
//! Not here: sending the response (proxy), and the reason for the verdict (gate).

mod answer;
mod headers;
mod problem;
mod sink;

pub use answer::{Answer, is_grpc};
pub use headers::{Disposition, Profiles, expose, is_limit_header, limit_headers};
pub use problem::ProblemKind;
pub use sink::HeaderSink;
