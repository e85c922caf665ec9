//! The record of a request that has ended, and its forms in logs and taps.
//!
//! One table ([`FIELDS`]) has the names and values of all forms. Not here: where lines go (log), and who watches (tap).

mod escape;
mod fields;
mod lines;
mod record;
mod template;

pub use escape::is_unprintable;
pub use fields::{FIELDS, Field, FieldKind, fields_markdown};
pub use lines::{LineFormat, LineTimes, write_fields_json};
pub use record::{RequestRecord, TappedKey, Text, Texts};
pub use template::{COMBINED, Template};
