//! Path patterns in the notations of other software, and their translations.
//!
//! As literal text, a glob, a regular expression or a parameter of a web framework would match nothing. A limit or a
//! list would then have no effect, without a message. Not here: parsing patterns.

/// The character that shows that a literal segment is in another notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `*` anywhere.
    Star,
    /// `:` at the start of a segment.
    Colon,
    /// `+` after a dot, at the end of a segment.
    Plus,
    /// `$` at the end of the pattern.
    Dollar,
}

impl Mark {
    /// The mark of a segment, if it has one. `is_last` says that the segment is the last.
    pub fn of(segment: &str, is_last: bool) -> Option<Self> {
        match segment.as_bytes() {
            _ if segment.contains('*') => Some(Self::Star),
            [b':', _, ..] => Some(Self::Colon),
            [.., b'.', b'+'] => Some(Self::Plus),
            [_, .., b'$'] if is_last => Some(Self::Dollar),
            _ => None,
        }
    }

    /// The character.
    pub fn char(self) -> char {
        match self {
            Self::Star => '*',
            Self::Colon => ':',
            Self::Plus => '+',
            Self::Dollar => '$',
        }
    }

    /// The escape that a pattern needs for the character itself.
    pub fn escape(self) -> &'static str {
        match self {
            Self::Star => "%2A",
            Self::Colon => "%3A",
            Self::Plus => "%2B",
            Self::Dollar => "%24",
        }
    }
}

/// The kind of a segment in another notation.
enum SegmentKind {
    Literal,
    One(String),
    Rest(String),
}

/// The pattern that `text` probably means, if `text` is in another notation.
pub(crate) fn translated(text: &str) -> Option<String> {
    let regex = text.trim_start_matches(['^', '~', ' ']);
    let regex = regex.strip_suffix('$').map_or(regex, |text| text.strip_suffix("/?").unwrap_or(text));
    // A slash in brackets separates no segments.
    let regex = regex.replace("[^/]", "[^]").replace("\\/", "/");
    let inner = regex.strip_prefix('/').unwrap_or(&regex);
    let segments: Vec<&str> = inner.split('/').collect();
    let mut ours = String::new();
    for (at, segment) in segments.iter().enumerate() {
        ours.push('/');
        let segment = match kind_of(segment) {
            SegmentKind::Literal => (*segment).to_owned(),
            SegmentKind::Rest(name) if at + 1 == segments.len() => format!("{{*{name}}}"),
            SegmentKind::Rest(name) if name == "rest" => "{name}".to_owned(),
            SegmentKind::One(name) | SegmentKind::Rest(name) => format!("{{{name}}}"),
        };
        ours.push_str(&segment);
    }
    (ours != text).then_some(ours)
}

/// The text between `open` and `close`.
fn within<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

fn kind_of(segment: &str) -> SegmentKind {
    let optional = segment.trim_end_matches('?');
    let enclosed = within(optional, "(", ")").unwrap_or(optional);
    if ["*", "**", ".*", ".+"].contains(&enclosed) {
        return SegmentKind::Rest("rest".to_owned());
    }
    if let Some(name) = optional.strip_prefix('{') {
        let name = name.trim_end_matches('}');
        let is_rest = name.starts_with('*') || name.ends_with("...") || name.ends_with(":path");
        return parameter(name.trim_start_matches('*'), is_rest);
    }
    if let Some(inner) = within(optional, "<", ">") {
        let (kind, name) = inner.split_once(':').unwrap_or(("", inner));
        return parameter(name, kind == "path");
    }
    let bracketed = within(optional, "[[", "]]").or_else(|| within(optional, "[", "]"));
    if let Some(name) = bracketed.filter(|name| name.trim_start_matches('.').bytes().all(is_of_name)) {
        return parameter(name.trim_start_matches('.'), name.starts_with("..."));
    }
    if let Some(name) = optional.strip_prefix(':') {
        return parameter(name, name.ends_with(['*', '+']) || name.ends_with("(.*)"));
    }
    if let Some(name) = optional.strip_prefix('*').filter(|name| name.bytes().all(is_of_name)) {
        return parameter(name, true);
    }
    let is_expression = segment.contains(['*', '\\', '[', '|', '<', '>', '{', '}']) || segment.ends_with(".+");
    if is_expression { SegmentKind::One("name".to_owned()) } else { SegmentKind::Literal }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A parameter whose name is at the start of `text`.
fn parameter(text: &str, is_rest: bool) -> SegmentKind {
    let end = text.bytes().position(|byte| !is_of_name(byte)).unwrap_or(text.len());
    let name = match &text[..end] {
        "" if is_rest => "rest",
        "" => "name",
        name => name,
    };
    if is_rest { SegmentKind::Rest(name.to_owned()) } else { SegmentKind::One(name.to_owned()) }
}
