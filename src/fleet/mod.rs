//! The fleet: the limiter service for other programs, the connections between replicas, and the client of etcd.
//!
//! Not here: how replicas share a limit, which `engine` decides with the stores in `engine::store`.

pub mod etcd;

pub mod grpc;
