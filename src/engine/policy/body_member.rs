//! Members of the bodies of requests, in keys and conditions.
//!
//! A client chooses its body, so a body that Weir cannot read as its service does evades no limit: it has one key of its
//! own, and fits every condition.

use std::collections::HashSet;
use std::sync::Arc;

use super::matching::regex::TextRegex;
use super::matching::values::compared;
use crate::engine::units::{Pointer, RequestBody, RequestValue};

/// A member of the body of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BodyMember {
    /// Its place.
    pub pointer: Pointer,
    /// The longest body that is read.
    pub read_bytes: u64,
}

/// The condition for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberTest {
    /// The member is present.
    Present,
    /// The member is this boolean, or text that a service may read as one.
    Is(bool),
    /// The member is one of these texts, in the form of [`compared`].
    OneOf(Arc<HashSet<Box<[u8]>>>),
    /// The text of the member matches.
    Matches(TextRegex),
}

impl BodyMember {
    /// The value of the member; absent without a body.
    pub(super) fn value<'b>(&self, body: Option<&'b RequestBody<'_>>) -> RequestValue<'b> {
        match body {
            Some(body) if body.exceeds(self.read_bytes) => RequestValue::Unreadable,
            Some(body) => body.value(&self.pointer),
            None => RequestValue::Absent,
        }
    }

    /// Whether the member of a body fits.
    pub(super) fn fits(&self, test: &MemberTest, body: Option<&RequestBody<'_>>) -> bool {
        let has_text = |found: &[u8]| match test {
            MemberTest::Present | MemberTest::Is(_) => true,
            MemberTest::OneOf(texts) => texts.contains(compared(found)),
            MemberTest::Matches(regex) => regex.matches(compared(found)),
        };
        match (self.value(body), test) {
            (RequestValue::Absent, _) => false,
            (RequestValue::Unreadable, _) => true,
            (RequestValue::Boolean(value), MemberTest::Is(expected)) => value == *expected,
            (RequestValue::Boolean(value), _) => has_text(boolean(value)),
            (RequestValue::Text(text), _) => has_text(&text),
        }
    }
}

impl MemberTest {
    /// Whether the condition has few values, all of them known.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Is(_) | Self::OneOf(_))
    }
}

/// The text of a boolean.
pub(super) fn boolean(value: bool) -> &'static [u8] {
    if value { b"true" } else { b"false" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::Fields;
    use crate::engine::units::RequestPointers;

    #[test]
    fn a_body_that_cannot_be_read_fits_every_condition() {
        let member = |pointer: &str| BodyMember { pointer: Pointer::parse(pointer).unwrap(), read_bytes: 100 };
        let (model, stream) = (member("/model"), member("/stream"));
        let texts =
            |texts: &[&str]| MemberTest::OneOf(Arc::new(texts.iter().map(|text| Box::from(text.as_bytes())).collect()));
        let (one, regex) = (texts(&["gpt-4o", "7"]), MemberTest::Matches(TextRegex::new("^gpt", false).unwrap()));
        let long = format!(r#"{{"x":"{}"}}"#, "x".repeat(100));
        let long_text = format!(r#"{{"model":"{}"}}"#, "x".repeat(257));
        for (body, [present, one_of, matches, streams, streams_not]) in [
            (r#"{"model":"gpt-4o"}"#, [true, true, true, false, false]),
            (r#"{"model":" gpt-4\u006f\n"}"#, [true, true, true, false, false]),
            (r#"{"model":"GPT-4o","stream":true}"#, [true, false, false, true, false]),
            (r#"{"model":7.0,"stream":false}"#, [true, true, false, false, true]),
            (r#"{"model":true,"stream":1}"#, [true, false, false, true, true]),
            (r#"{"model":null,"stream":"no"}"#, [false, false, false, true, true]),
            (r#"{"model":["gpt-4o"],"stream":{}}"#, [false; 5]),
            ("[]", [false; 5]),
            ("", [false; 5]),
            // What a service may read in another way.
            (r#"{"model":"a","model":"b"}"#, [true; 5]),
            (r#"{"model":"a","Stream":true}"#, [true; 5]),
            ("model=gpt-4o", [true; 5]),
            (r#"{"model":"a""#, [true; 5]),
            (&long, [true; 5]),
            // The other member can be read.
            (r#"{"model":"a\ud800"}"#, [true, true, true, false, false]),
            (r#"{"model":-7}"#, [true, true, true, false, false]),
            (&long_text, [true; 5]),
        ] {
            let pointers = RequestPointers::new([&model.pointer, &stream.pointer]).unwrap();
            let mut read = RequestBody::new(&pointers, Fields::NONE, None);
            read.push(body.as_bytes());
            read.end();
            let fits = |member: &BodyMember, test: &MemberTest| member.fits(test, Some(&read));
            let found = [
                fits(&model, &MemberTest::Present),
                fits(&model, &one),
                fits(&model, &regex),
                fits(&stream, &MemberTest::Is(true)),
                fits(&stream, &MemberTest::Is(false)),
            ];
            assert_eq!(found, [present, one_of, matches, streams, streams_not], "{body}");
        }
        assert!(!model.fits(&MemberTest::Present, None));
    }
}
