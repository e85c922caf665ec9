//! Limits whose units replicas borrow from etcd.
//!
//! etcd only compares and swaps. A key of a limit is a counter, which has the spent units, and the loans of each replica
//! beside it (`account`). A replica reads both, decides by its own arithmetic (`plan`), and writes both in a transaction that
//! fails if another replica has written the counter meanwhile (`transact`). Transactions of one turn of an event loop are one
//! call (`step`).
//!
//! Loans are attached to a lease of their replica, which it keeps alive (`monitor`). So units that a dead replica had
//! borrowed come back when its lease ends. A process knows its loans (`ledger`); what it spent of them moves to the counter
//! with its next transaction, or at the end of the loan (`settle`).
//!
//! Not here: the spending of borrowed units (`store::lease`), and the client of etcd for membership and configurations
//! (`crate::fleet::etcd`).

pub mod proto;

mod account;
mod clock;
mod ledger;
mod plan;
mod step;

mod node;

mod store;
mod transact;

mod worker;

mod settle;

mod monitor;

#[cfg(test)]
mod models;

pub(super) use store::EtcdStore;

/// The methods of etcd.
const AUTHENTICATE: &str = "etcdserverpb.Auth/Authenticate";
const GRANT: &str = "etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "etcdserverpb.Lease/LeaseKeepAlive";
const RANGE: &str = "etcdserverpb.KV/Range";
const PUT: &str = "etcdserverpb.KV/Put";
const TXN: &str = "etcdserverpb.KV/Txn";
