//! Weir: a rate-limiting reverse proxy that forwards, refuses or holds.
//!
//! Modules stand in storeys; each imports only from those above it in this list.

pub mod base;

pub mod engine;

pub mod transport;

pub mod fleet;

pub mod admin;

pub mod config;

pub mod app;

pub mod import;

pub mod cli;

#[cfg(test)]
mod testing;
