//! The file of `identity.NAME.api_keys`: a table for each owner of keys, which has digests only.
//!
//! Not here: the verification of keys (`policy`), and the reload after a change (`app`).

mod edit;
mod locate;
mod read;

#[cfg(test)]
mod tests;

pub use edit::{create, edit};
pub use locate::locate;
pub use read::read;
