//! Templates of access lines: text with the names of fields in braces.

use super::fields::{FIELDS, Field};

/// The format `combined` of nginx and Apache, without the query.
pub const COMBINED: &str = "{client} - - [{clf_time}] \"{method} {path} {protocol}\" {status} {bytes_out} \
                            \"{referer}\" \"{user_agent}\"";

/// A template. `{{` and `}}` stand for braces.
#[derive(Clone, Debug)]
pub struct Template {
    text: Box<str>,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
pub(super) enum Piece {
    Literal(Box<str>),
    Field(&'static Field),
    /// The end of the request as RFC 3339.
    Timestamp,
    /// The end of the request as in the Common Log Format.
    ClfTime,
}

/// The names beside those of [`FIELDS`].
const TIMES: [(&str, Piece); 2] = [("timestamp", Piece::Timestamp), ("clf_time", Piece::ClfTime)];

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Template {}

impl Template {
    /// The names that a template can have in braces.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|field| field.name).chain(TIMES.iter().map(|(name, _)| *name))
    }

    /// Parses a template.
    ///
    /// # Errors
    /// The unknown name, or `None` for a brace without its partner or a control character.
    pub fn parse(text: &str) -> Result<Self, Option<&str>> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        if text.chars().any(|character| character != '\t' && super::is_unprintable(character)) {
            return Err(None);
        }
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braced) = rest.split_at(at);
            literal.push_str(before);
            let (brace, after) = braced.split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or(None)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
            }
            let field = FIELDS.iter().find(|field| field.name == name).map(Piece::Field);
            let time = || TIMES.iter().find(|(time, _)| *time == name).map(|(_, piece)| piece.clone());
            pieces.push(field.or_else(time).ok_or(Some(name))?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Ok(Self { text: text.into(), pieces })
    }

    /// Whether the gate must be asked for one of its fields.
    pub(super) fn names_gate(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Field(field) if field.is_of_gate()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_templates_are_found() {
        for (text, expected) in [
            (COMBINED, Ok(18)),
            ("{client}{{x}}\t{clf_time}", Ok(3)),
            ("plain", Ok(1)),
            ("{cleint}", Err(Some("cleint"))),
            ("{}", Err(Some(""))),
            ("{client", Err(None)),
            ("client}", Err(None)),
            ("{client}\n", Err(None)),
        ] {
            assert_eq!(Template::parse(text).map(|template| template.pieces.len()), expected, "{text}");
        }
    }
}
