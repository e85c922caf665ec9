//! What reads the body of a response besides the client.

use crate::engine::units::UnitReaders;
use crate::transport::stale::Recording;

/// The readers of one body.
#[derive(Debug, Default)]
pub(super) struct BodyTaps {
    /// The recording of the response; none if the response is not stored.
    pub(super) recording: Option<Box<Recording>>,
    /// The readers of its numbers; none if no charge depends on them.
    pub(super) units: Option<Box<UnitReaders>>,
}
