//! The data path.
pub mod h1;
pub mod settings;
