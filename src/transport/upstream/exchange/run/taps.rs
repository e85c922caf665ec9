//! What reads the body of a response besides the client.

use crate::engine::gate::BodyMeter;
use crate::engine::units::Form;
use crate::transport::stale::Recording;

/// The readers of one body.
#[derive(Debug, Default)]
pub(super) struct BodyTaps {
    /// The recording of the response; none if the response is not stored.
    pub(super) recording: Option<Box<Recording>>,
    /// The meter of its numbers; none if no charge depends on them.
    pub(super) meter: Option<Box<BodyMeter>>,
}

/// Writes the last event of a stream that `limit` has cut. Clients of `OpenAI` and of Anthropic take it for an error.
pub(super) fn write_last_event(out: &mut Vec<u8>, form: Form, limit: &str) {
    if form == Form::Events {
        out.extend_from_slice(b"event: error\ndata: ");
    }
    out.extend_from_slice(
        b"{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"code\":\"quota-exceeded\",\
          \"message\":\"the answer was cut, because its budget ended\",\"violated-policies\":[\"",
    );
    out.extend_from_slice(limit.as_bytes());
    out.extend_from_slice(b"\"]}}\n");
    if form == Form::Events {
        out.push(b'\n');
    }
}
