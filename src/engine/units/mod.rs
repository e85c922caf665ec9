//! Units that answers name: numbers that are read from the body of a response while it passes.
//!
//! A [`BodyUnits`] is the rule of a limit: pointers to numbers, and their weights. A [`UnitReader`] applies it to one
//! body, in pieces of any size and bounded memory: it keeps the numbers, and of the text only the start of a name or a
//! number. A [`RequestBody`] does the same before a request is decided.

mod body;
mod framing;
mod number;
mod pointers;
mod preset;
mod reading;
mod request;
mod rule;
mod scanner;
mod usage_option;

pub use body::{UnitReader, UnitReaders};
pub use framing::Form;
pub use number::Weight;
pub use pointers::Pointer;
pub use preset::Preset;
pub use reading::{Reading, Unreadable};
pub use request::{RequestBody, RequestNumber, RequestPointers, RequestValue};
pub use rule::{BodyUnits, Tariff};
pub use usage_option::{BodyEdit, usage_option};

#[cfg(test)]
mod tests;
