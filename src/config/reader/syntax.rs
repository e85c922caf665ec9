//! What to say about text that is not TOML, and what to leave unsaid.
//!
//! The parser recovers from errors, so most of a broken file is still checked. Only what an error may have
//! caused is dropped: what stands in the same section, and what is about something absent.

use std::ops::Range;
use std::string::FromUtf8Error;

use toml::de::Error;

use crate::config::diagnostics::Problem;

/// The problems to report: all of `errors` that are not echoes, and those of `problems` that they cannot have caused.
pub(in crate::config) fn merge(text: &str, errors: &[Error], mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut found: Vec<Problem> = errors.iter().map(|error| problem(text, error)).collect();
    found.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    // One error a line; each gap between two is looked through once.
    let start = |problem: &Problem| problem.span.as_ref().map_or(0, |span| span.start.min(text.len()));
    found.dedup_by(|later, earlier| memchr::memchr(b'\n', &text.as_bytes()[start(earlier)..start(later)]).is_none());
    if errors.iter().any(is_damage) {
        let damaged = damaged_sections(text, errors);
        problems.retain(|problem| !problem.absence && !touches(problem, &damaged));
    }
    found.append(&mut problems);
    found
}

/// The text of a file, or why it cannot be TOML.
pub(in crate::config) fn text(bytes: Vec<u8>) -> Result<String, String> {
    // Text in UTF-16 that is ASCII otherwise has a zero in each pair of bytes.
    if matches!(bytes[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..]) {
        return Err("is UTF-16; save it as UTF-8".to_owned());
    }
    let not_utf8 = |error: FromUtf8Error| format!("is not UTF-8, from byte {} on", error.utf8_error().valid_up_to());
    let text = String::from_utf8(bytes).map_err(not_utf8)?;
    match text.trim_start_matches('\u{feff}').trim_start().as_bytes() {
        [b'{', ..] => Err("is JSON; a configuration is TOML".to_owned()),
        _ => Ok(text),
    }
}

fn problem(text: &str, error: &Error) -> Problem {
    let span = error.span().unwrap_or_default();
    if is_damage(error) {
        Problem::new(span, format!("not valid TOML: {}", error.message())).code("not_toml")
    } else {
        let key = text.get(span.clone()).unwrap_or_default();
        Problem::new(span, format!("duplicate key `{key}`")).code("duplicate_key").label("it is set above already")
    }
}

/// Whether an error leaves doubt about what was meant. The parser has no kinds of errors, only texts.
fn is_damage(error: &Error) -> bool {
    error.message() != "duplicate key"
}

/// From header line to header line, those sections that hold an error.
fn damaged_sections(text: &str, errors: &[Error]) -> Vec<Range<usize>> {
    let mut starts = vec![0];
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            starts.push(offset);
        }
        offset += line.len();
    }
    let damage = errors.iter().filter(|error| is_damage(error));
    let mut damage: Vec<usize> = damage.map(|error| error.span().unwrap_or_default().start).collect();
    damage.sort_unstable();
    let ends = starts.iter().skip(1).copied().chain([text.len() + 1]);
    let holds_error = |section: &Range<usize>| {
        let first = damage.partition_point(|at| *at < section.start);
        damage.get(first).is_some_and(|at| *at < section.end)
    };
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).filter(holds_error).collect()
}

/// Whether a problem lies in one of `sections`, which are in order and do not overlap.
fn touches(problem: &Problem, sections: &[Range<usize>]) -> bool {
    let Some(span) = &problem.span else { return false };
    let first = sections.partition_point(|section| section.end <= span.start);
    sections.get(first).is_some_and(|section| section.start < span.end.max(span.start + 1))
}
