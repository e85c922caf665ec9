//! Header fields in the order in which they were received.
//!
//! The names and values lie in one buffer; a lookup compares each name. A request has a dozen fields, so that a linear
//! search costs less than a map. A filter of 64 bits answers most lookups of absent names.
//!
//! The bytes that names and values may have stand here too; the parsers check them.

use std::ops::Range;

use http::HeaderMap;

/// Returns the value without SP and HTAB at both ends (OWS of RFC 9110, section 5.6.3).
pub fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The whole number that `1*DIGIT` spells, saturated at `u64::MAX`. `None` for any other text: a sign, white space, no
/// digit.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let append = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0, append))
}

/// tchar (RFC 9110, section 5.6.2).
pub const TOKEN: u8 = 1;
/// field-vchar, SP and HTAB (RFC 9110, section 5.5); no other control character, no DEL.
pub const VALUE: u8 = 2;
/// tchar without upper-case letters: the names of HTTP/2 (RFC 9113, section 8.2.1).
pub const LOWER: u8 = 4;
/// Letters, digits and `-`: services read only names of these alike. CGI and WSGI make `_` of `-`, and some of them of
/// other bytes too.
pub const PLAIN: u8 = 8;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        let mut class = 0;
        if byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            class |= if byte.is_ascii_uppercase() { TOKEN } else { TOKEN | LOWER };
        }
        if is_value_byte(byte) {
            class |= VALUE;
        }
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            class |= PLAIN;
        }
        table[byte as usize] = class;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Whether `byte` belongs to one of the classes.
#[inline]
pub fn is(byte: u8, classes: u8) -> bool {
    CLASSES[byte as usize] & classes != 0
}

/// The classes to which all of `bytes` belong.
pub fn shared_classes(bytes: &[u8]) -> u8 {
    bytes.iter().fold(u8::MAX, |classes, &byte| classes & CLASSES[byte as usize])
}

/// Whether all of `bytes` belong to the class.
pub fn are_all(bytes: &[u8], class: u8) -> bool {
    shared_classes(bytes) & class != 0
}

/// Whether all of `bytes` are in [`VALUE`]. Eight bytes at once, unless one of them is in doubt.
pub fn is_value(bytes: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    // Whether a byte may be below 0x20 or equal to 0x7f. Nearly no valid value is in doubt.
    let is_doubtful = |word: u64| {
        let no_del = word ^ (0x7f * LOW);
        (word.wrapping_sub(0x20 * LOW) & !word | no_del.wrapping_sub(LOW) & !no_del) & (0x80 * LOW) != 0
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let is_good = |word: &[u8; 8]| !is_doubtful(u64::from_ne_bytes(*word)) || word.iter().copied().all(is_value_byte);
    words.iter().all(is_good) && rest.iter().copied().all(is_value_byte)
}

const fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Digits of a Content-Length: those of `i64::MAX`.
const LENGTH_DIGITS_MAX: usize = 19;

/// Parses `1*DIGIT` (RFC 9110, section 8.6). None above `i64::MAX`, which every reader can represent.
pub fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.len() > LENGTH_DIGITS_MAX {
        return None;
    }
    decimal(digits).filter(|value| i64::try_from(*value).is_ok())
}

/// The position of one field in the bytes of its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    name: u32,
    value: u32,
    value_len: u32,
    /// Offset of the byte after the field line.
    end: u32,
    name_len: u16,
}

/// The positions of all fields of a head, in the order received.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    all: Vec<Span>,
    /// A filter: one bit for each kind of name that is present.
    seen: u64,
    /// A line differs from `name: value` CR LF, with one space and no other white space.
    needs_rewrite: bool,
}

impl Spans {
    /// No fields, with memory for `count` of them.
    pub fn with_capacity(count: usize) -> Self {
        Self { all: Vec::with_capacity(count), ..Self::default() }
    }

    /// Adds a field whose name and value have these positions, and whose line ends before `end`. Offsets and lengths
    /// that do not fit are cut. A head of less than 4 GiB with names below 64 KiB always fits.
    pub fn push(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>, end: usize) {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let is_between = |range, expected: &[u8]| bytes.get(range) == Some(expected);
        self.needs_rewrite |= !is_between(name.end..value.start, b": ") || !is_between(value.end..end, b"\r\n");
        self.seen |= name_bit(bytes.get(name.clone()).unwrap_or(&[]));
        self.all.push(Span {
            name: narrow(name.start),
            value: narrow(value.start),
            value_len: narrow(value.len()),
            end: narrow(end),
            name_len: u16::try_from(name.len()).unwrap_or(u16::MAX),
        });
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Span>()
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.all.clear();
        (self.seen, self.needs_rewrite) = (0, false);
    }

    /// The fields; `bytes` is the buffer that the offsets refer to.
    pub fn of<'b>(&'b self, bytes: &'b [u8]) -> Fields<'b> {
        Fields { bytes, spans: &self.all, seen: self.seen, needs_rewrite: self.needs_rewrite }
    }
}

/// The fields of a head, borrowed. Names compare without regard to case.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'b> {
    bytes: &'b [u8],
    spans: &'b [Span],
    seen: u64,
    needs_rewrite: bool,
}

impl<'b> Fields<'b> {
    /// No fields.
    pub const NONE: Fields<'static> = Fields { bytes: &[], spans: &[], seen: 0, needs_rewrite: false };

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All names as received, with their values without surrounding white space.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| (span.name(bytes), span.value(bytes)))
    }

    /// All values of `name`, which is in lower case.
    pub fn all<'n>(&self, name: &'n str) -> impl DoubleEndedIterator<Item = &'b [u8]> + use<'b, 'n> {
        let (bytes, name) = (self.bytes, name.as_bytes());
        let spans = if self.seen & name_bit(name) == 0 { &[] } else { self.spans };
        spans.iter().filter(move |span| is_named(span.name(bytes), name)).map(move |span| span.value(bytes))
    }

    /// The fields whose names have one of these bits of [`name_bit`], with their values.
    pub(crate) fn with_bits(&self, bits: u64) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
        let spans = if self.seen & bits == 0 { &[] } else { self.spans };
        let (bytes, all) = (self.bytes, spans.iter());
        all.map(move |span| (span, span.name(bytes)))
            .filter(move |(_, name)| name_bit(name) & bits != 0)
            .map(move |(span, name)| (name, span.value(bytes)))
    }

    /// The first value of `name`, which is in lower case.
    pub fn first(&self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
    }

    /// Whether there is a field `name`, which is in lower case.
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Writes the lines of the fields whose names are wanted: one space before the value, CR LF after it.
    pub fn write_lines(&self, out: &mut Vec<u8>, mut is_wanted: impl FnMut(&[u8]) -> bool) {
        if self.needs_rewrite {
            for (name, value) in self.iter().filter(|(name, _)| is_wanted(name)) {
                for piece in [name, b": ", value, b"\r\n"] {
                    out.extend_from_slice(piece);
                }
            }
            return;
        }
        // Adjacent lines are copied at once.
        let mut run = 0..0;
        for span in self.spans.iter().filter(|span| is_wanted(span.name(self.bytes))) {
            if run.end != span.name {
                out.extend_from_slice(slice(self.bytes, run.start, run.end - run.start));
                run.start = span.name;
            }
            run.end = span.end;
        }
        out.extend_from_slice(slice(self.bytes, run.start, run.end - run.start));
    }

    /// The members of the comma-separated list in all fields `name`, without surrounding white space (RFC 9110, section
    /// 5.6.1).
    pub fn members<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        self.all(name).flat_map(|line| line.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
    }
}

impl Span {
    fn name(self, bytes: &[u8]) -> &[u8] {
        slice(bytes, self.name, self.name_len.into())
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        slice(bytes, self.value, self.value_len)
    }
}

fn slice(bytes: &[u8], start: u32, len: u32) -> &[u8] {
    let (start, len) = (start as usize, len as usize);
    bytes.get(start..start + len).unwrap_or(&[])
}

#[inline]
fn is_named(name: &[u8], lower: &[u8]) -> bool {
    name.len() == lower.len() && name.eq_ignore_ascii_case(lower)
}

/// The filter bit of a name: a hash of its length, its first and its last byte, without regard to case.
#[inline]
pub(crate) fn name_bit(name: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return 1 };
    let mixed = name.len() ^ usize::from(first | 0x20) << 1 ^ usize::from(last | 0x20) << 3;
    1 << (mixed & 63)
}

/// Fields that own their memory.
#[derive(Clone, Debug, Default)]
pub struct FieldBuf {
    bytes: Vec<u8>,
    spans: Spans,
}

impl FieldBuf {
    /// Adds a field. SP and HTAB at both ends of the value are removed, as over HTTP/1: HTTP/2 may carry them (RFC
    /// 9113, section 8.2.1).
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let value = trim_ows(value);
        let start = self.bytes.len();
        for piece in [name, b": ", value, b"\r\n"] {
            self.bytes.extend_from_slice(piece);
        }
        let (end, value_at) = (self.bytes.len(), start + name.len() + 2);
        self.spans.push(&self.bytes, start..start + name.len(), value_at..value_at + value.len(), end);
    }

    /// The fields that were added.
    pub fn fields(&self) -> Fields<'_> {
        self.spans.of(&self.bytes)
    }

    /// Whether no field was added.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.memory()
    }

    /// Frees memory that is not used.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.spans.all.shrink_to_fit();
    }
}

impl From<&HeaderMap> for FieldBuf {
    fn from(headers: &HeaderMap) -> Self {
        Self::of(headers, |_| true)
    }
}

impl FieldBuf {
    /// The fields of `headers` whose names are wanted.
    pub fn of(headers: &HeaderMap, is_wanted: impl Fn(&[u8]) -> bool) -> Self {
        let lens = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + b": \r\n".len());
        let mut fields = Self { bytes: Vec::with_capacity(lens.sum()), spans: Spans::default() };
        fields.spans.all.reserve_exact(headers.len());
        for (name, value) in headers.iter().filter(|(name, _)| is_wanted(name.as_str().as_bytes())) {
            fields.push(name.as_str().as_bytes(), value.as_bytes());
        }
        fields
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for FieldBuf {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(all: I) -> Self {
        let mut fields = Self::default();
        for (name, value) in all {
            fields.push(name.as_ref(), value.as_ref());
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_alone_are_a_number() {
        for (text, number) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("042", Some(42)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1_000", None),
            ("1.5", None),
            ("1x", None),
            ("\u{663}", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn finds_by_name_in_any_case() {
        let fields: FieldBuf =
            [("Host", "a"), ("X-Key", "1"), ("x-kEY", "2"), ("X-Keys", "3"), ("Accept", "b, ,c")].into_iter().collect();
        let all = |name| fields.fields().all(name).collect::<Vec<_>>();
        assert_eq!(all("x-key"), [&b"1"[..], b"2"]);
        assert_eq!(all("host"), [b"a"]);
        assert!(all("x-kez").is_empty() && all("").is_empty());
        assert!(!fields.is_empty() && FieldBuf::default().is_empty());
        let mut lines = Vec::new();
        fields.fields().write_lines(&mut lines, |name| name != b"x-kEY");
        assert_eq!(lines, b"Host: a\r\nX-Key: 1\r\nX-Keys: 3\r\nAccept: b, ,c\r\n");
        assert_eq!(fields.fields().members("accept").collect::<Vec<_>>(), [&b"b"[..], b"", b"c"]);
    }

    #[test]
    fn lines_in_another_form_are_rewritten() {
        let bytes = b"a:1\nb: 2 \r\nc:3\r\n";
        let mut spans = Spans::default();
        spans.push(bytes, 0..1, 2..3, 4);
        spans.push(bytes, 4..5, 7..8, 11);
        spans.push(bytes, 11..12, 13..14, 16);
        let mut lines = Vec::new();
        spans.of(bytes).write_lines(&mut lines, |name| name != b"b");
        assert_eq!(lines, b"a: 1\r\nc: 3\r\n");
    }

    #[test]
    fn white_space_around_a_value_is_removed() {
        for line in ["a: 1\r\n", "a:1\r\n", "a:  1\r\n", "a:\t1\r\n", "a: 1 \r\n", "a: 1\t \r\n"] {
            let at = line.find('1').unwrap_or(0);
            let mut spans = Spans::default();
            spans.push(line.as_bytes(), 0..1, at..at + 1, line.len());
            let mut lines = Vec::new();
            spans.of(line.as_bytes()).write_lines(&mut lines, |_| true);
            assert_eq!(lines, b"a: 1\r\n", "{line:?}");
        }
        for value in ["1", " 1", "1\t", " \t1 \t "] {
            let fields: FieldBuf = [("a", value)].into_iter().collect();
            let mut lines = Vec::new();
            fields.fields().write_lines(&mut lines, |_| true);
            assert_eq!((fields.fields().first("a"), &lines[..]), (Some(&b"1"[..]), &b"a: 1\r\n"[..]), "{value:?}");
        }
    }

    proptest! {
        /// The filter never hides a field.
        #[test]
        fn agrees_with_a_map(
            fields in prop::collection::vec(("[a-c]{1,3}", "[ -~]{0,4}"), 0..12),
            wanted in "[a-d]{1,3}",
        ) {
            let found: FieldBuf = fields.iter().map(|(name, value)| (name.to_uppercase(), value)).collect();
            let matching = fields.iter().filter(|(name, _)| *name == wanted);
            let expected: Vec<_> = matching.map(|(_, value)| trim_ows(value.as_bytes())).collect();
            prop_assert_eq!(found.fields().all(&wanted).collect::<Vec<_>>(), expected);
        }
    }
}
