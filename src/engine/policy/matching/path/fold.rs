//! One spelling for all paths that a service treats as equal.
//!
//! Matching and keys use the folded path. Weir forwards the normalised path in the spelling of the client.
//!
//! | In the normalised path | Folded | When |
//! |---|---|---|
//! | `;v=1` at the end of a segment | nothing | `params` |
//! | an escaped delimiter, `%3A` | the character, `:` | always: most frameworks decode before they route |
//! | `A`, and `%C3%89` for É | `a` and `%C3%A9` | `case` |
//! | a slash at the end | nothing, but for `/` alone | `trailing_slash` |
//!
//! Parameters are removed first, as in servlet containers, where `%3B` begins no parameter.

use std::borrow::Cow;

use crate::engine::policy::matching::escapes::escape;

/// The differences that are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// Upper and lower case.
    pub case: bool,
    /// With and without a slash at the end.
    pub trailing_slash: bool,
    /// The presence of `;` parameters.
    pub params: bool,
}

impl Fold {
    /// The folded form of a normalised path. Slashes around removed parameters are merged if `merges`. Borrowed, after
    /// one scan, if the path is in folded form.
    pub(super) fn path(self, path: &str, merges: bool) -> Cow<'_, str> {
        let mut folded = Cow::Borrowed(path);
        if self.params && memchr::memchr(b';', path.as_bytes()).is_some() {
            folded = Cow::Owned(without_params(path, merges));
        }
        if let Some(spelled) = self.text(&folded) {
            folded = Cow::Owned(spelled);
        }
        if self.trailing_slash && folded.ends_with('/') {
            let end = folded.trim_end_matches('/').len().max(1);
            match &mut folded {
                Cow::Borrowed(path) => *path = &path[..end],
                Cow::Owned(path) => path.truncate(end),
            }
        }
        folded
    }

    /// The folded form of a text of a normalised path without parameters; `None` if it is the text itself.
    pub fn text(self, text: &str) -> Option<String> {
        let is_escaped = memchr::memchr(b'%', text.as_bytes()).is_some();
        let has_case = self.case && text.bytes().any(|byte| byte.is_ascii_uppercase());
        if !is_escaped && !has_case {
            return None;
        }
        let decoded = is_escaped.then(|| decode(text, self.case)).flatten();
        if !self.case {
            return decoded;
        }
        Some(lower_ascii(decoded.as_deref().unwrap_or(text)))
    }
}

/// The text in lower case, except for the digits of escapes.
fn lower_ascii(text: &str) -> String {
    let mut digits = 0_u8;
    let lower = |char: char| {
        let is_digit = digits > 0;
        digits = if char == '%' { 2 } else { digits.saturating_sub(1) };
        if is_digit { char } else { char.to_ascii_lowercase() }
    };
    text.chars().map(lower).collect()
}

fn without_params(path: &str, merges: bool) -> String {
    let mut out = String::with_capacity(path.len());
    for segment in path.split('/').skip(1) {
        let name = segment.split_once(';').map_or(segment, |(name, _)| name);
        if !(merges && out.ends_with('/')) {
            out.push('/');
        }
        out.push_str(name);
    }
    out
}

/// Whether a path may contain this delimiter unescaped (RFC 3986, 3.3).
fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@')
}

/// Replaces escaped delimiters by the characters and, if `case`, escaped letters beyond ASCII by lower case. `None` if
/// there are neither.
fn decode(text: &str, case: bool) -> Option<String> {
    let mut out: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = memchr::memchr(b'%', &text.as_bytes()[at..]) {
        at += found;
        let (len, instead) = match escape(&text.as_bytes()[at..]) {
            Some(byte) if is_delimiter(byte) => (3, Some(char::from(byte).to_string())),
            Some(0x80..) if case => lower(&text.as_bytes()[at..]),
            _ => (1, None),
        };
        if let Some(instead) = instead {
            let out = out.get_or_insert_default();
            out.push_str(&text[copied..at]);
            out.push_str(&instead);
            copied = at + len;
        }
        at += len;
    }
    let mut out = out?;
    out.push_str(&text[copied..]);
    Some(out)
}

/// The length of the escaped character at the start of `text`, and its lower case if that differs. Characters with one
/// upper case, such as `k` and the Kelvin sign, have one lower case here.
fn lower(text: &[u8]) -> (usize, Option<String>) {
    let mut bytes = [0; 4];
    let mut count = 0;
    while let Some(byte) = text.get(3 * count..).and_then(escape).filter(|_| count < 4) {
        bytes[count] = byte;
        count += 1;
        let Ok(found) = str::from_utf8(&bytes[..count]) else { continue };
        let Some(own) = found.chars().next() else { break };
        let lower = one(own.to_uppercase()).and_then(|upper| one(upper.to_lowercase())).unwrap_or(own);
        if lower == own {
            return (3 * count, None);
        }
        let mut utf8 = [0; 4];
        let escaped = |byte: &u8| if byte.is_ascii() { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
        return (3 * count, Some(lower.encode_utf8(&mut utf8).as_bytes().iter().map(escaped).collect()));
    }
    (3, None)
}

/// The only item of an iterator.
fn one(mut all: impl Iterator<Item = char>) -> Option<char> {
    all.next().filter(|_| all.next().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONE: Fold = Fold { case: false, trailing_slash: false, params: false };
    const CASE: Fold = Fold { case: true, ..NONE };
    const SLASH: Fold = Fold { trailing_slash: true, ..NONE };
    const PARAMS: Fold = Fold { params: true, ..NONE };
    const ALL: Fold = Fold { case: true, trailing_slash: true, params: true };

    #[test]
    fn spellings() {
        for (how, path, folded) in [
            (NONE, "/Login/;a=B", "/Login/;a=B"),
            (NONE, "/a%3Ab%2A%40", "/a:b*@"),
            (NONE, "/a%20b%25%C3%A9%3F%23", "/a%20b%25%C3%A9%3F%23"),
            (NONE, "/a%3Bb", "/a;b"),
            (NONE, "*", "*"),
            (CASE, "/LogIn", "/login"),
            (CASE, "/%4A%3AB", "/%4A:b"), // normalisation leaves no `%4A`
            (CASE, "/%C3%89T%C3%A9", "/%C3%A9t%C3%A9"),
            (CASE, "/%E2%84%AAioSK", "/kiosk"), // the Kelvin sign
            (CASE, "/%C5%BF", "/s"),            // the long s
            (CASE, "/%C4%B0", "/%C4%B0"),       // lower case of this one has two letters
            (CASE, "/%FF%41%E2%84", "/%FF%41%E2%84"),
            (CASE, "/a%2Fb%20C", "/a%2Fb%20c"),
            (SLASH, "/", "/"),
            (SLASH, "/a", "/a"),
            (SLASH, "/a/", "/a"),
            (SLASH, "/a//", "/a"),
            (SLASH, "/A%3A/", "/A:"),
            (PARAMS, "/a;v=1/b;c;d", "/a/b"),
            (PARAMS, "/a;v=1/", "/a/"),
            (PARAMS, "/;v", "/"),
            (PARAMS, "/;v/a/;w/b", "/a/b"),
            (PARAMS, "/a%3Bv", "/a;v"),
            (ALL, "/Users;x=1/;y/%C3%89/;z/", "/users/%C3%A9"),
            (ALL, "/;a", "/"),
            (ALL, "*", "*"),
        ] {
            assert_eq!(how.path(path, true), folded, "{how:?} {path}");
        }
        assert_eq!(PARAMS.path("/;v//a;b", false), "///a");
        assert_eq!(ALL.path("/;v//", false), "/");
    }

    #[test]
    fn a_folded_path_is_borrowed() {
        for (how, path) in
            [(NONE, "/a/%20/;b"), (NONE, "/A"), (SLASH, "/a/b"), (SLASH, "/a/b/"), (CASE, "/a/b;c"), (ALL, "/a/b/")]
        {
            assert!(matches!(how.path(path, true), Cow::Borrowed(_)), "{how:?} {path}");
        }
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(path in "(/|a|B|;|%C3%89|%3A|%E2%84%AA|%FF|%20|%2F){0,12}", case: bool, trailing_slash: bool) {
            let how = Fold { case, trailing_slash, params: false };
            let path = format!("/{path}");
            let once = how.path(&path, true).into_owned();
            prop_assert_eq!(&*how.path(&once, true), &*once);
            prop_assert!(once.starts_with('/'));
        }

        #[test]
        fn any_text_is_folded_without_a_panic(text in any::<String>(), merges: bool) {
            let _ = ALL.path(&text, merges);
        }
    }
}
