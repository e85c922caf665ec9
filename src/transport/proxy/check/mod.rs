//! Checks: another proxy or a service asks whether a request may pass, and keeps the request itself.
//!
//! `GET /auth` describes the request in headers, `POST /v1/check` in JSON. Access lists and limits decide about it as they
//! do about a request that Weir forwards. The charges of an allowed request stay as they were made, because Weir sees
//! neither its answer nor its end.
//!
//! Not here: the connection (`http1::check`), and the answer (`respond`).

mod body;
mod decide;
mod described;
mod target;

pub(super) use body::CheckBody;
pub(super) use described::DescribedRequest;
pub(super) use target::{CheckForm, CheckTarget};

/// The most bytes of a description in JSON. The longest head that Weir accepts by default has 32 KiB.
pub(super) const BODY_BYTES_MAX: u64 = 64 * 1024;
