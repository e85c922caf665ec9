//! Characters that people do not see, but that change the text around them: controls, and marks of the direction of text.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether `character` is a control character or sets the direction of text.
pub fn is_hidden(character: char) -> bool {
    character.is_control() || sets_direction(character)
}

/// Whether a terminal or a browser may show text in another order because of `character`.
pub fn sets_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with `\u202e` in place of each character that sets the direction of text. JSON stays JSON.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Most texts are ASCII.
    if text.is_ascii() { Cow::Borrowed(text) } else { escaped(text, sets_direction) }
}

/// `text` with `\u001b` in place of each character that is hidden, for a terminal. Tabs and ends of lines stay, and JSON
/// stays JSON.
pub fn printable(text: &str) -> String {
    let is_escaped = |character| is_hidden(character) && !matches!(character, '\t' | '\n');
    text.split("\r\n").map(|lines| escaped(lines, is_escaped)).collect::<Vec<_>>().join("\r\n")
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            let _ = write!(shown, "\\u{:04x}", u32::from(character)); // writing to a string cannot fail
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_direction_become_visible() {
        for (text, shown) in [
            ("", ""),
            ("héllo\t\u{1b}", "héllo\t\u{1b}"),
            ("a\u{202a}\u{202e}b", "a\\u202a\\u202eb"),
            ("\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}", "\\u2066\\u2069\\u200e\\u200f\\u061c"),
            ("\u{200d}\u{202f}\u{2065}\u{206a}", "\u{200d}\u{202f}\u{2065}\u{206a}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn a_terminal_gets_no_hidden_characters() {
        for (text, shown) in [
            ("", ""),
            ("héllo\tx\ny\r\nz", "héllo\tx\ny\r\nz"),
            ("\u{1b}[2J\u{9b}2J\u{7}", "\\u001b[2J\\u009b2J\\u0007"),
            ("real\rforged\r\r\n", "real\\u000dforged\\u000d\r\n"),
            ("a\u{202e}b", "a\\u202eb"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
