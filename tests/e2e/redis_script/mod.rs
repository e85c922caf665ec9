//! The scripts of Redis, run by a real server, against the arithmetic of `limit`.

mod model;
mod properties;
mod random;
mod receipts;
mod rows;
mod server;
mod set_back;
