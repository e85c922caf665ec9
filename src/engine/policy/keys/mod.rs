//! The key of a bucket: its parts, their hash, and their text for people.

pub(super) mod fleet_secret;
pub(super) mod key;
pub(super) mod part;
pub(super) mod shown;
