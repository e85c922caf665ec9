//! The scripts that a server runs, and calls of them.
//!
//! A script has one packed argument, a string of little-endian doubles: a server reads it at once, where each number as an
//! argument of its own would cost it more than the arithmetic. Not here: the numbers of each script (`decide.rs`,
//! `correct.rs`), and what follows `NOSCRIPT`.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use redis::Cmd;
use smallvec::SmallVec;

/// A script, by its text and its hash.
#[derive(Debug)]
pub struct Script {
    /// The name in logs.
    pub name: &'static str,
    /// The Lua text.
    pub text: &'static str,
    /// The SHA-1 of the text in hexadecimal digits, by which servers know the script.
    pub sha: String,
}

impl Script {
    fn new(name: &'static str, text: &'static str) -> Self {
        let mut sha = String::with_capacity(40);
        for byte in digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref() {
            // Writing to a string does not fail.
            let _ = write!(sha, "{byte:02x}");
        }
        Self { name, text, sha }
    }
}

/// A script of the files with these names, one after another.
macro_rules! script {
    ($name:literal, $($part:literal),*) => {
        LazyLock::new(|| {
            let parts = concat!($(include_str!(concat!("lua/", $part, ".lua"))),*, include_str!(concat!("lua/", $name, ".lua")));
            Script::new($name, parts)
        })
    };
    ($name:literal) => {
        script!($name, "numbers", "prelude", "bucket", "window", "log", "sliding", "flight", "kinds")
    };
}

/// Decides all charges of a request.
pub(super) static DECIDE: LazyLock<Script> = script!("decide");
/// Decides as [`DECIDE`] does, in half the time, if all rates are buckets and no charge is delayed.
pub(super) static DECIDE_BUCKETS: LazyLock<Script> = script!("decide_buckets", "numbers");
/// Gives charges back, and settles charges.
pub(super) static CORRECT: LazyLock<Script> = script!("correct");
/// Takes the states that a replica knows.
pub(super) static PUSH: LazyLock<Script> = script!("push");
/// Lets units in flight count for longer.
pub(super) static RENEW: LazyLock<Script> = script!("renew");

/// All scripts, to be loaded before their first use.
pub fn all() -> [&'static Script; 5] {
    [&DECIDE, &DECIDE_BUCKETS, &CORRECT, &PUSH, &RENEW]
}

/// The replica that calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// A number below 2^53 that no other replica has.
    pub replica: u64,
    /// How long its units in flight count without being renewed.
    pub flight: Duration,
    /// The unix time of the server in microseconds, for tests; `None` for its own.
    pub server_us: Option<u64>,
}

/// A call of a script.
#[derive(Debug)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// All keys that the script uses.
    pub keys: SmallVec<[Box<str>; 2]>,
    /// The other arguments.
    pub args: SmallVec<[Vec<u8>; 3]>,
}

impl Call {
    /// The command for a server that knows the script.
    pub fn by_hash(&self) -> Cmd {
        let bytes: usize = self.keys.iter().map(|key| key.len()).chain(self.args.iter().map(Vec::len)).sum();
        let mut command = Cmd::with_capacity(3 + self.keys.len() + self.args.len(), bytes + self.script.sha.len() + 16);
        command.arg("EVALSHA").arg(&self.script.sha).arg(self.keys.len());
        self.keys.iter().for_each(|key| {
            command.arg(&**key);
        });
        self.args.iter().for_each(|arg| {
            command.arg(&**arg);
        });
        command
    }
}

/// The number after the largest that a double counts to.
pub(super) const NUMBER_END: u64 = 1 << 53;

/// Numbers in the form that scripts read. A number that is too large becomes the largest.
#[derive(Debug)]
pub(super) struct Packer(Vec<u8>);

impl Packer {
    /// An empty packer, with memory for so many numbers.
    pub(super) fn with_capacity(numbers: usize) -> Self {
        Self(Vec::with_capacity(8 * numbers))
    }

    /// Appends numbers.
    pub(super) fn put<const N: usize>(&mut self, numbers: [u64; N]) {
        self.extend(numbers);
    }

    /// Appends numbers that may be negative.
    pub(super) fn put_signed<const N: usize>(&mut self, numbers: [i64; N]) {
        for number in numbers {
            self.push(if number < 0 { -double(number.unsigned_abs()) } else { double(number.unsigned_abs()) });
        }
    }

    /// The argument.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn push(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}

impl Extend<u64> for Packer {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.push(double(number)));
    }
}

#[allow(clippy::cast_precision_loss)] // a double counts to 2^53
fn double(number: u64) -> f64 {
    number.min(NUMBER_END - 1) as f64
}

#[cfg(test)]
mod tests {

    use super::{Packer, Script};

    #[test]
    fn the_hash_of_a_script() {
        assert_eq!(Script::new("one", "return 1").sha, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn numbers_are_exact() {
        let mut packer = Packer::with_capacity(3);
        packer.put([1, u64::MAX]);
        packer.put_signed([-3]);
        let bytes = packer.into_bytes();
        let found: Vec<f64> = bytes.chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(found, [1.0, 9_007_199_254_740_991.0, -3.0]);
    }
}
