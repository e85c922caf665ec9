//! The access log line of a request.
//!
//! A line of JSON has the fields of all other log lines. It is written without the subscriber, which costs several times
//! as much as the rest of the request's record.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use super::queue::LineQueue;
use crate::time::{Timestamp, system_now};

/// The target of access lines in text, which are enabled by `AccessLog` and not by the level.
pub(super) const ACCESS_TARGET: &str = "access";

/// The queue of access lines, if the log is JSON.
static JSON_LINES: OnceLock<Arc<LineQueue>> = OnceLock::new();

/// Has access lines written as JSON to `queue`.
pub(super) fn write_json_to(queue: &Arc<LineQueue>) {
    // The log of a process is started once.
    let _ = JSON_LINES.set(Arc::clone(queue));
}

/// The access log line of one request. It has no query and no header, because both may contain secrets.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AccessLine<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The method.
    pub method: &'a str,
    /// The host, in the form that limits match.
    pub host: &'a str,
    /// The normalised path; the path as sent if it cannot be normalised.
    pub path: &'a str,
    /// The status of the response.
    pub status: u16,
    /// The outcome of the request.
    pub verdict: &'static str,
    /// The limit that held or refused the request; empty if no limit did.
    pub limit: &'a str,
    /// The time from the parsed request head to the response head.
    #[serde(rename = "duration_us", serialize_with = "micros")]
    pub duration: Duration,
    /// The part of `duration` during which the request was held.
    #[serde(rename = "held_us", serialize_with = "micros")]
    pub held: Duration,
}

/// A line of JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp: &'a str,
    level: &'static str,
    message: &'static str,
    #[serde(flatten)]
    access: &'a AccessLine<'a>,
}

thread_local! {
    static LINE: RefCell<LineBuffer> = const { RefCell::new(LineBuffer { second: u64::MAX, time: String::new(), line: Vec::new() }) };
}

/// What lines of one thread have in common.
struct LineBuffer {
    /// The unix time of `time`.
    second: u64,
    /// The date of the last line (RFC 3339).
    time: String,
    line: Vec<u8>,
}

/// The length of a date without the fraction of the second: `2026-01-02T03:04:05`.
const SECONDS_LEN: usize = 19;

impl LineBuffer {
    /// Writes the date `now` with microseconds.
    fn set_time(&mut self, now: Timestamp) {
        let (second, micros) = (now.as_ns() / 1_000_000_000, now.as_ns() / 1000 % 1_000_000);
        if second != self.second {
            let date = UNIX_EPOCH + Duration::from_secs(second);
            self.time = humantime::format_rfc3339_seconds(date).to_string();
            self.second = second;
        }
        self.time.truncate(SECONDS_LEN);
        let mut digits = itoa::Buffer::new();
        self.time.push('.');
        // A digit before them keeps leading zeros.
        self.time.push_str(&digits.format(1_000_000 + micros)[1..]);
        self.time.push('Z');
    }

    /// The line of `access` at `now`; none if it cannot be written.
    fn json(&mut self, access: &AccessLine<'_>, now: Timestamp) -> Option<&[u8]> {
        self.set_time(now);
        self.line.clear();
        let line = JsonLine { timestamp: &self.time, level: "INFO", message: "request", access };
        serde_json::to_writer(&mut self.line, &line).ok()?;
        self.line.write_all(b"\n").ok()?;
        Some(&self.line)
    }
}

impl AccessLine<'_> {
    /// Writes the line.
    pub fn write(&self) {
        match JSON_LINES.get() {
            Some(queue) => LINE.with_borrow_mut(|buffer| {
                if let Some(line) = buffer.json(self, system_now()) {
                    queue.push(line);
                }
            }),
            None => self.write_text(),
        }
    }

    fn write_text(&self) {
        tracing::info!(
            target: ACCESS_TARGET,
            client = %self.client,
            method = self.method,
            host = self.host,
            path = self.path,
            status = self.status,
            verdict = self.verdict,
            limit = self.limit,
            duration_us = whole_micros(self.duration),
            held_us = whole_micros(self.held),
            "request"
        );
    }
}

fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn micros<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(whole_micros(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_the_subscriber_and_one_second_is_formatted_once() {
        let mut buffer = LineBuffer { second: u64::MAX, time: String::new(), line: Vec::new() };
        let access = AccessLine {
            client: "2001:db8::1".parse().unwrap(),
            method: "GET",
            host: "a\"b",
            path: "/\u{1b}",
            status: 429,
            verdict: "rejected",
            limit: "one",
            duration: Duration::from_nanos(1_234_567),
            held: Duration::ZERO,
        };
        for (ns, time) in [
            (1_767_323_045_000_007_999, "2026-01-02T03:04:05.000007Z"),
            (1_767_323_045_999_999_000, "2026-01-02T03:04:05.999999Z"),
            (1_767_323_046_100_000_000, "2026-01-02T03:04:06.100000Z"),
            (0, "1970-01-01T00:00:00.000000Z"),
        ] {
            let line = buffer.json(&access, Timestamp::from_ns(ns)).unwrap();
            let rest = r#""level":"INFO","message":"request","client":"2001:db8::1","method":"GET","host":"a\"b","path":"/\u001b","status":429,"verdict":"rejected","limit":"one","duration_us":1234,"held_us":0}"#;
            assert_eq!(str::from_utf8(line).unwrap(), format!("{{\"timestamp\":\"{time}\",{rest}\n"));
        }
    }
}
