//! What limits read of the body of a request before they decide.
//!
//! A client chooses the text, so doubt never makes a request cheaper: a body that its service may read in another way
//! is unreadable.

use std::borrow::Cow;

use memchr::memmem;

use super::body::is_encoding;
use super::number::{Sum, Weight};
use super::pointers::{Pointer, PointerTree};
use super::scanner::{Scanner, Value};
use crate::base::fields::Fields;

/// All pointers that limits read.
#[derive(Debug)]
pub struct RequestPointers {
    /// Their positions are their slots.
    pointers: Vec<Pointer>,
    tree: PointerTree,
}

impl RequestPointers {
    /// The pointers, of which some may be equal; `None` if there are none.
    pub fn new<'p>(all: impl IntoIterator<Item = &'p Pointer>) -> Option<Self> {
        let mut pointers: Vec<Pointer> = Vec::new();
        for pointer in all {
            if !pointers.contains(pointer) {
                pointers.push(pointer.clone());
            }
        }
        let tree = PointerTree::of_request(&pointers);
        (!pointers.is_empty()).then_some(Self { pointers, tree })
    }
}

/// A number of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestNumber {
    /// Rounded up.
    Units(u64),
    /// There is no number.
    Absent,
    /// The service may read another number than Weir.
    Unreadable,
}

/// A value of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestValue<'b> {
    /// A string, or a number in one spelling.
    Text(Cow<'b, [u8]>),
    /// `true` or `false`.
    Boolean(bool),
    /// There is no value, or it is `null`, an object or an array.
    Absent,
    /// The service may read another value than Weir.
    Unreadable,
}

static ABSENT: Value = Value::Absent;

/// What was read of a request's body.
#[derive(Debug)]
pub struct RequestBody<'p> {
    pointers: &'p RequestPointers,
    scanner: Scanner,
    /// The text is not the bytes: it has a Content-Encoding, or another charset than UTF-8.
    is_encoded: bool,
    /// Services may read the body as a form.
    may_be_form: bool,
    /// The pointers whose first name the body has as a form.
    in_form: Vec<&'p Pointer>,
    /// Bytes that were read.
    read: usize,
    /// The length that the head announces.
    announced: Option<u64>,
    /// A text that is no JSON has been read; none before the end.
    is_broken: Option<bool>,
}

impl<'p> RequestBody<'p> {
    /// A body with these fields, of which nothing was read.
    pub fn new(pointers: &'p RequestPointers, fields: Fields<'_>, announced: Option<u64>) -> Self {
        let types = || fields.all("content-type");
        Self {
            pointers,
            scanner: Scanner::new(&pointers.tree),
            is_encoded: fields.all("content-encoding").any(is_encoding) || types().any(has_other_charset),
            // Rack reads a body without a type as a form.
            may_be_form: types().next().is_none() || types().any(|value| value.is_empty() || names_form(value)),
            in_form: Vec::new(),
            read: 0,
            announced,
            is_broken: None,
        }
    }

    /// Reads more of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.read += bytes.len();
        self.scanner.push(&self.pointers.tree, bytes);
    }

    /// Notes that the body came to its end.
    pub fn end(&mut self) {
        self.is_broken = Some(!self.scanner.end());
        self.announced = Some(self.read as u64);
    }

    /// Compares the whole body as a form, if services may read it so: `is_in_form` tells whether it has a name.
    pub fn compare_form(&mut self, is_in_form: impl Fn(&str) -> bool) {
        if self.may_be_form {
            let all = self.pointers.pointers.iter();
            self.in_form = all.filter(|pointer| is_in_form(pointer.first_name())).collect();
        }
    }

    /// Whether more of the body changes nothing for a reader of at most so many bytes.
    pub fn is_decided(&self, bound: u64) -> bool {
        self.is_encoded || self.scanner.has_failed() || self.exceeds(bound)
    }

    /// Whether the body is longer than `bound`, as far as that is known.
    pub fn exceeds(&self, bound: u64) -> bool {
        self.bytes() > bound
    }

    /// The length; if it is unknown, that of what was read.
    pub fn bytes(&self) -> u64 {
        self.announced.unwrap_or(self.read as u64)
    }

    /// Bytes that were read.
    pub(crate) fn read_bytes(&self) -> usize {
        self.read
    }

    /// The weighted sum of the numbers at these pointers, of which some may be absent.
    pub fn units<'t>(&self, terms: impl IntoIterator<Item = &'t (Pointer, Weight)>) -> RequestNumber {
        let mut sum = None;
        for (pointer, weight) in terms {
            match self.find(pointer) {
                Some(Value::Number(number)) => sum.get_or_insert_with(Sum::default).add(*number, *weight),
                Some(Value::Boolean(_) | Value::Absent) => {}
                Some(Value::Unreadable | Value::Text(_)) | None => return RequestNumber::Unreadable,
            }
        }
        sum.map_or(RequestNumber::Absent, |sum: Sum| RequestNumber::Units(sum.units()))
    }

    /// The value at a pointer. Readers differ about text that is no Unicode.
    pub fn value(&self, pointer: &Pointer) -> RequestValue<'_> {
        let is_text = |text: &[u8]| str::from_utf8(text).is_ok_and(|text| !text.contains(char::REPLACEMENT_CHARACTER));
        match self.find(pointer) {
            Some(Value::Text(text)) if is_text(text) => RequestValue::Text(Cow::Borrowed(text)),
            Some(Value::Number(number)) => RequestValue::Text(number.to_string().into_bytes().into()),
            Some(Value::Boolean(value)) => RequestValue::Boolean(*value),
            Some(Value::Absent) => RequestValue::Absent,
            Some(Value::Unreadable | Value::Text(_)) | None => RequestValue::Unreadable,
        }
    }

    /// What stands at a pointer; `None` if the body cannot be read, or was not read for this pointer: while the request
    /// waited, a reload may have added it.
    fn find(&self, pointer: &Pointer) -> Option<&Value> {
        if self.is_encoded || self.is_broken != Some(false) || self.scanner.is_ambiguous() {
            return None;
        }
        if self.in_form.contains(&pointer) {
            return None;
        }
        let slot = self.pointers.pointers.iter().position(|known| known == pointer)?;
        Some(self.scanner.value(slot).unwrap_or(&ABSENT))
    }
}

/// Whether services may read the body of this Content-Type in another charset than UTF-8. Each spelling of the parameter
/// counts, also as in RFC 2231.
fn has_other_charset(content_type: &[u8]) -> bool {
    const NAME: &[u8] = b"charset";
    let text = content_type.to_ascii_lowercase();
    memmem::find_iter(&text, NAME).any(|at| !is_utf8(&text[at + NAME.len()..]))
}

/// Whether a parameter has the value UTF-8, or ASCII, a part of it. `rest` follows its name.
fn is_utf8(rest: &[u8]) -> bool {
    let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else { return false };
    let value = value.split(|byte| b";,".contains(byte)).next().unwrap_or_default().trim_ascii();
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    matches!(quoted.unwrap_or(value), b"utf-8" | b"utf8" | b"us-ascii")
}

/// Whether a Content-Type names a form, also at a place where only some services look for it.
fn names_form(content_type: &[u8]) -> bool {
    const FORM: &[u8] = b"x-www-form-urlencoded";
    content_type.windows(FORM.len()).any(|part| part.eq_ignore_ascii_case(FORM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    /// The number at `/a/max` of a body, which is the same however it is cut.
    fn number(body: &str) -> RequestNumber {
        let pointer = Pointer::parse("/a/max").unwrap();
        let pointers = RequestPointers::new([&pointer, &pointer]).unwrap();
        let terms = [(pointer, Weight::ONE)];
        let read = |pieces: Vec<&[u8]>| {
            let fields: FieldBuf = [("content-encoding", "identity")].into_iter().collect();
            let mut read = RequestBody::new(&pointers, fields.fields(), None);
            for piece in pieces {
                read.push(piece);
            }
            assert_eq!(read.units(&terms), RequestNumber::Unreadable, "the end may be missing");
            read.end();
            read.units(&terms)
        };
        let whole = read(vec![body.as_bytes()]);
        assert_eq!(read(body.as_bytes().chunks(1).collect()), whole, "{body}");
        whole
    }

    #[test]
    fn doubt_makes_a_number_unreadable() {
        use RequestNumber::{Absent, Units, Unreadable};
        for (body, expected) in [
            (r#"{"a":{"max":12.5}}"#, Units(13)),
            (r#"{"a":{"max":7},"b":{"max":8}}"#, Units(7)),
            (r#"{"a":{"max":1e400}}"#, Units(u64::MAX)),
            (r#"{"a":{"max":{}}}"#, Absent),
            (r#"{"a":{"max":true}}"#, Absent),
            (r#"{"a":[{"max":1}]}"#, Absent),
            (r#"[{"a":{"max":1}},{"a":{"max":2}}]"#, Absent),
            (" ", Absent),
            (r#"{"a":{"max":1,"max":null}}"#, Unreadable),
            (r#"{"a":{"max":null,"max":1}}"#, Unreadable),
            (r#"{"a":{"max":9},"a":{}}"#, Unreadable),
            (r#"{"a":{},"a":{"max":9}}"#, Unreadable),
            (r#"{"a":1,"a":{"max":9}}"#, Unreadable),
            (r#"{"a":{"max":9},"A":{"max":1}}"#, Unreadable),
            (r#"{"a":{"max":1} "#, Unreadable),
            (r#"{"a":{"max":1}}{}"#, Unreadable),
            ("", Absent),
        ] {
            assert_eq!(number(body), expected, "{body}");
        }
        let other = [(Pointer::parse("/b").unwrap(), Weight::ONE)];
        let pointer = Pointer::parse("/tasks").unwrap();
        let pointers = RequestPointers::new([&pointer]).unwrap();
        // The Kelvin sign and the long s are letters for readers that ignore their case.
        for name in ["ta\u{17f}ks", "tas\u{212a}s", "tas\\u212as", "TASKS"] {
            let mut read = RequestBody::new(&pointers, Fields::NONE, None);
            read.push(format!("{{\"{name}\":9}}").as_bytes());
            read.end();
            assert_eq!(read.units(&[(pointer.clone(), Weight::ONE)]), Unreadable, "{name}");
        }
        let mut read = RequestBody::new(&pointers, Fields::NONE, None);
        read.end();
        assert_eq!(read.units(&other), Unreadable, "nobody looked for it");
    }

    /// What services make of bytes depends on their Content-Type.
    #[test]
    fn types_make_a_number_unreadable() {
        use RequestNumber::{Units, Unreadable};
        let (n, m) = (Pointer::parse("/n/max").unwrap(), Pointer::parse("/m").unwrap());
        let pointers = RequestPointers::new([&n, &m]).unwrap();
        let numbers = |types: &[&str], names: &[&str]| {
            let fields: FieldBuf = types.iter().map(|value| ("content-type", value)).collect();
            let mut read = RequestBody::new(&pointers, fields.fields(), None);
            read.push(br#"{"n":{"max":1},"m":2}"#);
            read.end();
            read.compare_form(|name| names.contains(&name));
            [n.clone(), m.clone()].map(|pointer| read.units(&[(pointer, Weight::ONE)]))
        };
        let (both, none) = ([Units(1), Units(2)], [Unreadable; 2]);
        for (types, expected) in [
            (&[][..], both),
            (&["application/json"], both),
            (&["application/json; charset=utf-8"], both),
            (&["application/json;Charset = \"UTF-8\" ; a=b"], both),
            (&["text/plain; a=b; charset=US-ASCII"], both),
            (&["application/json; charset=utf8, application/json"], both),
            (&["application/json; charset=utf-7"], none),
            (&["application/json; a=\"b\"; CHARSET=\"UTF-7\""], none),
            (&["application/json; charset=utf-8; charset=utf-7"], none),
            (&["application/json; charset=utf-7; charset=utf-8"], none),
            (&["application/json; charset*=utf-8''utf-7"], none),
            (&["application/json; charset*0=utf-; charset*1=7"], none),
            (&["application/json; charset=utf-16le"], none),
            (&["application/json; charset=utf-8-sig"], none),
            (&["application/json; charset="], none),
            (&["text/html;charset=iso-8859-1"], none),
            (&["application/json", "application/json; charset=utf-7"], none),
        ] {
            assert_eq!(numbers(types, &[]), expected, "{types:?}");
        }
        let only_m = [Unreadable, Units(2)];
        for (types, expected) in [
            (&["application/x-www-form-urlencoded"][..], only_m),
            (&["application/X-WWW-Form-urlencoded; charset=utf-8"], only_m),
            (&["application/json", "application/x-www-form-urlencoded"], only_m),
            (&["application/json, application/x-www-form-urlencoded"], only_m),
            (&[], only_m),
            (&[""], only_m),
            (&["application/json"], both),
            (&["text/plain"], both),
        ] {
            assert_eq!(numbers(types, &["n", "max"]), expected, "{types:?}");
            assert_eq!(numbers(types, &["max"]), both, "{types:?}");
        }
    }

    #[test]
    fn numbers_have_weights() {
        use RequestNumber::{Absent, Units, Unreadable};
        let term = |pointer, weight| (Pointer::parse(pointer).unwrap(), Weight::parse(weight).unwrap());
        let terms = [term("/n", "1/3"), term("/m", "2.5"), term("/deep/n", "1/6")];
        let pointers = RequestPointers::new(terms.iter().map(|(pointer, _)| pointer)).unwrap();
        for (body, expected) in [
            (r#"{"n":1,"m":2,"deep":{"n":1}}"#, Units(6)),
            (r#"{"n":1,"deep":{"n":4}}"#, Units(1)),
            (r#"{"n":1,"deep":{"n":4.1}}"#, Units(2)),
            (r#"{"m":null}"#, Absent),
            (r#"{"n":1,"m":"2"}"#, Unreadable),
            (r#"{"n":1,"m":-2}"#, Unreadable),
        ] {
            let mut read = RequestBody::new(&pointers, Fields::NONE, None);
            read.push(body.as_bytes());
            read.end();
            assert_eq!(read.units(&terms), expected, "{body}");
        }
    }

    #[test]
    fn more_of_a_body_may_change_nothing() {
        let pointer = Pointer::parse("/a").unwrap();
        let pointers = RequestPointers::new([&pointer]).unwrap();
        let body = |encoding: &str, announced| {
            let fields: FieldBuf = [("content-encoding", encoding)].into_iter().collect();
            RequestBody::new(&pointers, fields.fields(), announced)
        };
        assert!(body("gzip", None).is_decided(100));
        assert!(body("", Some(101)).is_decided(100) && !body(" Identity ", Some(100)).is_decided(100));
        let mut frames = body("", None);
        frames.push(b"\0\0\0\0\x05");
        assert!(frames.is_decided(100), "no JSON begins so");
        let mut long = body("", None);
        long.push(&[b' '; 100]);
        assert!(!long.is_decided(100));
        long.push(b" ");
        assert!(long.is_decided(100) && long.exceeds(100) && long.bytes() == 101);
    }
}
