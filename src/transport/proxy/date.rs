//! The Date field (RFC 9110, section 6.6.1), formatted once a second.

use std::cell::{Cell, RefCell};
use std::time::{Duration, UNIX_EPOCH};

use crate::base::time::Timestamp;

/// The name and the separator at the front of the line.
const NAME: &str = "date: ";

/// The field line of the current second.
#[derive(Debug, Default)]
pub(super) struct Date {
    second: Cell<u64>,
    line: RefCell<String>,
}

impl Date {
    /// Updates the line to `now`.
    pub(super) fn set(&self, now: Timestamp) {
        let second = now.as_secs();
        if self.second.replace(second) != second {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            *self.line.borrow_mut() = format!("{NAME}{date}\r\n");
        }
    }

    /// Calls `read` with the value of the field.
    pub(super) fn with_value(&self, read: impl FnOnce(&str)) {
        let line = self.line.borrow();
        read(line.strip_prefix(NAME).map_or("", str::trim_end));
    }

    /// Appends the line to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.line.borrow().as_bytes());
    }
}
