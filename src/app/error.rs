//! Why Weir does not start, or does not run on.

use std::{error, io};

use crate::transport::net::ListenAddress;

/// Why Weir does not run. Its text is one line.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(ListenAddress, io::Error),
    /// The running process cannot be taken over from.
    #[error("cannot take over from the running process, which continues: {0}")]
    TakeOver(io::Error),
    /// A call of the operating system failed: what it is for, and its error.
    #[error("cannot {0}: {1}")]
    System(&'static str, Box<dyn error::Error + Send + Sync>),
}

impl AppError {
    pub(super) fn system<E: Into<Box<dyn error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System(what, error.into())
    }
}
