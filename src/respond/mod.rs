//! A verdict as an answer: status, headers, body.
//!
//! Not here: sending it (proxy), and why it came about (gate).

mod headers;
mod problem;
mod refuse;

pub use headers::{Profiles, Verdict, expose, limit_headers};
pub use problem::{Kind, Problem};
pub use refuse::{is_grpc, refusal, unidentified};
