//! The access log: its format, and the queue of its lines.
//!
//! Lines are written without the subscriber, which costs several times as much as the rest of the request's record.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use super::queue::LineQueue;
use crate::base::telemetry::request::{LineFormat, LineTimes, RequestRecord};

/// The access log of the process, once its logs are started.
static ACCESS: OnceLock<Access> = OnceLock::new();

struct Access {
    queue: Arc<LineQueue>,
    format: LineFormat,
}

/// Has access lines written to `queue` in this format.
pub(super) fn write_to(queue: &Arc<LineQueue>, format: LineFormat) {
    // The log of a process is started once.
    let _ = ACCESS.set(Access { queue: Arc::clone(queue), format });
}

thread_local! {
    static LINE: RefCell<(LineTimes, Vec<u8>)> = const { RefCell::new((LineTimes::new(), Vec::new())) };
}

/// Whether lines have keys, identities or plans.
pub fn access_log_names_gate() -> bool {
    ACCESS.get().is_some_and(|access| access.format.names_gate())
}

/// Writes the line of a request.
pub fn log_request(request: &RequestRecord) {
    let Some(Access { queue, format }) = ACCESS.get() else { return };
    LINE.with_borrow_mut(|(times, line)| {
        line.clear();
        format.write(line, times, request);
        queue.push(line);
    });
}
