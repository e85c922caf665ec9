//! The option by which a stream of chat completions ends with its usage, in the body of a request.

use std::ops::Range;
use std::sync::LazyLock;

use super::pointers::{Pointer, PointerTree, ROOT};
use super::scanner::Scanner;

/// The place of the option.
const PLACE: &str = "/stream_options/include_usage";

static TREE: LazyLock<PointerTree> = LazyLock::new(|| PointerTree::of_request(Pointer::parse(PLACE).ok().as_ref()));

/// Bytes in place of a range of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEdit {
    /// The range; empty for an insertion.
    pub range: Range<usize>,
    /// The bytes.
    pub bytes: Box<[u8]>,
}

impl BodyEdit {
    /// The bytes by which the body becomes longer.
    pub fn added_bytes(&self) -> i64 {
        let len = |len: usize| i64::try_from(len).unwrap_or(i64::MAX);
        len(self.bytes.len()) - len(self.range.len())
    }
}

/// The change by which a whole body asks for the usage. `None` if it asks already, or a service may read another body
/// than Weir.
pub fn usage_option(body: &[u8]) -> Option<BodyEdit> {
    let tree = &*TREE;
    let options = tree.child(ROOT, b"stream_options")?;
    let option = tree.child(options, b"include_usage")?;
    let (mut root_at, mut options_at, mut option_at) = (None, None, None);
    let mut scanner = Scanner::new(tree);
    scanner.push_noting(tree, body, |node, at| match node {
        None => root_at = root_at.or(Some(at)),
        Some(node) if node == options => options_at = Some(at),
        Some(node) if node == option => option_at = Some(at),
        Some(_) => {}
    });
    if !scanner.end() || scanner.is_ambiguous() {
        return None;
    }
    if let Some(at) = option_at {
        return replace_literal(body, at, &[b"false", b"null"], b"true");
    }
    if let Some(at) = options_at {
        let null = || replace_literal(body, at, &[b"null"], br#"{"include_usage":true}"#);
        return insert(body, at, r#""include_usage":true"#).or_else(null);
    }
    insert(body, root_at?, r#""stream_options":{"include_usage":true}"#)
}

/// Replaces a literal that begins at `at`.
fn replace_literal(body: &[u8], at: usize, literals: &[&[u8]], bytes: &[u8]) -> Option<BodyEdit> {
    let literal = literals.iter().find(|literal| body[at..].starts_with(literal))?;
    Some(BodyEdit { range: at..at + literal.len(), bytes: bytes.into() })
}

/// Inserts a member at the start of the object that begins at `at`; `None` if there is another value.
fn insert(body: &[u8], at: usize, member: &str) -> Option<BodyEdit> {
    let rest = body[at..].strip_prefix(b"{")?;
    let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
    Some(BodyEdit { range: at + 1..at + 1, bytes: format!("{member}{comma}").into_bytes().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_asked_for_its_usage() {
        for (body, expected) in [
            (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
            (" {\n}", " {\"stream_options\":{\"include_usage\":true}\n}"),
            (r#"{"stream_options":{},"a":1}"#, r#"{"stream_options":{"include_usage":true},"a":1}"#),
            (r#"{"stream_options": { "x":[{}]}}"#, r#"{"stream_options": {"include_usage":true, "x":[{}]}}"#),
            (r#"{"stream_options":null}"#, r#"{"stream_options":{"include_usage":true}}"#),
            (
                r#"{"stream_options":{"x":1,"include_usage": false }}"#,
                r#"{"stream_options":{"x":1,"include_usage": true }}"#,
            ),
            (r#"{"stream_options":{"include_usage":null}}"#, r#"{"stream_options":{"include_usage":true}}"#),
            (
                r#"{"a":{"stream_options":{"include_usage":true}},"b":[{}]}"#,
                r#"{"stream_options":{"include_usage":true},"a":{"stream_options":{"include_usage":true}},"b":[{}]}"#,
            ),
            ("{\"\\u0073tream_options\":{}}", "{\"\\u0073tream_options\":{\"include_usage\":true}}"),
        ] {
            let edit = usage_option(body.as_bytes()).unwrap_or_else(|| panic!("{body}"));
            let mut edited = body.as_bytes().to_vec();
            edited.splice(edit.range, edit.bytes);
            assert_eq!(String::from_utf8(edited).unwrap(), expected);
            assert_eq!(usage_option(expected.as_bytes()), None, "{expected}");
        }
    }

    #[test]
    fn a_doubtful_body_stays() {
        for body in [
            r#"{"stream_options":{"include_usage":true}}"#,
            r#"{"stream_options":{"include_usage":"no"}}"#,
            r#"{"stream_options":{"include_usage":0}}"#,
            r#"{"stream_options":[]}"#,
            r#"{"stream_options":7}"#,
            r#"{"stream_options":{},"stream_options":{}}"#,
            r#"{"stream_options":{"include_usage":false,"include_usage":false}}"#,
            r#"{"Stream_Options":{}}"#,
            r#"{"stream":true"#,
            r#"{"stream":true}}"#,
            "[{}]",
            "7",
            "",
            " ",
        ] {
            assert_eq!(usage_option(body.as_bytes()), None, "{body}");
        }
    }
}
