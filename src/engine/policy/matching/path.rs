//! The path normaliser. Weir forwards the normalised path; limits match and count its folded form.
//!
//! Two spellings of one resource must not have two buckets, and two resources must not share one.
//!
//! | In the path | Becomes | Because |
//! |---|---|---|
//! | an escaped unreserved character, `%7E` | the character, `~` | RFC 3986, 6.2.2.2: they are equivalent |
//! | any other escape, `%3a` | upper case, `%3A` | 6.2.2.1; the delimiter itself would mean something else (2.2) |
//! | `//` | `/`, or kept if told so | file systems and most frameworks merge them |
//! | a segment `.`, `..`, `%2e`, `.;x`, `..;x` | removed, as in 5.2.4 | servlet containers drop `;x` first, then see
//! `..` |
//! | `..` above the root | `/` | 5.2.4 clamps; nothing is above the root |
//! | a character that a path cannot hold, raw non-ASCII | its escape, `%C3%A9` | 3.3 has no other way to write it |
//! | `%2F`, `%5C`, a raw backslash | refused | servers disagree whether it separates segments |
//! | `%2F`, if told to keep it | stays, a part of its segment | services such as GitLab take it for data |
//! | `.` or `..` beside a kept `%2F`, `a%2F..` | refused | a server that decodes it would walk |
//! | a control character, raw or escaped | refused | cuts strings and lines further down |
//! | `%` without two hex digits | refused | it means something else to everyone |
//! | no `/` at the front | refused, but for `*` alone | RFC 9112, 3.2.1 and 3.2.4 |
//!
//! Slashes are merged before dot segments are removed, so `/a//../b` is `/b`, as in a file system. With `Slashes::Keep`
//! it is `/a/b`, as in 5.2.4.
//!
//! Limits and keys use this path in one more form: see [`Fold`].
//!
//! [`escaped_query`] escapes the query and changes nothing else in it.
//!
//! Not here: the target's form and its length (bounded by the reader of the head).

mod fold;

use std::borrow::Cow;

use super::escapes::{hex_value, push_escape};

pub use super::escapes::escaped_query;
pub use fold::Fold;

/// The reason why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin with `/`.
    #[error("the path does not begin with a slash")]
    NoSlash,
    /// `%` is not followed by two hexadecimal digits.
    #[error("the path has an invalid percent-escape")]
    Escape,
    /// The path has a control character, raw or escaped.
    #[error("the path has a control character")]
    Control,
    /// The path has an escaped `/`, or a backslash, raw or escaped.
    #[error("the path has an escaped slash or a backslash")]
    Separator,
    /// A segment has `.` or `..` beside an escaped `/` that is kept.
    #[error("the path has a dot segment beside an escaped slash")]
    Dots,
}

/// The treatment of several slashes in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// They become one slash.
    #[default]
    Merge,
    /// They stay, for services that distinguish `/a//b` from `/a/b`.
    Keep,
}

/// The treatment of `%2F`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlashes {
    /// The path is refused.
    #[default]
    Refuse,
    /// It stays as a character of its segment, for services that route before they decode it.
    Keep,
}

/// The rules for reading paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// The treatment of several slashes in a row.
    pub slashes: Slashes,
    /// The treatment of `%2F`.
    pub encoded_slashes: EncodedSlashes,
    /// The spellings that are equal for matching and keys.
    pub fold: Fold,
}

impl PathRules {
    /// The normal form of `raw`, the path of an origin-form target without its query. Weir forwards this form.
    ///
    /// Borrowed, after one scan, if `raw` is in normal form.
    pub fn normalise(self, raw: &str) -> Result<Cow<'_, str>, PathError> {
        if self.is_normal(raw.as_bytes()) || raw == "*" {
            return Ok(Cow::Borrowed(raw));
        }
        self.rewrite(raw).map(Cow::Owned)
    }

    /// The form of a normalised path for matching and keys. `*` is the server as a whole, as its root is (RFC 9112, section
    /// 3.2.4).
    pub fn fold(self, normal: &str) -> Cow<'_, str> {
        let normal = if normal == "*" { "/" } else { normal };
        self.fold.path(normal, self.slashes == Slashes::Merge)
    }

    /// The form of `raw` for matching and keys.
    pub fn matched(self, raw: &str) -> Result<String, PathError> {
        let normal = self.normalise(raw)?;
        Ok(self.fold(&normal).into_owned())
    }

    /// The form of a path and a query for keys: an empty query is none.
    pub fn matched_uri(self, raw: &str) -> Result<String, PathError> {
        let (path, query) = raw.split_once('?').unwrap_or((raw, ""));
        let path = self.matched(path)?;
        Ok(if query.is_empty() { path } else { format!("{path}?{}", escaped_query(query)) })
    }

    /// The form for keys of the part of a path that a parameter of a pattern takes; none if no path has it.
    pub fn matched_part(self, raw: &str) -> Option<String> {
        self.matched(&format!("/{raw}")).ok()?.strip_prefix('/').map(str::to_owned)
    }

    fn is_normal(self, path: &[u8]) -> bool {
        path.first() == Some(&b'/')
            && path.iter().enumerate().all(|(at, &byte)| match class(byte) {
                Class::Unreserved | Class::Delimiter => true,
                Class::Slash => self.is_normal_segment_start(&path[at + 1..]),
                Class::Percent => self.is_normal_escape(&path[at + 1..]),
                Class::Backslash | Class::Control | Class::Foreign => false,
            })
    }

    /// Whether neither a dot segment nor a slash to be merged follows.
    fn is_normal_segment_start(self, tail: &[u8]) -> bool {
        match tail {
            [b'/', ..] => self.slashes == Slashes::Keep,
            _ => !begins_with_dots(tail),
        }
    }

    fn is_normal_escape(self, tail: &[u8]) -> bool {
        let [high, low, ref after @ ..] = *tail else { return false };
        let is_upper = !high.is_ascii_lowercase() && !low.is_ascii_lowercase();
        is_upper
            && match self.escaped(high, low) {
                Ok(b'/') => !begins_with_dots(after),
                Ok(byte) => stays_escaped(byte),
                Err(_) => false,
            }
    }

    /// The byte that `%`, `high` and `low` stand for, if a path may contain it.
    fn escaped(self, high: u8, low: u8) -> Result<u8, PathError> {
        let byte = hex_value(high).zip(hex_value(low)).map(|(high, low)| high << 4 | low).ok_or(PathError::Escape)?;
        match class(byte) {
            Class::Control => Err(PathError::Control),
            Class::Slash if self.encoded_slashes == EncodedSlashes::Keep => Ok(byte),
            Class::Slash | Class::Backslash => Err(PathError::Separator),
            _ => Ok(byte),
        }
    }

    fn rewrite(self, raw: &str) -> Result<String, PathError> {
        let segments = raw.strip_prefix('/').ok_or(PathError::NoSlash)?.split('/');
        let mut out = String::with_capacity(raw.len() + raw.len() / 4);
        let mut ends_in_slash = true;
        for segment in segments {
            let parent_end = out.len();
            out.push('/');
            self.push_segment(&mut out, segment)?;
            let depth = Depth::of(&out[parent_end + 1..], self.slashes)?;
            ends_in_slash = depth != Depth::Down;
            match depth {
                Depth::Down => {}
                Depth::Same => out.truncate(parent_end),
                Depth::Up => {
                    out.truncate(parent_end);
                    out.truncate(out.rfind('/').unwrap_or(0));
                }
            }
        }
        if ends_in_slash {
            out.push('/');
        }
        Ok(out)
    }

    fn push_segment(self, out: &mut String, segment: &str) -> Result<(), PathError> {
        let mut bytes = segment.bytes();
        while let Some(byte) = bytes.next() {
            match class(byte) {
                Class::Unreserved | Class::Delimiter => out.push(char::from(byte)),
                Class::Percent => {
                    let (high, low) = bytes.next().zip(bytes.next()).ok_or(PathError::Escape)?;
                    match self.escaped(high, low)? {
                        byte if stays_escaped(byte) => push_escape(out, byte),
                        byte => out.push(char::from(byte)),
                    }
                }
                Class::Foreign => push_escape(out, byte),
                Class::Control => return Err(PathError::Control),
                Class::Slash | Class::Backslash => return Err(PathError::Separator),
            }
        }
        Ok(())
    }
}

/// An escaped slash in canonical form.
pub const ENCODED_SLASH: &str = "%2F";

/// [`PathRules::normalise`] by the default rules.
pub fn normalise(raw: &str) -> Result<Cow<'_, str>, PathError> {
    PathRules::default().normalise(raw)
}

/// The class of a raw byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Unreserved in RFC 3986, 2.3.
    Unreserved,
    /// Any other `pchar` of 3.3: `sub-delims`, `:` and `@`.
    Delimiter,
    Slash,
    Percent,
    Backslash,
    Control,
    /// Always escaped.
    Foreign,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Foreign; 256];
    let mut byte: u8 = 0;
    loop {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => Class::Unreserved,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' => {
                Class::Delimiter
            }
            b'/' => Class::Slash,
            b'%' => Class::Percent,
            b'\\' => Class::Backslash,
            0..=0x1F | 0x7F => Class::Control,
            _ => Class::Foreign,
        };
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

/// Whether `tail` begins with `.` or `..` before the end of a segment, its parameters or an escaped slash.
fn begins_with_dots(tail: &[u8]) -> bool {
    match tail {
        [b'.', b'.', after @ ..] | [b'.', after @ ..] => {
            matches!(after, [] | [b'/' | b';', ..] | [b'%', b'2', b'F' | b'f', ..])
        }
        _ => false,
    }
}

fn stays_escaped(byte: u8) -> bool {
    class(byte) != Class::Unreserved
}

/// The direction in which a segment leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Down,
    Same,
    Up,
}

impl Depth {
    /// The direction of a segment with canonical escapes.
    fn of(segment: &str, slashes: Slashes) -> Result<Self, PathError> {
        if segment.contains(ENCODED_SLASH)
            && segment.split(ENCODED_SLASH).any(|part| matches!(without_params(part), "." | ".."))
        {
            return Err(PathError::Dots);
        }
        Ok(match without_params(segment) {
            _ if segment.is_empty() && slashes == Slashes::Merge => Self::Same,
            "." => Self::Same,
            ".." => Self::Up,
            _ => Self::Down,
        })
    }
}

fn without_params(segment: &str) -> &str {
    segment.split_once(';').map_or(segment, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEPT: PathRules = PathRules { slashes: Slashes::Keep, ..NONE };
    /// The default rules, with escaped slashes.
    const ENCODED: PathRules = PathRules { encoded_slashes: EncodedSlashes::Keep, ..NONE };
    const NONE: PathRules = PathRules {
        slashes: Slashes::Merge,
        encoded_slashes: EncodedSlashes::Refuse,
        fold: Fold { case: false, trailing_slash: false, params: false },
    };

    #[test]
    fn normal_paths_are_borrowed() {
        for path in [
            "/",
            "/a",
            "/a/",
            "/a/b.c/~d-e_f",
            "/a:b@c;d=e,f!g$h&i'j(k)l*m+n",
            "/%20%25%3A%C3%A9",
            "/.a/..b/a./b../.../;x/a;..",
            "/..%3B",
            "*",
        ] {
            assert!(matches!(normalise(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    #[test]
    fn rewrites() {
        for (raw, normal) in [
            ("/%61%7E%2D%5f%2e%41", "/a~-_.A"),
            ("/%c3%a9", "/%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/%c3%A9", "/%C3%A9"),
            ("/%3a:%2a*", "/%3A:%2A*"),
            ("/%2561", "/%2561"),
            ("/%3f%23", "/%3F%23"),
            ("/a b\"<>^`{|}[]#?", "/a%20b%22%3C%3E%5E%60%7B%7C%7D%5B%5D%23%3F"),
            ("//", "/"),
            ("///a//b//", "/a/b/"),
            ("/.", "/"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../c", "/a/c"),
            ("/a/./b/../../c", "/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/%2E/b", "/a/b"),
            ("/a/..;/b", "/b"),
            ("/a/..;x=1/b", "/b"),
            ("/a/%2e%2e;x/b", "/b"),
            ("/a/.;x/b", "/a/b"),
            ("/a/..;", "/"),
            ("/a//../b", "/b"),
            ("/a/%2e%2e%3bx", "/a/..%3Bx"),
            ("/...//", "/.../"),
        ] {
            assert_eq!(normalise(raw).as_deref(), Ok(normal), "{raw}");
        }
    }

    #[test]
    fn slashes_are_kept_on_request() {
        for (raw, normal) in [
            ("/", "/"),
            ("//", "//"),
            ("/a//b", "/a//b"),
            ("///a//%41//", "///a//A//"),
            ("/a//.//b", "/a///b"),
            ("/a//../b", "/a/b"),
            ("//..", "/"),
            ("/..//..", "/"),
            ("/a/..//b", "//b"),
            ("/a//..;x/", "/a/"),
            ("/a/b/..", "/a/"),
        ] {
            assert_eq!(KEPT.normalise(raw).as_deref(), Ok(normal), "{raw}");
        }
        assert_eq!(KEPT.normalise("/a//%2f"), Err(PathError::Separator));
    }

    #[test]
    fn escaped_slashes_are_kept_on_request() {
        for (raw, normal) in [
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb%2F", "/a%2Fb%2F"),
            ("/%2F%2f/%2F", "/%2F%2F/%2F"),
            ("/a%2F/b", "/a%2F/b"),
            ("/a%2F//b", "/a%2F/b"),
            ("/a%2Fb/../c", "/c"),
            ("/a/./b%2fc%3a", "/a/b%2Fc%3A"),
            ("/a%2F.../.a%2F..b", "/a%2F.../.a%2F..b"),
            ("/a%2F;..", "/a%2F;.."),
            ("/a%2F..%3B", "/a%2F..%3B"),
            ("/%252F..", "/%252F.."),
        ] {
            assert_eq!(ENCODED.normalise(raw).as_deref(), Ok(normal), "{raw}");
            assert!(matches!(ENCODED.normalise(normal), Ok(Cow::Borrowed(_))), "{normal}");
        }
        for (raw, error) in [
            ("/..%2Fa", PathError::Dots),
            ("/.%2fa", PathError::Dots),
            ("/a%2F..", PathError::Dots),
            ("/a%2f%2e%2E/b", PathError::Dots),
            ("/a%2F./b", PathError::Dots),
            ("/a%2F..%2Fb", PathError::Dots),
            ("/a%2F%2F.%2Fb", PathError::Dots),
            ("/a%2F..;x/b", PathError::Dots),
            ("/..;x%2Fa", PathError::Dots),
            ("/a%2F../../b", PathError::Dots),
            ("%2Fa", PathError::NoSlash),
            ("/a%2F\\", PathError::Separator),
            ("/a%5C", PathError::Separator),
            ("/%2F%5c", PathError::Separator),
            ("/%2F%00", PathError::Control),
            ("/%2", PathError::Escape),
        ] {
            assert_eq!(ENCODED.normalise(raw), Err(error), "{raw}");
        }
    }

    #[test]
    fn refusals() {
        for (raw, error) in [
            ("", PathError::NoSlash),
            ("a", PathError::NoSlash),
            ("**", PathError::NoSlash),
            ("%2Fa", PathError::NoSlash),
            ("http://a/", PathError::NoSlash),
            ("/%", PathError::Escape),
            ("/%4", PathError::Escape),
            ("/%/41", PathError::Escape),
            ("/%4/1", PathError::Escape),
            ("/%zz", PathError::Escape),
            ("/%+1", PathError::Escape),
            ("/%u0041", PathError::Escape),
            ("/%é", PathError::Escape),
            ("/%00", PathError::Control),
            ("/%1f", PathError::Control),
            ("/%7F", PathError::Control),
            ("/a\0", PathError::Control),
            ("/a\n", PathError::Control),
            ("/a\x7f", PathError::Control),
            ("/a%2Fb", PathError::Separator),
            ("/a%2fb", PathError::Separator),
            ("/a%5Cb", PathError::Separator),
            ("/a%5cb", PathError::Separator),
            ("/a\\b", PathError::Separator),
            ("/a%2F/../b", PathError::Separator),
        ] {
            assert_eq!(normalise(raw), Err(error), "{raw:?}");
        }
    }

    /// Random paths of the characters that the rules treat specially.
    fn path() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("/".to_owned()),
            Just(".".to_owned()),
            Just("..".to_owned()),
            Just(";x".to_owned()),
            Just("%2e".to_owned()),
            Just("%2E".to_owned()),
            "%[0-9a-fA-F]{2}",
            "%2[fF]",
            "[a-c:@ {é|]",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..16).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    /// The path in a server that decodes escapes once and does not interpret segments.
    fn decoded(path: &str) -> Vec<u8> {
        let bytes = path.as_bytes();
        let mut out = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b'%' {
                out.push(u8::from_str_radix(&path[at + 1..at + 3], 16).unwrap());
                at += 3;
            } else {
                out.push(bytes[at]);
                at += 1;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn the_output_is_normal(raw in path()) {
            if let Ok(normal) = normalise(&raw) {
                prop_assert!(normal.starts_with('/'));
                prop_assert!(normal.is_ascii());
                prop_assert!(!normal.contains("//"));
                for segment in normal.split('/') {
                    let name = segment.split(';').next().unwrap();
                    prop_assert!(name != "." && name != "..", "{}", normal);
                }
                for (at, _) in normal.match_indices('%') {
                    let digits = &normal[at + 1..at + 3];
                    prop_assert!(!digits.contains(|c: char| c.is_ascii_lowercase()));
                    let byte = u8::from_str_radix(digits, 16).unwrap();
                    prop_assert!(!(byte.is_ascii_alphanumeric() || b"-._~/\\".contains(&byte) || byte.is_ascii_control()));
                }
                prop_assert!(matches!(normalise(&normal), Ok(Cow::Borrowed(same)) if same == normal));
            }
        }

        /// Kept slashes are the only difference, and a second normalisation keeps them too.
        #[test]
        fn kept_slashes_are_normal_too(raw in path()) {
            if let Ok(kept) = KEPT.normalise(&raw) {
                prop_assert!(kept.starts_with('/'));
                for segment in kept.split('/') {
                    let name = segment.split(';').next().unwrap();
                    prop_assert!(name != "." && name != "..", "{}", kept);
                }
                let again = KEPT.normalise(&kept);
                prop_assert!(matches!(&again, Ok(Cow::Borrowed(same)) if *same == kept));
                if !raw.contains("//") && !raw.contains('.') && !raw.to_ascii_lowercase().contains("%2e") {
                    prop_assert_eq!(normalise(&raw).unwrap(), kept);
                }
            } else {
                prop_assert!(normalise(&raw).is_err());
            }
        }

        /// The scan and the rewriting agree on the normal form.
        #[test]
        fn borrowed_means_unchanged(raw in path()) {
            for rules in [NONE, KEPT, ENCODED] {
                let rewritten = rules.rewrite(&raw);
                prop_assert_eq!(rules.is_normal(raw.as_bytes()), rewritten.as_ref() == Ok(&raw), "{:?}", rewritten);
            }
        }

        /// A server that decodes escaped slashes finds no dot segment.
        #[test]
        fn kept_escaped_slashes_hide_no_dots(raw in path()) {
            let kept = ENCODED.normalise(&raw);
            if let Ok(kept) = &kept {
                for part in kept.replace("%2F", "/").split('/') {
                    let name = part.split(';').next().unwrap();
                    prop_assert!(name != "." && name != "..", "{}", kept);
                }
            }
            if let Ok(normal) = normalise(&raw) {
                prop_assert_eq!(kept, Ok(normal));
            }
        }

        /// Without dots and double slashes only the spelling changes, so no two resources merge.
        #[test]
        fn only_the_spelling_changes(segments in prop::collection::vec("[a-zA-Z :;@é%é]{1,6}", 1..4)) {
            let raw = format!("/{}", segments.join("/").replace('%', "%25"));
            prop_assert_eq!(decoded(&normalise(&raw).unwrap()), decoded(&raw));
        }

        #[test]
        fn never_panics(raw in any::<String>()) {
            let _ = normalise(&raw);
        }
    }
}
