//! What a request says in a header, a query parameter or a cookie: which bytes of it count, and which of several values.
//!
//! Two spellings that a service takes for one value must be one value here. Servers do not agree on the white space
//! around a field value. All strip SP and HTAB before it. Those that decode it as Latin-1 and strip that text, such as
//! Python's wsgiref, also remove the bytes 0x85 (NEL) and 0xA0 (NBSP). Applications that decode it as UTF-8 remove
//! `C2 85` and `C2 A0`. What is forwarded has no SP and HTAB at its ends; what is compared has none of the others
//! either. Two values that differ in such bytes only share a bucket. That is safe; two buckets for one value are not.

use std::borrow::Cow;

use http::HeaderName;
use smallvec::SmallVec;

use super::escapes::hex_value;
use crate::fields::Fields;

/// A value of a parameter or a cookie, decoded.
pub(crate) type Text = SmallVec<[u8; 64]>;

/// What a request is whose header is there several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeated {
    /// Refused.
    Reject,
    /// By the first of them.
    First,
    /// By the last.
    Last,
    /// By all, as one list (RFC 9110, section 5.3).
    Join,
}

/// There are several values, and that is to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousValue;

/// The value as it is compared: without any byte at its ends that a service may strip. 0xC2 is one of them because what
/// follows it in `C2 85` and `C2 A0` may be stripped alone.
pub fn compared(mut value: &[u8]) -> &[u8] {
    while let [b'\t'..=b'\r' | b' ' | 0x85 | 0xA0 | 0xC2, rest @ ..]
    | [rest @ .., b'\t'..=b'\r' | b' ' | 0x85 | 0xA0 | 0xC2] = value
    {
        value = rest;
    }
    value
}

/// What stands between the members of a list.
pub(crate) const LIST: u8 = b',';

/// All members of the lists that `lines` are, joined by comma and space (RFC 9110, sections 5.3 and 5.6.1): without empty
/// ones, and each as it is compared.
pub(crate) fn list<'f>(lines: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    joined(lines.into_iter().flat_map(|line| line.split(|&byte| byte == LIST)))
}

fn joined<'f>(values: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    let values = values.into_iter().map(compared).filter(|value| !value.is_empty());
    values.collect::<SmallVec<[_; 8]>>().join(&b", "[..])
}

/// The value of a header or an identity as a service may read it: a list without empty members, and each member as it is
/// compared. Keys and access lists use this form, so that two spellings of one value are one value to both.
pub(crate) fn as_read(value: &[u8]) -> Cow<'_, [u8]> {
    if value.contains(&LIST) { list([value]).into() } else { compared(value).into() }
}

/// The value of a header, if it is there.
///
/// # Errors
/// It is there several times, and `several` does not say which counts.
pub fn in_header<'f>(
    fields: Fields<'f>,
    name: &HeaderName,
    several: Repeated,
) -> Result<Option<Cow<'f, [u8]>>, AmbiguousValue> {
    let mut lines = fields.all(name.as_str());
    let Some(first) = lines.next() else { return Ok(None) };
    let last = lines.next_back();
    Ok(Some(match (several, last) {
        (Repeated::Join, None) if !first.contains(&LIST) => first.into(),
        (Repeated::Join, last) => list(std::iter::once(first).chain(lines).chain(last)).into(),
        (Repeated::Reject, Some(_)) => return Err(AmbiguousValue),
        (Repeated::Last, Some(last)) => last.into(),
        _ => first.into(),
    }))
}

/// The value of a query parameter, if it is there, as a form decoder reads it.
///
/// # Errors
/// It, or one that some service takes for it, is there several times, and `several` does not say which counts.
pub(crate) fn in_query(query: Option<&str>, name: &str, several: Repeated) -> Result<Option<Text>, AmbiguousValue> {
    let query = query.unwrap_or("").as_bytes();
    if several == Repeated::Reject {
        // Some servers end a parameter at `;` too.
        let pairs = query.split(|&byte| matches!(byte, b'&' | b';'));
        refuse_several(pairs.map(|pair| Decoded::form(split(pair).0)), name)?;
    }
    Ok(one_of(named_in_query(query, name), several))
}

/// The value of a cookie, if it is there, without quotes and escapes.
///
/// # Errors
/// It, or one that some service takes for it, is there several times, and `several` does not say which counts.
pub(crate) fn in_cookie(fields: Fields<'_>, name: &str, several: Repeated) -> Result<Option<Text>, AmbiguousValue> {
    let lines = || fields.all("cookie");
    if lines().any(|line| is_split_in_quotes(line, name)) {
        return Err(AmbiguousValue);
    }
    if several == Repeated::Reject {
        // Python takes white space for the end of a cookie too.
        let pairs = lines().flat_map(|line| line.split(|byte| b"; \t".contains(byte)));
        refuse_several(pairs.map(|pair| Decoded::escapes(split(pair).0)), name)?;
    }
    let pairs = lines().flat_map(|line| line.split(|&byte| byte == b';')).map(split);
    let named = pairs.filter(|(found, _)| Decoded::escapes(found).eq(name.bytes()));
    Ok(one_of(named.map(|(_, value)| Decoded::cookie(value)), several))
}

/// Whether quotes with a `;` between them concern the cookie `name`: as its value, or because it stands between them.
///
/// Servers disagree about such a line. `http.cookies` of Python and werkzeug read one quoted value, and `cookie` of Node,
/// Go and PHP end a value at each `;`. A client could choose a key that its service does not see.
fn is_split_in_quotes(line: &[u8], name: &str) -> bool {
    const ENDS: &[u8] = b"; \t";
    let is_own = |pair: &[u8]| is_alike(Decoded::escapes(split(pair).0), name);
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'"', &line[at..]).map(|found| at + found) {
        let before = line[..open].trim_ascii_end();
        at = open + 1;
        if !before.ends_with(b"=") {
            continue;
        }
        let Some(len) = quoted_len(&line[at..]) else { break };
        let quoted = &line[at..at + len];
        if let Some(first) = memchr::memchr(b';', quoted) {
            let pair = before[..before.len() - 1].trim_ascii_end().rsplit(|byte| ENDS.contains(byte)).next();
            let inner = quoted[first..].split(|byte| ENDS.contains(byte));
            if pair.into_iter().chain(inner).any(is_own) {
                return true;
            }
        }
        at += len + 1;
    }
    false
}

/// The length of the text before the quotation mark that ends it; `None` if no mark does.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The values of all query parameters that some service takes for `name`, as a form decoder reads them.
pub(crate) fn all_in_query(query: Option<&str>, name: &str) -> impl Iterator<Item = Text> {
    let pairs = query.unwrap_or("").as_bytes().split(|byte| b"&;".contains(byte)).map(split);
    let alike = pairs.filter(move |(found, _)| is_alike(Decoded::form(found), name));
    alike.map(|(_, value)| Decoded::form(value).collect())
}

/// The values of a query parameter, up to a `;`: some servers end a parameter there, and what follows must make no
/// other value of it.
fn named_in_query<'q>(query: &'q [u8], name: &str) -> impl DoubleEndedIterator<Item = Decoded<'q>> {
    let pairs = query.split(|&byte| byte == b'&').map(|pair| split(until(pair, b";")));
    let named = pairs.filter(move |(found, _)| Decoded::form(found).eq(name.bytes()));
    named.map(|(_, value)| Decoded::form(value))
}

/// The bytes before the first of `ends`.
fn until<'t>(text: &'t [u8], ends: &[u8]) -> &'t [u8] {
    text.split(|byte| ends.contains(byte)).next().unwrap_or_default()
}

/// Name and value of `name=value`, as they are compared; a pair without `=` has an empty value.
fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
    (compared(&pair[..equals]), compared(pair.get(equals + 1..).unwrap_or_default()))
}

fn one_of<'t>(mut values: impl DoubleEndedIterator<Item = Decoded<'t>>, several: Repeated) -> Option<Text> {
    let (first, last) = match several {
        Repeated::Reject | Repeated::First => (values.next(), None),
        Repeated::Last => (values.next_back(), None),
        Repeated::Join => (values.next(), values.next_back()),
    };
    let first = first?;
    let Some(last) = last else { return Some(first.collect()) };
    let all = std::iter::once(first).chain(values).chain([last]);
    let all: SmallVec<[Text; 4]> = all.map(Iterator::collect).collect();
    Some(joined(all.iter().map(|value| &value[..])).into())
}

fn refuse_several<'t>(names: impl Iterator<Item = Decoded<'t>>, name: &str) -> Result<(), AmbiguousValue> {
    match names.filter(|found| is_alike(found.clone(), name)).nth(1) {
        Some(_) => Err(AmbiguousValue),
        None => Ok(()),
    }
}

/// Whether some service takes one name for the other: without regard to case (ASP.NET), or as a name of a variable that
/// ends at `[`, begins after spaces and has `_` in the place of a space and a dot (PHP).
fn is_alike<'t>(found: impl Iterator<Item = u8> + 't, name: &str) -> bool {
    let folded = |byte: u8| if matches!(byte, b' ' | b'.') { b'_' } else { byte.to_ascii_lowercase() };
    let variable = found.skip_while(|&byte| byte == b' ').take_while(|&byte| !matches!(byte, b'[' | 0));
    variable.map(folded).eq(name.bytes().take_while(|&byte| byte != b'[').map(folded))
}

/// Bytes as a server reads them. One value can be written with escapes in many ways, and were they different
/// keys, a client could take a fresh bucket with each.
#[derive(Clone)]
struct Decoded<'t> {
    rest: &'t [u8],
    syntax: Syntax,
}

/// Which escapes there are beside those with `%`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Escapes,
    /// `application/x-www-form-urlencoded` (URL standard, section 5).
    Form,
    /// A quoted value of a cookie, with `\` before a byte or its three octal digits.
    Quoted,
}

impl<'t> Decoded<'t> {
    fn escapes(rest: &'t [u8]) -> Self {
        Self { rest, syntax: Syntax::Escapes }
    }

    fn form(rest: &'t [u8]) -> Self {
        Self { rest, syntax: Syntax::Form }
    }

    /// A value may stand in quotes (RFC 6265, section 4.1.1), which many servers drop; Python reads escapes between them.
    /// Without quotes white space ends it, as it does for Python.
    fn cookie(value: &'t [u8]) -> Self {
        match value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
            Some(rest) => Self { rest, syntax: Syntax::Quoted },
            None => Self::escapes(until(value, b" \t")),
        }
    }

    /// The byte that an escape stands for, and what follows it.
    fn escaped(&self) -> Option<(u8, &'t [u8])> {
        match (self.rest, self.syntax) {
            ([b'%', high, low, tail @ ..], _) => Some((hex_value(*high)? << 4 | hex_value(*low)?, tail)),
            ([b'+', tail @ ..], Syntax::Form) => Some((b' ', tail)),
            ([b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..], Syntax::Quoted) => {
                Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail))
            }
            ([b'\\', byte, tail @ ..], Syntax::Quoted) => Some((*byte, tail)),
            _ => None,
        }
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, tail) = match self.escaped() {
            Some(escaped) => escaped,
            None => self.rest.split_first().map(|(byte, tail)| (*byte, tail))?,
        };
        self.rest = tail;
        Some(byte)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::FieldBuf;
    use crate::fields::trim_ows;

    #[test]
    fn ends_of_values() {
        for (value, forwarded, as_compared) in [
            (&b"abc"[..], &b"abc"[..], &b"abc"[..]),
            (b"", b"", b""),
            (b" \t ", b"", b""),
            (b" a b\t", b"a b", b"a b"),
            (b"\xA0abc", b"\xA0abc", b"abc"),
            (b"abc\x85 ", b"abc\x85", b"abc"),
            (b"\xC2\xA0abc\xC2\x85", b"\xC2\xA0abc\xC2\x85", b"abc"),
            // Latin-1 leaves the first byte of the last character.
            (b"abc\xC2", b"abc\xC2", b"abc"),
            ("voilà".as_bytes(), "voilà".as_bytes(), b"voil\xC3"),
            (b"a\xA0b", b"a\xA0b", b"a\xA0b"),
        ] {
            assert_eq!((trim_ows(value), compared(value)), (forwarded, as_compared), "{value:?}");
        }
    }

    #[test]
    fn lists() {
        for (lines, joined) in [
            (&[&b"a"[..], b"b"][..], &b"a, b"[..]),
            (&[b"a,b"], b"a, b"),
            (&[b" a ,\tb", b"", b",c\xA0"], b"a, b, c"),
            (&[b" , "], b""),
        ] {
            assert_eq!(list(lines.iter().copied()), joined, "{lines:?}");
        }
    }

    use Repeated::{First, Join, Last, Reject};

    #[test]
    fn several_lines_of_a_header() {
        let name = HeaderName::from_static("x-a");
        for (lines, several, expected) in [
            (&[][..], Reject, Ok(None)),
            (&["1"][..], Reject, Ok(Some("1"))),
            (&["1, 2"], Reject, Ok(Some("1, 2"))),
            (&["1", "2"], Reject, Err(AmbiguousValue)),
            (&["1", "1"], Reject, Err(AmbiguousValue)),
            (&["1", ""], Reject, Err(AmbiguousValue)),
            (&["1", "2", "3"], First, Ok(Some("1"))),
            (&["1", "2", "3"], Last, Ok(Some("3"))),
            (&["1"], Last, Ok(Some("1"))),
            (&["1", "2", "3"], Join, Ok(Some("1, 2, 3"))),
            (&["1,2 ,", "3"], Join, Ok(Some("1, 2, 3"))),
            (&["1,2"], Join, Ok(Some("1, 2"))),
            (&["1"], Join, Ok(Some("1"))),
        ] {
            let fields: FieldBuf = lines.iter().map(|line| ("X-A", line)).collect();
            let found = in_header(fields.fields(), &name, several);
            let expected = expected.map(|value| value.map(|value: &str| Cow::from(value.as_bytes())));
            assert_eq!(found, expected, "{lines:?} {several:?}");
        }
    }

    #[test]
    fn several_parameters() {
        for (query, several, expected) in [
            (None, Reject, Ok(None)),
            (Some("k.x=1&b=2"), Reject, Ok(Some("1"))),
            (Some("k.x=1&k.x=2"), First, Ok(Some("1"))),
            (Some("k.x=1&k.x=2"), Last, Ok(Some("2"))),
            (Some("k.x=1&k.x=&k.x=2"), Join, Ok(Some("1, 2"))),
            (Some("k.x=1&k.x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x=1"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&%6b.x=2"), Reject, Err(AmbiguousValue)),
            // One that some service takes for it.
            (Some("k.x=1&K.X=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k_x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k+x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&+k%20x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x[]=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x%00a=2"), Reject, Err(AmbiguousValue)),
            (Some("a=;k.x=1&k.x=2"), Reject, Err(AmbiguousValue)),
            // What some servers take for the next parameter makes no other value.
            (Some("k.x=1;a=2"), Reject, Ok(Some("1"))),
            (Some("k.x=1;a=2&k.x=3;a"), Join, Ok(Some("1, 3"))),
            (Some("k.x=1&K.X=2"), First, Ok(Some("1"))),
            (Some("K.X=1"), Reject, Ok(None)),
            (Some("k.x=1&kk.x=2&k=3&k.=4&[k.x]=5"), Reject, Ok(Some("1"))),
        ] {
            let found = in_query(query, "k.x", several);
            let expected = expected.map(|value| value.map(|value: &str| Text::from(value.as_bytes())));
            assert_eq!(found, expected, "{query:?} {several:?}");
        }
    }

    #[test]
    fn several_cookies() {
        for (lines, several, expected) in [
            (&[][..], Reject, Ok(None)),
            (&["a=1; k=2"][..], Reject, Ok(Some("2"))),
            (&["k=1; k=2"], Reject, Err(AmbiguousValue)),
            (&["k=1", "k=2"], Reject, Err(AmbiguousValue)),
            (&["k=1", "a=b", "k"], Reject, Err(AmbiguousValue)),
            (&["k=1; K=2"], Reject, Err(AmbiguousValue)),
            (&["k=1; %6b=2"], Reject, Err(AmbiguousValue)),
            (&["k=1; k=2", "k=3"], First, Ok(Some("1"))),
            (&["k=1; k=2", "k=3"], Last, Ok(Some("3"))),
            (&["k=1; k=2", "k=3"], Join, Ok(Some("1, 2, 3"))),
            (&["k=1 j=2"], Reject, Ok(Some("1"))),
            (&["k=\"1 2\""], Reject, Ok(Some("1 2"))),
            (&["k=1; y=1 k=2"], Reject, Err(AmbiguousValue)),
            (&["k=\"a\\142\\\"\\\\c\""], Reject, Ok(Some("ab\"\\c"))),
            (&["k=a\\142"], Reject, Ok(Some("a\\142"))),
            (&["k=\"\\101\\041\\170\""], Reject, Ok(Some("A!x"))),
            (&["k=\"\\400\\1\""], Reject, Ok(Some("4001"))),
            // Python and werkzeug read `k=2` in these lines, and Node `k=1`.
            (&["x=\"; k=1; y=\"; k=2"], Reject, Err(AmbiguousValue)),
            (&["x=\"; k=1; y=\"; k=2"], First, Err(AmbiguousValue)),
            (&["x=\"; k=1; y=\"; k=2"], Last, Err(AmbiguousValue)),
            (&["x=\"; k=1; y=\"; k=2"], Join, Err(AmbiguousValue)),
            (&["k=2; x = \"; k=1\""], Last, Err(AmbiguousValue)),
            (&["a=b x=\"\\\"; k=1; y=\"; k=2"], First, Err(AmbiguousValue)),
            (&["x=\"; %6b=1\"", "k=2"], Last, Err(AmbiguousValue)),
            // Python reads no cookie `k` here.
            (&["x=\"; k=1\""], First, Err(AmbiguousValue)),
            (&["x=\"; K=1\""], Reject, Err(AmbiguousValue)),
            // Python reads `a;b`, and Node `\"a`.
            (&["k=\"a;b\""], First, Err(AmbiguousValue)),
            (&["k=\"\\141;b\""], Last, Err(AmbiguousValue)),
            // All read these alike, or not at all.
            (&["k=\"a; j=1"], First, Ok(Some("\"a"))),
            (&["x=\"a; k=1"], First, Ok(Some("1"))),
            (&["x=\"a; y=b\"; k=1"], First, Ok(Some("1"))),
            (&["x=\"a\"; k=1; y=\"b\""], First, Ok(Some("1"))),
            (&["x=5\"; k=1; y=\"b\""], First, Ok(Some("1"))),
        ] {
            let fields: FieldBuf = lines.iter().map(|line| ("cookie", line)).collect();
            let found = in_cookie(fields.fields(), "k", several);
            let expected = expected.map(|value| value.map(|value: &str| Text::from(value.as_bytes())));
            assert_eq!(found, expected, "{lines:?} {several:?}");
        }
    }

    /// As Python reads a field: all of Latin-1, and white space as Unicode has it.
    fn strip_latin1(value: &[u8]) -> Vec<u8> {
        let text: String = value.iter().map(|&byte| char::from(byte)).collect();
        text.trim().chars().filter_map(|char| u8::try_from(char).ok()).collect()
    }

    proptest! {
        #[test]
        fn what_services_strip_does_not_count(
            before in prop::collection::vec(prop::sample::select(&b"\t \x85\xA0"[..]), 0..4),
            value in prop::collection::vec(prop::sample::select(&b"ab\t \x85\xA0\xC2\xC3"[..]), 0..6),
            after in prop::collection::vec(prop::sample::select(&b"\t \x85\xA0"[..]), 0..4),
        ) {
            let spelt = [&before[..], &value, &after].concat();
            prop_assert_eq!(compared(&spelt), compared(&value));
            let stripped = strip_latin1(&value);
            prop_assert_eq!(compared(&stripped), compared(&value));
            if let Ok(text) = str::from_utf8(&spelt) {
                prop_assert_eq!(compared(text.trim().as_bytes()), compared(&spelt));
            }
        }

        /// However a value is escaped, it is the same.
        #[test]
        fn escapes_do_not_matter(value in "[a-z&=%+;é]{0,12}", escaped in any::<u64>()) {
            let spelt: String = value.bytes().enumerate().map(|(at, byte)| {
                let is_plain = byte.is_ascii_lowercase() && escaped >> at & 1 == 0;
                if is_plain { char::from(byte).to_string() } else { format!("%{byte:02x}") }
            }).collect();
            let query = format!("k={spelt}");
            let found = in_query(Some(&query), "k", Reject).unwrap().unwrap();
            prop_assert_eq!(&found[..], value.as_bytes());
        }

        #[test]
        fn any_query_and_cookie_are_read(text in prop::collection::vec(prop_oneof![0x20_u8..0x7F, 0x80_u8..], 0..40)) {
            let query = String::from_utf8_lossy(&text);
            let headers: FieldBuf = [("cookie", &text)].into_iter().collect();
            for several in [Reject, First, Last, Join] {
                let _ = in_query(Some(&query), "k", several);
                let _ = in_cookie(headers.fields(), "k", several);
            }
        }
    }
}
