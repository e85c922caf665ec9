//! Helpers of tests that act as operators.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::support::{Client, Weir, poll_for};

/// Waits until `is_so`; `what` is said if it never is.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    poll_for(what, || is_so().then_some(()));
}

/// Gives all units back to a limit that has one bucket for all requests. As many waiting requests pass.
pub fn refill(weir: &Weir, limit: &str) {
    let reset = format!("DELETE /v1/keys?limit={limit} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = Client::connect(weir.admin()).send(reset).answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// How many lines with `words` have been logged.
pub fn count_lines(weir: &Weir, words: &str) -> usize {
    weir.lines().iter().filter(|line| line.contains(words)).count()
}

/// Puts a file in place of another in one step, as careful programs do.
pub fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// The answer of `/v1/fleet` at the admin listener of a replica.
pub fn fleet_view(admin: SocketAddr) -> Value {
    let head = "GET /v1/fleet HTTP/1.1\r\nhost: localhost\r\n\r\n";
    serde_json::from_str(&Client::connect(admin).send(head).answer().text()).unwrap()
}
