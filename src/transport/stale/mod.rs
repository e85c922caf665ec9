//! Answers of services that are kept for requests which get no other.
//!
//! Reading order: `rules` (what RFC 9111 allows), `answer` (one stored answer), `cache` (those of one limit, with their
//! bound), `recording` (an answer on its way to a client), `caches` (those of all limits).
//!
//! Not here: when a stored answer is sent, and the parts of a request that select it (proxy).

mod answer;
mod cache;
mod caches;
mod recording;
mod reservation;
mod rules;

#[cfg(test)]
mod tests;

pub(crate) use cache::{AnswerCache, Found};
pub use caches::AnswerCaches;
pub(crate) use recording::{NewAnswer, Recording};
pub(crate) use rules::forbids_storage;
