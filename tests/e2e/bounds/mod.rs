//! What a client may take of Weir, and what it is told beyond that.

mod bodies;
mod clients;
mod greedy;
mod rates;
mod requests;
mod untaken;
