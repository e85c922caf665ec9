//! Why Weir does not start, or does not run on.

use std::{error, fmt, io};

use crate::transport::net::ListenAddress;

/// Why Weir does not run. Its text is one line.
#[derive(Debug)]
pub enum AppError {
    /// An address cannot be listened on.
    Listen(ListenAddress, io::Error),
    /// The running process cannot be taken over from.
    TakeOver(io::Error),
    /// A call of the operating system failed: what it is for, and its error.
    System(&'static str, Box<dyn error::Error + Send + Sync>),
}

impl AppError {
    pub(super) fn system<E: Into<Box<dyn error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System(what, error.into())
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(place, error) => write!(f, "cannot listen on {place}: {error}"),
            Self::TakeOver(error) => write!(f, "cannot take over from the running process, which continues: {error}"),
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl error::Error for AppError {}
