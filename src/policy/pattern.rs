//! Path patterns: literal segments, `{name}` for one segment, `{*rest}` for the rest.

use std::{error, fmt};

use super::path;

/// A path pattern, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any one segment that is not empty.
    One,
    /// Everything from here on, also nothing; only at the end.
    Rest,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It does not begin with `/`.
    NoSlash,
    /// `{*rest}` is not the last segment.
    RestNotLast,
    /// Braces that do not enclose a whole segment and a name.
    Braces,
    /// It could never match, because paths are normalised: this is what it would have to be.
    NotNormal(String),
    /// No path can be like this.
    NoPath,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlash => f.write_str("a path pattern begins with `/`"),
            Self::RestNotLast => f.write_str("`{*rest}` can only be the last segment"),
            Self::Braces => f.write_str("braces enclose a whole segment: `{name}` or `{*rest}`"),
            Self::NotNormal(normal) => write!(f, "paths are normalised before they are matched; write `{normal}`"),
            Self::NoPath => f.write_str("no path can match this"),
        }
    }
}

impl error::Error for PatternError {}

impl PathPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(inner) = text.strip_prefix('/') else { return Err(PatternError::NoSlash) };
        let mut segments = Vec::new();
        for segment in inner.split('/') {
            if segments.last() == Some(&Segment::Rest) {
                return Err(PatternError::RestNotLast);
            }
            segments.push(Segment::parse(segment)?);
        }
        let literal = text.replace(['{', '}', '*'], "_");
        match path::normalise(&literal) {
            Ok(normal) if *normal == literal => Ok(Self { text: text.into(), segments }),
            Ok(normal) if literal == text => Err(PatternError::NotNormal(normal.into_owned())),
            _ => Err(PatternError::NoPath),
        }
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternError> {
        match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            None if text.contains(['{', '}']) => Err(PatternError::Braces),
            None => Ok(Self::Literal(text.into())),
            Some(name) => {
                let (segment, name) = match name.strip_prefix('*') {
                    Some(name) => (Self::Rest, name),
                    None => (Self::One, name),
                };
                let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if is_name { Ok(segment) } else { Err(PatternError::Braces) }
            }
        }
    }
}
