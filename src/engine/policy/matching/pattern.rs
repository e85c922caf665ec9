//! Path patterns: literal segments, `{name}` for one segment, `{*rest}` for the rest.

use super::notation::{self, Mark};
use super::path::{self, EncodedSlashes, Fold};

/// A checked path pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    /// Exactly this text.
    Literal(Box<str>),
    /// Any one segment that is not empty.
    One,
    /// The rest of the path, possibly empty; only at the end. With `or_end` it also matches a path that ends before it.
    Rest { or_end: bool },
}

const REST: Segment = Segment::Rest { or_end: false };

/// The reason why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text does not begin with `/`.
    #[error("a path pattern begins with `/`")]
    NoSlash,
    /// `{*rest}` is not the last segment.
    #[error("`{{*rest}}` can only be the last segment")]
    RestNotLast,
    /// Braces do not enclose a whole segment and a name.
    #[error("braces enclose a whole segment: `{{name}}` or `{{*rest}}`")]
    Braces,
    /// The pattern can never match, because paths are normalised. The text is the normal form.
    #[error("paths are normalised before they are matched; write `{0}`")]
    NotNormal(String),
    /// A query, which a path does not have. The text is the pattern before it.
    #[error("a path pattern has no query; write `{0}`, or `%3F` for the character itself")]
    Query(String),
    /// No path has this form.
    #[error("no path can match this")]
    NoPath,
    /// The pattern has `%2F`, and paths with it are refused.
    #[error("`server.encoded_slashes` refuses paths with `%2F`")]
    EncodedSlash,
    /// The pattern has `;` parameters, which are ignored. The text is the pattern without them.
    #[error("`server.paths` ignores `;` parameters; write `{0}`")]
    Params(String),
    /// A literal segment that is probably in another notation.
    #[error("`{}` has no meaning here: `{{name}}` stands for one segment, `{{*rest}}` for all that follow", .0.char())]
    Foreign(Mark),
}

impl PathPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(inner) = text.strip_prefix('/') else { return Err(PatternError::NoSlash) };
        let mut segments = Vec::new();
        let mut texts = inner.split('/').peekable();
        while let Some(text) = texts.next() {
            if segments.last() == Some(&REST) {
                return Err(PatternError::RestNotLast);
            }
            let segment = Segment::parse(text)?;
            if let (Segment::Literal(text), is_last) = (&segment, texts.peek().is_none())
                && let Some(mark) = Mark::of(text, is_last)
            {
                return Err(PatternError::Foreign(mark));
            }
            segments.push(segment);
        }
        let literal = text.replace(['{', '}', '*'], "_");
        match (path::PathRules { encoded_slashes: EncodedSlashes::Keep, ..Default::default() }).normalise(&literal) {
            Ok(normal) if *normal == literal => Ok(Self { text: text.into(), segments }),
            Ok(_) if let Some((path, _)) = text.split_once('?') => Err(PatternError::Query(path.to_owned())),
            Ok(normal) if literal == text => Err(PatternError::NotNormal(normal.into_owned())),
            _ => Err(PatternError::NoPath),
        }
    }

    /// The pattern for paths that `rules` read and fold.
    ///
    /// # Errors
    /// The pattern has parameters or an escaped slash, and folded paths have neither.
    pub fn folded(self, rules: path::PathRules) -> Result<Self, PatternError> {
        let Fold { trailing_slash, params, .. } = rules.fold;
        if rules.encoded_slashes == EncodedSlashes::Refuse && self.text.contains(path::ENCODED_SLASH) {
            return Err(PatternError::EncodedSlash);
        }
        if params && self.text.contains(';') {
            let without = rules.fold(&self.text.replace(['{', '}'], "")).into_owned();
            return Err(PatternError::Params(without));
        }
        let fold = |segment| match segment {
            Segment::Literal(text) => {
                let folded = rules.fold.text(&text);
                Segment::Literal(folded.map_or(text, String::into_boxed_str))
            }
            Segment::Rest { .. } => Segment::Rest { or_end: trailing_slash },
            Segment::One => Segment::One,
        };
        let mut segments: Vec<_> = self.segments.into_iter().map(fold).collect();
        if trailing_slash && segments.len() > 1 {
            segments.pop_if(|last| matches!(last, Segment::Literal(text) if text.is_empty()));
        }
        Ok(Self { text: self.text, segments })
    }

    /// The pattern that an invalid text probably means.
    pub fn suggestion(text: &str) -> Option<String> {
        notation::translated(text).filter(|ours| Self::parse(ours).is_ok())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches a normalised path.
    pub fn matches(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else { return false };
        for segment in &self.segments {
            let Some(path) = left else { return *segment == Segment::Rest { or_end: true } };
            let (here, tail) = path.split_once('/').map_or((path, None), |(here, tail)| (here, Some(tail)));
            let fits = match segment {
                Segment::Rest { .. } => return true,
                Segment::One => !here.is_empty(),
                Segment::Literal(text) => **text == *here,
            };
            if !fits {
                return false;
            }
            left = tail;
        }
        left.is_none()
    }

    /// Whether the pattern matches every path that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let mut theirs = other.segments.iter();
        for segment in &self.segments {
            let covers = match (segment, theirs.next()) {
                (Segment::Rest { or_end }, None | Some(Segment::Rest { or_end: true })) => return *or_end,
                (Segment::Rest { .. }, Some(_)) => return true,
                (Segment::One, Some(Segment::Literal(text))) => !text.is_empty(),
                (Segment::One, Some(Segment::One)) => true,
                (Segment::Literal(text), Some(Segment::Literal(other))) => text == other,
                _ => false,
            };
            if !covers {
                return false;
            }
        }
        theirs.next().is_none()
    }

    /// Whether some path matches both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut own, mut theirs) = (self.segments.iter(), other.segments.iter());
        loop {
            match (own.next(), theirs.next()) {
                (None, None) | (Some(Segment::Rest { .. }), Some(_)) | (Some(_), Some(Segment::Rest { .. })) => {
                    return true;
                }
                (Some(Segment::Rest { or_end }), None) | (None, Some(Segment::Rest { or_end })) => return *or_end,
                (None, Some(_)) | (Some(_), None) => return false,
                (Some(Segment::One), Some(Segment::Literal(text)))
                | (Some(Segment::Literal(text)), Some(Segment::One)) => {
                    if text.is_empty() {
                        return false;
                    }
                }
                (Some(one), Some(other)) => {
                    if one != other {
                        return false;
                    }
                }
            }
        }
    }

    /// Whether the pattern matches every path.
    pub fn matches_all(&self) -> bool {
        matches!(self.segments[..], [Segment::Rest { .. }])
    }

    /// Whether the pattern begins with these segments, all literal; `prefix` is a path without a slash at its end.
    pub fn starts_with(&self, prefix: &str) -> bool {
        let is_literal = |(segment, text): (&Segment, &str)| matches!(segment, Segment::Literal(own) if **own == *text);
        let wanted = prefix.split('/').skip(1);
        self.segments.len() >= wanted.clone().count() && self.segments.iter().zip(wanted).all(is_literal)
    }

    /// Whether the pattern has a parameter of this name.
    pub fn has_parameter(&self, name: &str) -> bool {
        let is_named = |segment| parameter_name(segment).is_some_and(|own| own.trim_start_matches('*') == name);
        self.text.split('/').any(is_named)
    }

    /// A text that is equal for two patterns that match the same paths.
    pub fn shape(&self) -> String {
        let segment = |segment: &Segment| match segment {
            Segment::Literal(text) => text.to_string(),
            Segment::One => "{}".to_owned(),
            Segment::Rest { .. } => "{*}".to_owned(),
        };
        self.segments.iter().map(segment).collect::<Vec<_>>().join("/")
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

/// The value in `path` of the first parameter `name` of a pattern that matches it; none if the path ends before it.
pub(in crate::engine::policy) fn parameter<'p>(pattern: &str, name: &str, path: &'p str) -> Option<&'p str> {
    let mut left = path.strip_prefix('/');
    for segment in pattern.split('/').skip(1) {
        let path = left?;
        let (here, tail) = path.split_once('/').map_or((path, None), |(here, tail)| (here, Some(tail)));
        match parameter_name(segment) {
            Some(own) if own == name => return Some(here),
            Some(own) if own.strip_prefix('*') == Some(name) => return Some(path),
            _ => left = tail,
        }
    }
    None
}

/// The name of the parameter that a segment is, with the `*` of a rest.
fn parameter_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PatternError> {
        match parameter_name(text) {
            None if text.contains(['{', '}']) => Err(PatternError::Braces),
            None => Ok(Self::Literal(text.into())),
            Some(name) => {
                let (segment, name) = match name.strip_prefix('*') {
                    Some(name) => (REST, name),
                    None => (Self::One, name),
                };
                let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if is_name { Ok(segment) } else { Err(PatternError::Braces) }
            }
        }
    }
}

#[cfg(test)]
mod matching;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_patterns() {
        let literal = |text: &str| Segment::Literal(text.into());
        for (text, segments) in [
            ("/", vec![literal("")]),
            ("/a", vec![literal("a")]),
            ("/a/", vec![literal("a"), literal("")]),
            ("/{a}", vec![Segment::One]),
            ("/{a_1}/b/{*rest}", vec![Segment::One, literal("b"), REST]),
            ("/{*rest}", vec![REST]),
            ("/a%2Ab/%3Aid", vec![literal("a%2Ab"), literal("%3Aid")]),
            ("/%C3%A9;v=1/a:b@c", vec![literal("%C3%A9;v=1"), literal("a:b@c")]),
            (
                "/:/c++/$metadata/Shops(1)/$",
                vec![":", "c++", "$metadata", "Shops(1)", "$"].into_iter().map(literal).collect(),
            ),
        ] {
            let pattern = PathPattern::parse(text).unwrap();
            assert_eq!((pattern.as_str(), pattern.segments()), (text, &*segments));
        }
    }

    #[test]
    fn invalid_patterns() {
        let not_normal = |normal: &str| PatternError::NotNormal(normal.into());
        for (text, error) in [
            ("", PatternError::NoSlash),
            ("a", PatternError::NoSlash),
            ("*", PatternError::NoSlash),
            ("{*rest}", PatternError::NoSlash),
            ("/{*rest}/", PatternError::RestNotLast),
            ("/{*rest}/a", PatternError::RestNotLast),
            ("/{}", PatternError::Braces),
            ("/{*}", PatternError::Braces),
            ("/{a", PatternError::Braces),
            ("/a}", PatternError::Braces),
            ("/x{a}", PatternError::Braces),
            ("/{a}x", PatternError::Braces),
            ("/{a}{b}", PatternError::Braces),
            ("/{a-b}", PatternError::Braces),
            ("/{**a}", PatternError::Braces),
            ("/{é}", PatternError::Braces),
            ("/a//b", not_normal("/a/b")),
            ("/a/../b", not_normal("/b")),
            ("/é", not_normal("/%C3%A9")),
            ("/a b", not_normal("/a%20b")),
            ("/%61", not_normal("/a")),
            ("/%3a", not_normal("/%3A")),
            ("/a?b", PatternError::Query("/a".into())),
            ("/{a}/b?c=d", PatternError::Query("/{a}/b".into())),
            ("/a%2fb", not_normal("/a%2Fb")),
            ("/a%2F..", PatternError::NoPath),
            ("/a\\b", PatternError::NoPath),
            ("/%zz", PatternError::NoPath),
            ("/{a}//b", PatternError::NoPath),
            ("/*", PatternError::Foreign(Mark::Star)),
            ("/a/:id", PatternError::Foreign(Mark::Colon)),
            ("/a/.+", PatternError::Foreign(Mark::Plus)),
            ("/a$", PatternError::Foreign(Mark::Dollar)),
        ] {
            assert_eq!(PathPattern::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn other_notations_are_refused_with_a_suggestion() {
        for (text, ours) in [
            // Globs.
            ("/api/*", "/api/{*rest}"),
            ("/api/**", "/api/{*rest}"),
            ("/api/*/edit", "/api/{name}/edit"),
            ("/api/**/edit", "/api/{name}/edit"),
            ("/*.php", "/{name}"),
            ("/report-*", "/{name}"),
            ("*", "/{*rest}"),
            ("/*", "/{*rest}"),
            ("api/*", "/api/{*rest}"),
            // Regular expressions, nginx.
            ("/api/.*", "/api/{*rest}"),
            ("/api/(.*)", "/api/{*rest}"),
            ("/api/.+", "/api/{*rest}"),
            ("^/api", "/api"),
            ("^/api/.*$", "/api/{*rest}"),
            ("^/users/[0-9]+$", "/users/{name}"),
            ("^/users/[^/]+/edit/?$", "/users/{name}/edit"),
            ("~ ^/users/(\\d+)$", "/users/{name}"),
            ("/api$", "/api"),
            // Express, Rails, Gin.
            ("/api/:id", "/api/{id}"),
            ("/api/:id(\\d+)/x", "/api/{id}/x"),
            ("/api/:id?", "/api/{id}"),
            ("/api/:rest*", "/api/{*rest}"),
            ("/files/*path", "/files/{*path}"),
            // Flask, Django.
            ("/api/<id>", "/api/{id}"),
            ("/api/<int:id>/x", "/api/{id}/x"),
            ("/api/<path:rest>", "/api/{*rest}"),
            // Next.js.
            ("/api/[id]", "/api/{id}"),
            ("/api/[...rest]", "/api/{*rest}"),
            // ASP.NET, Spring, FastAPI, Go.
            ("/api/{id:int}", "/api/{id}"),
            ("/api/{id?}", "/api/{id}"),
            ("/api/{**rest}", "/api/{*rest}"),
            ("/api/{rest:path}", "/api/{*rest}"),
            ("/api/{rest...}", "/api/{*rest}"),
            ("/api/{*}", "/api/{*rest}"),
            ("/api/{}", "/api/{name}"),
        ] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
            assert_eq!(PathPattern::suggestion(text).as_deref(), Some(ours), "{text}");
        }
    }

    #[test]
    fn folded_patterns_match_folded_paths() {
        let fold = |case, trailing_slash, params| path::PathRules {
            fold: Fold { case, trailing_slash, params },
            ..Default::default()
        };
        let (none, case, slash) = (fold(false, false, false), fold(true, false, false), fold(false, true, false));
        let encoded = path::PathRules { encoded_slashes: EncodedSlashes::Keep, ..none };
        for (rules, pattern, raw, matches) in [
            (none, "/items:get", "/items%3aget", true),
            (none, "/a%2Ab", "/a*b", true),
            (none, "/a%2Ab", "/a%2ab", true),
            (none, "/login", "/Login", false),
            (none, "/login", "/login/", false),
            (case, "/Login/{Id}", "/LOGIN/7", true),
            (case, "/login", "/%4cogin", true),
            (case, "/%C3%A9", "/\u{c9}", true),
            (slash, "/login", "/login/", true),
            (slash, "/login/", "/login", true),
            (slash, "/users/{id}", "/users/7/", true),
            (slash, "/users/{id}", "/users/", false),
            // `/users` and `/users/` are equal, and the pattern has a slash at its end.
            (slash, "/users/{*rest}", "/users", true),
            (slash, "/users/{*rest}", "/users/7/", true),
            (slash, "/{*rest}", "/", true),
            (none, "/users/{*rest}", "/users", false),
            (encoded, "/a%2Fb", "/a%2fb", true),
            (encoded, "/a%2Fb", "/a/b", false),
            (encoded, "/a/{*rest}", "/a%2Fb", false),
            (encoded, "/{name}/c", "/a%2Fb/c", true),
            (fold(false, false, true), "/a/b", "/a;x=1/b;y", true),
            (fold(true, true, true), "/a/b", "/;z/A;x=1//B/;y", true),
        ] {
            let folded = PathPattern::parse(pattern).unwrap().folded(rules).unwrap();
            let path = rules.matched(raw).unwrap();
            assert_eq!(folded.matches(&path), matches, "{rules:?} {pattern} {raw}");
        }
        let with_params = PathPattern::parse("/a;x=1/b").unwrap().folded(fold(false, false, true));
        assert_eq!(with_params, Err(PatternError::Params("/a/b".to_owned())));
        assert_eq!(PathPattern::parse("/a%2Fb").unwrap().folded(none), Err(PatternError::EncodedSlash));
    }

    proptest! {
        /// A pattern without braces matches itself, so the normaliser does not change it.
        #[test]
        fn a_literal_pattern_is_a_normal_path(text in "/[a-c./%26;* é]{0,12}") {
            if let Ok(pattern) = PathPattern::parse(&text) {
                let rules = path::PathRules { encoded_slashes: EncodedSlashes::Keep, ..Default::default() };
                prop_assert_eq!(&*rules.normalise(pattern.as_str()).unwrap(), &*text);
            }
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = PathPattern::parse(&text);
            let _ = PathPattern::suggestion(&text);
        }

        #[test]
        fn a_suggestion_is_another_pattern(text in "[/a:*.+$^<>{}()?\\[\\]\\\\]{0,16}") {
            if let Some(ours) = PathPattern::suggestion(&text) {
                prop_assert!(PathPattern::parse(&ours).is_ok() && ours != text);
            }
        }
    }
}
