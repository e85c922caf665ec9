//! The data path.
pub mod settings;
