//! What to say about text that is not TOML, and what to leave unsaid.
//!
//! The parser recovers from errors, so most of a broken file is still checked. Only what an error may have
//! caused is dropped: what stands in the same section, and what is about something absent.

use std::ops::Range;

use toml::de::Error;

use super::diagnostics::Problem;

/// The problems to report: all of `errors` that are not echoes, and those of `problems` that they cannot have caused.
pub(super) fn merge(text: &str, errors: &[Error], mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut found: Vec<Problem> = errors.iter().map(|error| problem(text, error)).collect();
    found.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    found.dedup_by_key(|problem| line_of(text, problem));
    if errors.iter().any(is_damage) {
        let damaged = damaged_sections(text, errors);
        problems.retain(|problem| !problem.absence && !touches(problem, &damaged));
    }
    found.append(&mut problems);
    found
}

fn problem(text: &str, error: &Error) -> Problem {
    let span = error.span().unwrap_or_default();
    if is_damage(error) {
        Problem::new(span, format!("not valid TOML: {}", error.message()))
    } else {
        let key = text.get(span.clone()).unwrap_or_default();
        Problem::new(span, format!("duplicate key `{key}`")).label("it is set above already")
    }
}

/// Whether an error leaves doubt about what was meant. The parser has no kinds of errors, only texts.
fn is_damage(error: &Error) -> bool {
    error.message() != "duplicate key"
}

fn line_of(text: &str, problem: &Problem) -> usize {
    let start = problem.span.as_ref().map_or(0, |span| span.start.min(text.len()));
    memchr::memchr_iter(b'\n', &text.as_bytes()[..start]).count()
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
    let ends = starts.iter().skip(1).copied().chain([text.len() + 1]);
    let holds_error = |section: &Range<usize>| {
        errors
            .iter()
            .filter(|error| is_damage(error))
            .any(|error| section.contains(&error.span().unwrap_or_default().start))
    };
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).filter(holds_error).collect()
}

fn touches(problem: &Problem, sections: &[Range<usize>]) -> bool {
    let Some(span) = &problem.span else { return false };
    sections.iter().any(|section| span.start < section.end && section.start < span.end.max(span.start + 1))
}
