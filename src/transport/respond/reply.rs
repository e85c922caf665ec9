//! A response that Weir makes itself, as its writers see it.

use http::StatusCode;

use super::{HeaderSink, Profiles};
use crate::base::telemetry::RefusedBy;

/// A response that Weir makes itself. Its writer adds the framing headers and `connection`.
pub trait Reply {
    /// The status.
    fn status(&self) -> StatusCode;

    /// Why the response refuses a request; `None` if it does not.
    fn refused_by(&self) -> Option<RefusedBy>;

    /// Whether the response closes an HTTP/1 connection.
    fn closes(&self) -> bool;

    /// Writes the headers.
    fn write_headers(&self, sink: &mut impl HeaderSink, profiles: Profiles);

    /// Writes the body.
    fn write_body(&self, body: &mut Vec<u8>);
}
