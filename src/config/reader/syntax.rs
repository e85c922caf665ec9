//! Reports syntax errors, and drops problems that they may have caused.
//!
//! The parser recovers from errors, so Weir still checks most of a broken file. A syntax error can cause problems in its
//! own section, and reports of missing options in every section. Those problems are dropped.

use std::ops::Range;
use std::string::FromUtf8Error;

use toml::de::Error;

use crate::config::diagnostics::Problem;
use crate::config::schema;

/// Returns the problems to report: the first of `errors` in each line, and those of `problems` that no error can have
/// caused.
pub(in crate::config) fn merge(text: &str, errors: &[Error], mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut found: Vec<Problem> = errors.iter().map(|error| problem(text, error)).collect();
    found.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    // Keeps the first error of each line. The search reads each gap between two errors once.
    let start = |problem: &Problem| problem.span.as_ref().map_or(0, |span| span.start.min(text.len()));
    found.dedup_by(|later, earlier| memchr::memchr(b'\n', &text.as_bytes()[start(earlier)..start(later)]).is_none());
    if errors.iter().any(is_damage) {
        let damaged = damaged_sections(text, errors);
        problems.retain(|problem| !problem.absence && !touches(problem, &damaged));
    }
    found.append(&mut problems);
    found
}

/// Decodes a file. The error says why the file cannot be TOML, as the end of a sentence that begins with its name.
pub(in crate::config) fn text(bytes: Vec<u8>) -> Result<String, String> {
    // ASCII characters in UTF-16 have a zero in each pair of bytes.
    if matches!(bytes[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..]) {
        return Err("is encoded in UTF-16; save it as UTF-8".to_owned());
    }
    let not_utf8 = |error: FromUtf8Error| format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to());
    let text = String::from_utf8(bytes).map_err(not_utf8)?;
    match text.trim_start_matches('\u{feff}').trim_start().as_bytes() {
        [b'{', ..] => Err("is JSON; a configuration must be TOML".to_owned()),
        _ => Ok(text),
    }
}

fn problem(text: &str, error: &Error) -> Problem {
    let span = error.span().unwrap_or_default();
    if is_damage(error) {
        Problem::new(span, format!("not valid TOML: {}", error.message())).code("not_toml")
    } else {
        // Another key may be a secret, as in `overrides`.
        let key = text.get(span.clone()).filter(|key| schema::has_name(key));
        let title = key.map_or_else(|| "duplicate key".to_owned(), |key| format!("duplicate key `{key}`"));
        Problem::new(span, title).code("duplicate_key").label("the key is already set above")
    }
}

/// Whether an error can hide the meaning of its section. The parser reports kinds of errors only by their messages.
fn is_damage(error: &Error) -> bool {
    error.message() != "duplicate key"
}

/// The sections that contain an error. A section extends from its header line to the next header line.
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

/// Whether a problem lies in one of `sections`. The sections are sorted and do not overlap.
fn touches(problem: &Problem, sections: &[Range<usize>]) -> bool {
    let Some(span) = &problem.span else { return false };
    let first = sections.partition_point(|section| section.end <= span.start);
    sections.get(first).is_some_and(|section| section.start < span.end.max(span.start + 1))
}
