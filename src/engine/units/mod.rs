//! Units that answers name: numbers that are read from the body of a response while it passes.
//!
//! A [`BodyUnits`] is the rule of a limit: pointers to numbers, and their weights. A [`UnitReader`] applies it to one
//! body, in pieces of any size and bounded memory: it keeps the numbers, and of the text only the start of a name or a
//! number.

mod body;
mod framing;
mod number;
mod pointers;
mod preset;
mod reading;
mod rule;
mod scanner;

pub use body::{UnitReader, UnitReaders};
pub use framing::Form;
pub use number::Weight;
pub use pointers::Pointer;
pub use preset::Preset;
pub use reading::{Reading, Unreadable};
pub use rule::{BodyUnits, Tariff};

#[cfg(test)]
mod tests;
