//! `weir tap`: requests of a running Weir as they end.
//!
//! On a terminal each request is a line of a table, elsewhere it is a line of JSON.

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;

use clap::Args;
use clap::value_parser;
use serde_json::Value;

use super::target::Target;
use crate::cli::output::{Exit, fail};
use crate::cli::table::clean;

#[derive(Debug, Args)]
pub(in crate::cli) struct TapArgs {
    /// The name of a limit; shows requests to which it applies.
    limit: Option<String>,
    /// The key in this limit: its parts with `|` between them, or a JSON object with the parts by name.
    #[arg(value_name = "KEY")]
    text: Option<String>,
    /// The id of the key, in place of its text.
    #[arg(long, conflicts_with = "text", requires = "limit")]
    id: Option<String>,
    /// The verdicts: forwarded, held, refused, abandoned.
    #[arg(long, value_name = "VERDICT,...")]
    verdict: Option<String>,
    /// The reasons of refusals: limit, ban, access, identity, overload, other.
    #[arg(long, value_name = "REASON,...")]
    refused_by: Option<String>,
    /// The address of the client, or a network such as 203.0.113.0/24.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Show one of N requests.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// End after N requests.
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    target: Target,
}

/// Shows requests until there are enough, or the user interrupts the command.
pub(in crate::cli) fn tap(args: &TapArgs) -> Exit {
    let is_table = !args.target.wants_json();
    let mut printer = Printer { is_table, has_heading: false, events: EventReader::default(), remaining: args.count };
    let mut printed = Ok(());
    let followed = args.target.follow(&path(args), |piece| match printer.print(piece) {
        Ok(next) => next,
        Err(error) => {
            printed = Err(error);
            ControlFlow::Break(())
        }
    });
    match printed {
        // The reader needs no more, as in `weir tap | head -1`.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(fail(&format_args!("standard output: {error}"))),
        _ => followed,
    }
}

/// The path and the query of the request.
fn path(args: &TapArgs) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in [
        ("limit", &args.limit),
        ("key", &args.text),
        ("id", &args.id),
        ("verdict", &args.verdict),
        ("refused_by", &args.refused_by),
        ("client", &args.client),
    ] {
        query.extend_pairs(value.iter().map(|value| (name, value)));
    }
    for (name, number) in [("sample", args.sample), ("count", args.count)] {
        query.extend_pairs(number.map(|number| (name, number.to_string())));
    }
    format!("/v1/tap?{}", query.finish())
}

/// Prints the events of a stream.
struct Printer {
    is_table: bool,
    has_heading: bool,
    events: EventReader,
    /// The requests to print, if they are bounded.
    remaining: Option<u64>,
}

impl Printer {
    /// Prints the events that end in `piece`. Breaks after the last request to print.
    fn print(&mut self, piece: &[u8]) -> io::Result<ControlFlow<()>> {
        for event in self.events.read(piece) {
            self.print_event(&event)?;
            if let Some(remaining) = self.remaining.as_mut().filter(|_| event["lost"].is_null()) {
                *remaining = remaining.saturating_sub(1);
            }
            if self.remaining == Some(0) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn print_event(&mut self, event: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_table {
            return writeln!(out, "{event}");
        }
        if !std::mem::replace(&mut self.has_heading, true) {
            writeln!(out, "{}", heading())?;
        }
        writeln!(out, "{}", shown(event))
    }
}

/// The line above all events.
pub(super) fn heading() -> String {
    row(["TIME (UTC)", "VERDICT", "BY", "STATUS", "CLIENT", "TOOK", "LIMIT", "REQUEST", "KEYS"])
}

/// The line of an event.
pub(super) fn shown(event: &Value) -> String {
    if let Some(lost) = event["lost"].as_u64() {
        return format!("... {lost} requests are lost, because they came too fast");
    }
    let text = |of: &Value, name: &str| clean(of[name].as_str().unwrap_or("-"));
    let at = text(event, "at");
    let request = format!("{} {}{}", text(event, "method"), text(event, "host"), text(event, "path"));
    let key = |key: &Value| format!("{}={}", text(key, "limit"), text(key, "key"));
    let keys: Vec<_> = event["keys"].as_array().into_iter().flatten().map(key).collect();
    row([
        at.get(11..23).unwrap_or(&at),
        &text(event, "verdict"),
        &text(event, "refused_by"),
        &event["status"].to_string(),
        &text(event, "client"),
        &format!("{}ms", event["duration_us"].as_u64().unwrap_or(0) / 1000),
        &text(event, "limit"),
        &request,
        &keys.join(" "),
    ])
}

/// A line with columns. The stream has no end, so the widths do not depend on the rows.
fn row([time, verdict, by, status, client, took, limit, request, keys]: [&str; 9]) -> String {
    let line = format!(
        "{time:<12}  {verdict:<9}  {by:<8}  {status:<6}  {client:<15}  {took:>7}  {limit:<16}  {request:<32}  {keys}"
    );
    line.trim_end().to_owned()
}

/// Reads server-sent events whose data are JSON.
#[derive(Debug, Default)]
struct EventReader {
    /// The line that has not ended.
    line: Vec<u8>,
}

impl EventReader {
    /// The data of the events whose lines end in `piece`.
    fn read(&mut self, piece: &[u8]) -> Vec<Value> {
        let mut events = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let data = self.line.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice(data).ok());
                events.extend(data);
                self.line.clear();
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_may_come_in_any_pieces() {
        let text = b": open\n\nevent: decision\ndata: {\"status\":200}\n\n:\n\nevent: lost\ndata: {\"lost\":2}\n\n";
        for size in [1, 7, text.len()] {
            let mut reader = EventReader::default();
            let events: Vec<_> = text.chunks(size).flat_map(|piece| reader.read(piece)).collect();
            assert_eq!(events, [json!({ "status": 200 }), json!({ "lost": 2 })], "{size}");
        }
    }

    #[test]
    fn a_request_is_a_line() {
        let keys = json!([
            { "limit": "per-ip", "key": "203.0.113.7", "id": "1" },
            { "limit": "per-seller", "key": "12..#5d1f6a02", "id": "2" }
        ]);
        let event = json!({
            "at": "2026-11-22T02:13:07.120Z", "client": "203.0.113.7", "method": "GET", "host": "shop.example",
            "path": "/a\u{1b}[2J", "status": 429, "verdict": "refused", "refused_by": "limit", "limit": "per-seller", "keys": keys,
            "duration_us": 1212, "held_us": 0
        });
        let lines = [shown(&event), shown(&json!({ "lost": 12 }))].join("\n");
        let expected = "02:13:07.120  refused    limit     429     203.0.113.7          1ms  per-seller        GET shop.example/a[2J             per-ip=203.0.113.7 per-seller=12..#5d1f6a02\n\
                        ... 12 requests are lost, because they came too fast";
        assert_eq!(lines, expected);
    }
}
