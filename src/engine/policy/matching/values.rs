//! The values of headers, query parameters and cookies: their normal form, and the treatment of several values.
//!
//! Two spellings that a service reads as one value must be one value here. Servers differ about white space around a
//! field value. All strip SP and HTAB. Servers that decode the value as Latin-1 and strip the text, such as Python's
//! wsgiref, also remove the bytes 0x85 (NEL) and 0xA0 (NBSP). Applications that decode it as UTF-8 remove `C2 85` and
//! `C2 A0`. Forwarded values have no SP and HTAB at their ends; compared values have none of the other bytes either.
//! Two values that differ only in such bytes share a bucket. That is safe; two buckets for one value would not be.

use std::borrow::Cow;

use http::HeaderName;
use smallvec::SmallVec;

use super::escapes::hex_value;
use crate::base::fields::Fields;

/// The decoded value of a parameter or a cookie.
pub(crate) type Text = SmallVec<[u8; 64]>;

/// The treatment of a header, parameter or cookie with several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeated {
    /// The request is refused.
    Reject,
    /// The first value counts.
    First,
    /// The last value counts.
    Last,
    /// All values count, as one list (RFC 9110, section 5.3).
    Join,
}

/// The request has several values, or servers read its value differently, and the configuration does not choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousValue;

/// The value without the bytes at its ends that a service may strip. They include 0xC2, because a service may strip
/// only the second byte of `C2 85` and `C2 A0`.
pub fn compared(mut value: &[u8]) -> &[u8] {
    while let [b'\t'..=b'\r' | b' ' | 0x85 | 0xA0 | 0xC2, rest @ ..]
    | [rest @ .., b'\t'..=b'\r' | b' ' | 0x85 | 0xA0 | 0xC2] = value
    {
        value = rest;
    }
    value
}

/// The separator of list members.
pub(crate) const LIST: u8 = b',';

/// The members of all lists in `lines`, joined by comma and space (RFC 9110, sections 5.3 and 5.6.1). Empty members are
/// left out, and each member is stripped by [`compared`].
pub(crate) fn list<'f>(lines: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    joined(lines.into_iter().flat_map(|line| line.split(|&byte| byte == LIST)))
}

fn joined<'f>(values: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    let values = values.into_iter().map(compared).filter(|value| !value.is_empty());
    values.collect::<SmallVec<[_; 8]>>().join(&b", "[..])
}

/// The value of a header for keys and access lists: a list without empty members, each stripped by [`compared`]. So both
/// treat two spellings of one value alike.
pub(crate) fn as_read(value: &[u8]) -> Cow<'_, [u8]> {
    if value.contains(&LIST) { list([value]).into() } else { compared(value).into() }
}

/// Whether the value is empty as identities and keys read it: there is none, or a list of empty members, such as `,`.
pub fn is_empty_as_read(value: &[u8]) -> bool {
    value.split(|&byte| byte == LIST).all(|member| compared(member).is_empty())
}

/// The value of a header, if it is present: of one line its text; several lines that are joined are one list, without
/// empty members.
///
/// # Errors
/// The header has several values, and `several` is [`Repeated::Reject`].
pub fn in_header<'f>(
    fields: Fields<'f>,
    name: &HeaderName,
    several: Repeated,
) -> Result<Option<Cow<'f, [u8]>>, AmbiguousValue> {
    let mut lines = fields.all(name.as_str());
    let Some(first) = lines.next() else { return Ok(None) };
    let last = lines.next_back();
    Ok(Some(match (several, last) {
        (Repeated::Join, Some(last)) => list(std::iter::once(first).chain(lines).chain([last])).into(),
        (Repeated::Reject, Some(_)) => return Err(AmbiguousValue),
        (Repeated::Last, Some(last)) => last.into(),
        _ => first.into(),
    }))
}

/// The value of a query parameter, if it is present, decoded as a form.
///
/// # Errors
/// Several parameters have this name or a name that some service reads as this one, and `several` refuses that.
pub(crate) fn in_query(query: Option<&str>, name: &str, several: Repeated) -> Result<Option<Text>, AmbiguousValue> {
    let query = query.unwrap_or("").as_bytes();
    if several == Repeated::Reject {
        // Some servers also end a parameter at `;`.
        let pairs = query.split(|&byte| matches!(byte, b'&' | b';'));
        refuse_several(pairs.map(|pair| Decoded::form(split(pair).0)), name)?;
    }
    Ok(one_of(named_in_query(query, name), several))
}

/// The value of a cookie, if it is present, without quotes and escapes.
///
/// # Errors
/// Several cookies have this name or a name that some service reads as this one, and `several` refuses that.
pub(crate) fn in_cookie(fields: Fields<'_>, name: &str, several: Repeated) -> Result<Option<Text>, AmbiguousValue> {
    let lines = || fields.all("cookie");
    // Services read several fields as one line (RFC 9113, section 8.2.3).
    let is_split = lines().any(|line| line.contains(&b'"'))
        && is_split_in_quotes(&lines().collect::<Vec<_>>().join(&b"; "[..]), name);
    if is_split {
        return Err(AmbiguousValue);
    }
    if several == Repeated::Reject {
        // Python also ends a cookie at white space.
        let pairs = lines().flat_map(|line| line.split(|byte| b"; \t".contains(byte)));
        refuse_several(pairs.map(|pair| Decoded::escapes(split(pair).0)), name)?;
    }
    let pairs = lines().flat_map(|line| line.split(|&byte| byte == b';')).map(split);
    let named = pairs.filter(|(found, _)| Decoded::escapes(found).eq(name.bytes()));
    Ok(one_of(named.map(|(_, value)| Decoded::cookie(value)), several))
}

/// Whether the cookie `name` has a quoted value with `;`, or stands in such a value.
///
/// Servers disagree about such a line. `http.cookies` of Python and werkzeug read one quoted value. `cookie` of Node,
/// Go and PHP end the value at each `;`. A client could choose a key that its service does not see.
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

/// The length of a quoted text, without its final quotation mark; `None` without such a mark.
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

/// The values of all query parameters that some service reads as `name`, decoded as a form.
pub(crate) fn all_in_query(query: Option<&str>, name: &str) -> impl Iterator<Item = Text> {
    all_in_form(query.unwrap_or("").as_bytes(), name).map(Iterator::collect)
}

/// Whether some service reads a parameter `name` in a form.
pub fn is_in_form(form: &[u8], name: &str) -> bool {
    all_in_form(form, name).next().is_some()
}

fn all_in_form<'f>(form: &'f [u8], name: &str) -> impl Iterator<Item = Decoded<'f>> {
    let pairs = form.split(|byte| b"&;".contains(byte)).map(split);
    let alike = pairs.filter(move |(found, _)| is_alike(Decoded::form(found), name));
    alike.map(|(_, value)| Decoded::form(value))
}

/// The values of a query parameter, each up to a `;`. Some servers end a parameter there, so the text after it must not
/// change the value.
fn named_in_query<'q>(query: &'q [u8], name: &str) -> impl DoubleEndedIterator<Item = Decoded<'q>> {
    let pairs = query.split(|&byte| byte == b'&').map(|pair| split(until(pair, b";")));
    let named = pairs.filter(move |(found, _)| Decoded::form(found).eq(name.bytes()));
    named.map(|(_, value)| Decoded::form(value))
}

/// The bytes before the first of `ends`.
fn until<'t>(text: &'t [u8], ends: &[u8]) -> &'t [u8] {
    text.split(|byte| ends.contains(byte)).next().unwrap_or_default()
}

/// Name and value of `name=value`, both stripped by [`compared`]. A pair without `=` has an empty value.
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

/// Whether some service reads `found` as `name`. ASP.NET ignores case. PHP ends a name at `[`, skips spaces before it,
/// and replaces spaces, dots and an unclosed `[` by `_`. Express and Rack skip brackets before a name.
fn is_alike(found: impl Iterator<Item = u8> + Clone, name: &str) -> bool {
    let variable = found.skip_while(|&byte| byte == b' ').take_while(|&byte| byte != 0);
    without_brackets(variable.clone()).eq(without_brackets(name.bytes()))
        || variable.map(as_in_php).eq(name.bytes().map(as_in_php))
}

fn without_brackets(name: impl Iterator<Item = u8>) -> impl Iterator<Item = u8> {
    let is_bracket = |byte: &u8| matches!(byte, b'[' | b']');
    name.skip_while(is_bracket).take_while(move |byte| !is_bracket(byte)).map(as_in_php)
}

fn as_in_php(byte: u8) -> u8 {
    if matches!(byte, b' ' | b'.' | b'[') { b'_' } else { byte.to_ascii_lowercase() }
}

/// The bytes of a value, decoded like in a server. Escapes give one value many spellings. If each had its own key, a
/// client could take a new bucket with each.
#[derive(Clone)]
struct Decoded<'t> {
    rest: &'t [u8],
    syntax: Syntax,
}

/// The escapes of a text in addition to `%`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Escapes,
    /// `application/x-www-form-urlencoded` (URL standard, section 5).
    Form,
    /// The quoted value of a cookie, with `\` before a byte or before three octal digits.
    Quoted,
}

impl<'t> Decoded<'t> {
    fn escapes(rest: &'t [u8]) -> Self {
        Self { rest, syntax: Syntax::Escapes }
    }

    fn form(rest: &'t [u8]) -> Self {
        Self { rest, syntax: Syntax::Form }
    }

    /// The value of a cookie. Many servers remove quotes around it (RFC 6265, section 4.1.1), and Python decodes
    /// escapes in quotes. Without quotes the value ends at white space, as in Python.
    fn cookie(value: &'t [u8]) -> Self {
        match value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
            Some(rest) => Self { rest, syntax: Syntax::Quoted },
            None => Self::escapes(until(value, b" \t")),
        }
    }

    /// The byte that an escape stands for, and the text after the escape.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::base::fields::trim_ows;

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
            // In Latin-1 the first byte of the last character remains.
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

    #[test]
    fn values_that_are_empty_as_read() {
        for value in [&b""[..], b" 	", b",", b" ,	,", b"\xA0,\xC2\x85", b"a", b",a", b"a,", b" , b"] {
            let is_empty = is_empty_as_read(value);
            assert_eq!(is_empty, !value.iter().any(u8::is_ascii_alphabetic), "{value:?}");
            assert_eq!(is_empty, as_read(value).is_empty(), "{value:?}");
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
            (&["1,2"], Join, Ok(Some("1,2"))),
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
            // A name that some service reads as this one.
            (Some("k.x=1&K.X=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k_x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k+x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&+k%20x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x[]=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x%00a=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k[x=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&+k%5Bx=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&k.x[=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&[k.x]=2"), Reject, Err(AmbiguousValue)),
            (Some("k.x=1&][k.x=2"), Reject, Err(AmbiguousValue)),
            (Some("a=;k.x=1&k.x=2"), Reject, Err(AmbiguousValue)),
            // The text after `;` does not change the value.
            (Some("k.x=1;a=2"), Reject, Ok(Some("1"))),
            (Some("k.x=1;a=2&k.x=3;a"), Join, Ok(Some("1, 3"))),
            (Some("k.x=1&K.X=2"), First, Ok(Some("1"))),
            (Some("K.X=1"), Reject, Ok(None)),
            (Some("k.x=1&kk.x=2&k=3&k.=4&k[x]=5&k.[x=6"), Reject, Ok(Some("1"))),
        ] {
            let found = in_query(query, "k.x", several);
            let expected = expected.map(|value| value.map(|value: &str| Text::from(value.as_bytes())));
            assert_eq!(found, expected, "{query:?} {several:?}");
        }
    }

    #[test]
    fn json_that_is_a_form() {
        for (form, is_in) in [
            (r#"{"k":1}"#, false),
            (r#"{"k":1,"a":"k=2"}"#, false),
            (r#"{"k":1,"a":"&k=2&"}"#, true),
            (r#"{"k":1,"a":";%6B=2"}"#, true),
            (r#"{"k":1,"a":"&K&"}"#, true),
            (r#"{"k":1,"a":"&[k][b]=2&"}"#, true),
            (r#"{"k":1,"a":"&k[b]=2&"}"#, true),
            (r#"{"k":1,"a":"&k"}"#, false),
            (r#"{"k":1,"a":"&b=2&kk=3&"}"#, false),
            ("", false),
        ] {
            assert_eq!(is_in_form(form.as_bytes(), "k"), is_in, "{form}");
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
            (&["k=1; k[=2"], Reject, Err(AmbiguousValue)),
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
            // Services read several fields as one line.
            (&["k=2", "x=\"y", "k=1", "z=\""], Last, Err(AmbiguousValue)),
            (&["k=\"a", "b\""], Reject, Err(AmbiguousValue)),
            (&["x=\"y\"", "k=1", "z=\"\""], First, Ok(Some("1"))),
            // Servers read these alike, or not at all.
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

    /// The value in Python: decoded as Latin-1, without Unicode white space at its ends.
    fn strip_latin1(value: &[u8]) -> Vec<u8> {
        let text: String = value.iter().map(|&byte| char::from(byte)).collect();
        text.trim().chars().filter_map(|char| u8::try_from(char).ok()).collect()
    }

    proptest! {
        #[test]
        fn stripped_bytes_do_not_change_a_value(
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

        /// All escaped spellings of a value are equal.
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
        fn any_query_and_cookie_cause_no_panic(text in prop::collection::vec(prop_oneof![0x20_u8..0x7F, 0x80_u8..], 0..40)) {
            let query = String::from_utf8_lossy(&text);
            let headers: FieldBuf = [("cookie", &text)].into_iter().collect();
            for several in [Reject, First, Last, Join] {
                let _ = in_query(Some(&query), "k", several);
                let _ = in_cookie(headers.fields(), "k", several);
            }
        }
    }
}
