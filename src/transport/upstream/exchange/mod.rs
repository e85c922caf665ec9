//! One request to an endpoint and its response, over HTTP/1 or HTTP/2.

pub(crate) mod error;
mod h1;
mod h2;
mod h2_body;
pub(crate) mod head;
pub(crate) mod outcome;
pub(crate) mod run;
mod transport;
pub(crate) mod upload;
