//! The stores that replicas share: Redis, the limiter service of another Weir, and etcd.
//!
//! A kind of store is a folder with its protocol, a row of the table in `kinds`, and a receipt. Not here: receipts
//! (`engine::store::backend`), the state that this process keeps, and decisions without a store (`engine::store`).

pub mod driver;

pub mod etcd;
pub mod redis;
pub mod service;

mod kinds;
