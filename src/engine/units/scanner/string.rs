//! Strings of JSON (RFC 8259, section 7) in pieces.

/// The place within a string, behind its first quotation mark.
#[derive(Debug, Default)]
pub(super) struct StringScanner {
    escape: Escape,
    /// The first half of a surrogate pair, which its second half may follow.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// Behind a backslash.
    Begun,
    /// Behind `\u` and some digits.
    Hex { digits: u8, unit: u16 },
}

impl StringScanner {
    /// Reads on, and appends to the text as long as it is shorter than its bound. Returns what follows the string, or
    /// `None` if its end is not there. `None` altogether if it is no string.
    #[expect(clippy::option_option, reason = "a failure, more to come, or the rest")]
    pub(super) fn read<'b>(
        &mut self,
        mut bytes: &'b [u8],
        mut text: Option<(&mut Vec<u8>, usize)>,
    ) -> Option<Option<&'b [u8]>> {
        let mut keep = |more: &[u8]| {
            if let Some((text, bound)) = &mut text {
                let room = bound.saturating_sub(text.len());
                text.extend_from_slice(&more[..more.len().min(room)]);
            }
        };
        loop {
            if self.escape == Escape::None {
                let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                if bytes[..end].iter().any(|byte| *byte < b' ') {
                    return None;
                }
                if end > 0 {
                    self.end_pair(&mut keep);
                    keep(&bytes[..end]);
                }
                match bytes[end..] {
                    [] => return Some(None),
                    [b'"', ref rest @ ..] => {
                        self.end_pair(&mut keep);
                        return Some(Some(rest));
                    }
                    [b'\\', ref rest @ ..] => (self.escape, bytes) = (Escape::Begun, rest),
                    _ => return None,
                }
            }
            let [byte, rest @ ..] = bytes else { return Some(None) };
            bytes = rest;
            self.escape = match self.escape {
                Escape::Hex { digits, unit } => {
                    let digit = char::from(*byte).to_digit(16)?;
                    let unit = unit << 4 | u16::try_from(digit).ok()?;
                    if digits == 3 {
                        self.append(unit, &mut keep);
                        Escape::None
                    } else {
                        Escape::Hex { digits: digits + 1, unit }
                    }
                }
                _ if *byte == b'u' => Escape::Hex { digits: 0, unit: 0 },
                _ => {
                    self.end_pair(&mut keep);
                    keep(&[unescaped(*byte)?]);
                    Escape::None
                }
            };
        }
    }

    /// Appends the replacement character for a first half that no second half follows.
    fn end_pair(&mut self, keep: &mut impl FnMut(&[u8])) {
        if self.high.take().is_some() {
            keep(char::REPLACEMENT_CHARACTER.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    /// Appends a unit of UTF-16. Half of a pair without the other half is appended as the replacement character.
    fn append(&mut self, unit: u16, keep: &mut impl FnMut(&[u8])) {
        if (0xd800..0xdc00).contains(&unit) {
            self.end_pair(keep);
            self.high = Some(unit);
            return;
        }
        let high = self.high.take();
        let pair = high.map(|high| [high, unit]);
        let units = pair.as_ref().map_or(std::slice::from_ref(&unit), |pair| pair.as_slice());
        for character in char::decode_utf16(units.iter().copied()) {
            keep(character.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

fn unescaped(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}
