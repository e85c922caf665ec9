//! A connection: its state, the frames from the peer, and the frames to the peer.

mod control;
mod heads;
mod receive;
mod send;
mod state;

pub use heads::{BLOCK_BYTES_MIN, CONTINUATIONS_MAX};
pub use send::Block;
pub use state::{Connection, Event, IDLE_FRAMES_MAX, Step};
