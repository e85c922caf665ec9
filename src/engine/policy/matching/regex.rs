//! Regular expressions of conditions.
//!
//! A search takes time in proportion to the text. The length and the size of an expression are bounded.

use std::hash::{Hash, Hasher};

use regex::bytes::{Regex, RegexBuilder};

/// The maximum length of an expression, in bytes.
const TEXT_BYTES_MAX: usize = 1000;
/// The maximum size of a compiled expression, and of the automaton that each thread may build for it, in bytes.
const PROGRAM_BYTES_MAX: usize = 256 << 10;

/// A checked regular expression. It matches anywhere in a text, and its classes are of ASCII.
#[derive(Clone, Debug)]
pub struct TextRegex(Regex);

/// The reason why a text is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    /// The text is too long.
    #[error("a regular expression has at most {TEXT_BYTES_MAX} bytes")]
    Length,
    /// The compiled expression would be too large.
    #[error("this regular expression is too large; use smaller repetitions")]
    Size,
    /// The text has this error.
    #[error("not a regular expression: {0}")]
    Syntax(String),
}

impl TextRegex {
    /// Compiles an expression. With `ignores_case` letters match in either case.
    ///
    /// # Errors
    /// The text is no regular expression within the bounds.
    pub fn new(text: &str, ignores_case: bool) -> Result<Self, RegexError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(RegexError::Length);
        }
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).case_insensitive(ignores_case);
        builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(PROGRAM_BYTES_MAX);
        builder.build().map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RegexError::Size,
            // The last line has the reason; the lines before it show the expression.
            error => RegexError::Syntax(last_line(&error.to_string()).to_owned()),
        })
    }

    /// The text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether a part of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }
}

fn last_line(text: &str) -> &str {
    let line = text.lines().next_back().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}

impl PartialEq for TextRegex {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TextRegex {}

impl Hash for TextRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_bounded() {
        let error = |text: &str| TextRegex::new(text, false).unwrap_err();
        assert_eq!(error(&"a".repeat(TEXT_BYTES_MAX + 1)), RegexError::Length);
        assert!(TextRegex::new(&"a".repeat(TEXT_BYTES_MAX), false).is_ok());
        assert_eq!(error("((a{100}){100}){100}"), RegexError::Size);
        assert_eq!(error("(a"), RegexError::Syntax("unclosed group".into()));
        assert!(matches!(error(r"(a)\1"), RegexError::Syntax(_)), "no backtracking");
    }

    #[test]
    fn matches() {
        for (expression, ignores_case, text, expected) in [
            ("b", false, &b"abc"[..], true),
            ("^b", false, b"abc", false),
            ("^/v[12]/", false, b"/v1/a", true),
            ("^/v[12]$", false, b"/v1/a", false),
            ("B", false, b"abc", false),
            ("B", true, b"abc", true),
            ("(?i)B", false, b"abc", true),
            (r"^\w+$", false, b"\xc3\xa9", false),
            (".", false, b"\xff", true),
        ] {
            let regex = TextRegex::new(expression, ignores_case).unwrap();
            assert_eq!(regex.matches(text), expected, "{expression}");
        }
    }
}
