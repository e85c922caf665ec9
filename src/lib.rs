//! Weir: a rate-limiting reverse proxy that forwards, refuses or holds.
//!
//! Modules stand in floors; each imports only from floors above it in this list.

pub mod split_mix;
pub mod visible;

pub mod time;

pub mod fields;
pub mod limit;
pub mod telemetry;

pub mod http1;
pub mod http2;
pub mod policy;
pub mod store;

pub mod gate;
pub mod net;

pub mod etcd;
pub mod respond;
pub mod upstream;

pub mod admin;
pub mod grpc;
pub mod proxy;

pub mod config;

pub mod app;

pub mod cli;
