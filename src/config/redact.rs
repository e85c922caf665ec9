//! Masks secrets in the text that messages show.
//!
//! The readers of options report the positions of secrets. This module masks them. It also finds text that looks like
//! a secret, because the parser drops parts of a file that is not TOML.

use std::ops::Range;

use super::diagnostics::nearest;
use super::schema;
use crate::base::visible::sets_direction;

/// Replaces every byte of `secrets` by `*`, and every mark of direction by a visible character. Positions in the text do
/// not change.
pub(super) fn mask(text: &str, secrets: &[Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (at, mark) in text.match_indices(sets_direction) {
        // One character of as many bytes: all columns stay.
        let shown = if mark.len() == 2 { "\u{bf}" } else { "\u{fffd}" };
        bytes[at..at + mark.len()].copy_from_slice(shown.as_bytes());
    }
    for secret in secrets {
        let span = text.floor_char_boundary(secret.start)..text.ceil_char_boundary(secret.end);
        for byte in bytes.get_mut(span).unwrap_or_default() {
            if !byte.is_ascii_control() {
                *byte = b'*';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The ranges of the user and password of each URL.
pub(super) fn userinfos(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let rest = &text[start..];
        let end = rest.find(['/', '"', '\'', '\n']).unwrap_or(rest.len());
        if let Some(length) = rest[..end].rfind('@') {
            found.push(start..start + length);
        }
    }
    found
}

/// The ranges of the content of private keys in PEM. The range of a key without an end extends to the end of the text.
pub(super) fn private_keys(text: &str) -> Vec<Range<usize>> {
    let begins = text.match_indices("PRIVATE KEY-----");
    let within = |(at, begin): (usize, &str)| {
        let start = at + begin.len();
        start..text[start..].find("-----").map_or(text.len(), |end| start + end)
    };
    begins.map(within).collect()
}

/// The ranges after words like `secret`, for text that is not TOML.
pub(super) fn after_secrets(text: &str) -> Vec<Range<usize>> {
    let is_word_character = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut found = Vec::new();
    for word in text.split(|c| !is_word_character(c)).filter(|word| is_like_secret(word)) {
        let word_end = word.as_ptr().addr() - text.as_ptr().addr() + word.len();
        let line = text[word_end..].lines().next().unwrap_or_default();
        let rest = line.trim_start_matches(['"', '\'', ' ', '\t']);
        let before_value = if rest.starts_with('=') { line.len() - rest.len() + 1 } else { 0 };
        let value = line[before_value..].trim_start();
        if is_source(value) {
            continue;
        }
        let start = word_end + before_value;
        let end = match ["\"\"\"", "'''"].into_iter().find(|quotes| value.starts_with(quotes)) {
            Some(quotes) => end_of_block(text, start, quotes),
            None => word_end + line.len(),
        };
        found.push(start..end);
    }
    found
}

fn is_like_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let contains = ["secret", "passw"].iter().any(|part| lower.contains(part));
    word == "token" || contains || nearest(word, ["secret", "password"]).is_some()
}

/// The ranges of words that may be secrets of `identity` or `access`: all words that are not names of their options.
/// In TOML only comments can contain such words, because the readers report the secrets of options.
pub(super) fn unknown_words_of_identities(text: &str, is_toml: bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut is_suspect = text.contains("identity");
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            is_suspect = !is_other_section(line);
        }
        let is_of_header = |byte: u8| byte.is_ascii_alphanumeric() || b"[]._-".contains(&byte);
        let is_header = line.starts_with('[') && line.trim_end().bytes().all(is_of_header);
        let from = if is_toml { line.find('#').unwrap_or(line.len()) } else { 0 };
        if is_suspect && !is_header {
            let words = unknown_words(&line[from..], &["identity", "access"]);
            found.extend(words.map(|word| offset + from + word.start..offset + from + word.end));
        }
        offset += line.len();
    }
    found
}

/// Whether a header line begins a section other than `identity` and `access`.
fn is_other_section(line: &str) -> bool {
    let name = line.trim_start_matches('[').split([']', '.']).next().unwrap_or_default();
    !["identity", "access"].contains(&name) && schema::keys_of("").contains(&name)
}

/// The ranges of words that may be keys of overrides, in text that is not TOML: all words that are not names of options of
/// limits, from `overrides` to the end of the line, of its braces, or of the section that it begins.
pub(super) fn after_overrides(text: &str) -> Vec<Range<usize>> {
    const WORD: &str = "overrides";
    let (mut found, mut end) = (Vec::new(), 0);
    for (at, _) in text.match_indices(WORD) {
        // The words of an inner table are those of the outer one.
        if at < end {
            continue;
        }
        let start = at + WORD.len();
        end = start + end_of_overrides(&text[start..]);
        let words = unknown_words(&text[start..end], &["limit"]);
        found.extend(words.map(|word| start + word.start..start + word.end));
    }
    found
}

/// The length of the text that may have keys of overrides, after their name.
fn end_of_overrides(text: &str) -> usize {
    let is_section = text.trim_start_matches(['"', '\'', ' ', '\t']).starts_with(']');
    let (mut length, mut depth) = (0, 0_usize);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index > 0 && (line.starts_with('[') || depth == 0 && !is_section) {
            break;
        }
        depth = line.bytes().fold(depth, |depth, byte| match byte {
            b'{' => depth + 1,
            b'}' => depth.saturating_sub(1),
            _ => depth,
        });
        length += line.len();
    }
    length
}

/// The ranges of words that are not names of options in `tables`.
fn unknown_words(line: &str, tables: &'static [&'static str]) -> impl Iterator<Item = Range<usize>> {
    let is_known = move |word: &str| {
        let is_in_table = |path: &str| tables.iter().any(|table| path.starts_with(table));
        let mut names = schema::options().iter().filter(|option| is_in_table(option.path));
        names.any(|option| option.path.split('.').any(|name| name == word))
    };
    let is_word_character = |c: char| !c.is_whitespace() && !"[]{}=,.'\"#".contains(c);
    let words = line.split(move |c| !is_word_character(c)).filter(move |word| !word.is_empty() && !is_known(word));
    words.map(|word| {
        let start = word.as_ptr().addr() - line.as_ptr().addr();
        start..start + word.len()
    })
}

/// Whether a value names the source of a secret, as `{ env = ..` and `{ file = ..` do. Messages may show it.
fn is_source(value: &str) -> bool {
    let inner = value.strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with("env") || inner.starts_with("file"))
}

fn end_of_block(text: &str, start: usize, quotes: &str) -> usize {
    let mut blocks = text[start..].match_indices(quotes);
    blocks.nth(1).map_or(text.len(), |(at, _)| start + at)
}

/// Whether the name of a key suggests that its value is secret.
pub(super) fn sounds_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["secret", "passw", "token", "credential", "auth", "private", "api_key", "apikey"]
        .iter()
        .any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_bytes_and_keeps_positions() {
        assert_eq!(mask("a = \"é\nx\"", &[5..9, 100..200]), "a = \"**\n*\"");
        assert_eq!(mask("\u{202e}a\u{61c}\u{2069}b", &[3..4, 100..200]), "\u{fffd}*\u{bf}\u{fffd}b");
    }

    #[test]
    fn userinfo_ends_at_the_last_at() {
        let text = "u = 'http://me:p@ss@host/@' # https://b@c";
        assert_eq!(mask(text, &userinfos(text)), "u = 'http://*******@host/@' # https://*@c");
    }

    #[test]
    fn keys_of_overrides_in_broken_text() {
        for (text, shown) in [
            ("overrides = { \"a.b\" = 'c' }\nburst = 5", "overrides = { \"*.*\" = '*' }\nburst = 5"),
            ("overrides = { a = { rate = b },\n'c\" = 1\nd", "overrides = { * = { rate = * },\n'*\" = *\n*"),
            ("overrides = { a\n[[limit]]\nb", "overrides = { *\n[[limit]]\nb"),
            ("[limit.overrides]\n\"a = 1\nb = 2\n[log]\nc", "[limit.overrides]\n\"* = *\n* = *\n[log]\nc"),
            ("[limit.overrides.a]\nrate = b", "[limit.overrides.*]\nrate = b"),
            ("overrides.\"a\" = b\nc", "overrides.\"*\" = *\nc"),
            ("overrides } overrides { a\nb", "overrides } overrides { *\n*"),
        ] {
            assert_eq!(mask(text, &after_overrides(text)), shown);
        }
    }

    #[test]
    fn secrets_of_broken_text() {
        for (text, shown) in [
            ("secret = \"abc\nx = 1", "secret =*****\nx = 1"),
            ("{ Secret = { env = \"A\" }", "{ Secret = { env = \"A\" }"),
            ("secret = '''a\nb'''\nc", "secret =*****\n*'''\nc"),
            ("secret = \"\"\"a\nb", "secret =*****\n*"),
            ("x = secret", "x = secret"),
            ("{ sercet = 'a' }, { secret 'b' }", "{ sercet =**********************"),
            ("secret: a, secret = b", "secret***************"),
        ] {
            assert_eq!(mask(text, &after_secrets(text)), shown);
        }
    }
}
