//! Requests that wait: for their turn in a queue, or for the end of a delay.
//!
//! Not here: the decision that a request would wait (`admit`).

pub(super) mod enqueue;

pub(super) mod wait;

pub(super) mod delay;

pub(super) mod body;
pub(super) mod capacity;
pub(super) mod jitter;
pub(super) mod locked;
mod turns;
mod wait_queue;
