//! What strangers try. Every row says what Weir answers and what may reach the upstream because of it.

mod accounts;
mod bodies;
mod differential;
mod floods;
mod framing;
mod h2_bodies;
mod h2_bounds;
mod h2_floods;
pub mod h2_frames;
mod h2_heads;
mod heads;
mod hops;
pub mod lab;
