//! The fleet: the stores that replicas share, the limiter service for other programs, the connections between replicas, and
//! the client of etcd.
//!
//! Not here: how replicas share a limit, which `engine` decides.

pub mod stores;

pub mod etcd;

pub mod grpc;
