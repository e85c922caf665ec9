//! A store as the gate uses it, with real servers that fail.

mod lab;

mod cluster;
mod failures;
mod generations;
mod logins;
mod reports;
mod ring;
mod sentinel;
