//! Descriptors of callers that have no request, and the rules that map each to limits and keys.
//!
//! A descriptor is a list of entries, each with a name and a value. The first rule that fits all entries decides which
//! limits the caller meets, and which texts stand in their keys.
//!
//! Not here: the decision (gate), and the protocols of the callers.

/// The name and the value of an entry.
pub type Entry<'e> = (&'e str, &'e str);

/// The names of the entries of a check, in their order.
pub const CHECK_ENTRIES: [&str; 3] = ["actor", "scope", "method"];

/// All rules for descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The rules for checks, whose descriptors have the entries [`CHECK_ENTRIES`].
    pub checks: Vec<DescriptorRule>,
    /// The rules for descriptors of a domain, each with its domain.
    pub domains: Vec<(Box<str>, DescriptorRule)>,
}

/// A rule for the descriptors that fit its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRule {
    /// A descriptor fits if it has these entries in this order, and no others.
    pub entries: Vec<EntryPattern>,
    /// The plan of the caller; `None` if it has none.
    pub plan: Option<Template>,
    /// The limits that the caller meets.
    pub limits: Vec<MappedLimit>,
    /// Whether a descriptor may request another rate. The rule has one limit then.
    pub accepts_limit: bool,
    /// Whether the units of a descriptor are spent already, so that they are charged whether they fit or not.
    pub is_reported: bool,
}

/// The entries that fit one place of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    /// The name.
    pub key: Box<str>,
    /// The values; empty for any value.
    pub values: Vec<Box<str>>,
}

/// A limit, and the texts of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedLimit {
    /// The index of the limit in its policy.
    pub limit: usize,
    /// The text of each part, in the order of the limit's key.
    pub parts: Vec<Template>,
}

/// A text in which `{NAME}` stands for the value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The index of an entry.
    Entry(usize),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace has no counterpart.
    #[error("a brace has no counterpart; `{{{{` and `}}}}` stand for braces themselves")]
    Brace,
    /// No entry has this name.
    #[error("there is no entry `{0}`")]
    Unknown(String),
    /// Several entries have this name.
    #[error("several entries are named `{0}`")]
    Several(String),
}

impl Descriptors {
    /// The rule for a check with these entries.
    pub fn of_check(&self, entries: &[Entry<'_>]) -> Option<&DescriptorRule> {
        self.checks.iter().find(|rule| rule.fits(entries))
    }

    /// The rule for a descriptor of `domain` with these entries.
    pub fn of_domain(&self, domain: &str, entries: &[Entry<'_>]) -> Option<&DescriptorRule> {
        let mut rules = self.domains.iter().filter(|(known, _)| **known == *domain).map(|(_, rule)| rule);
        rules.find(|rule| rule.fits(entries))
    }
}

impl DescriptorRule {
    /// Whether the rule fits every descriptor that `other` fits.
    pub fn covers(&self, other: &Self) -> bool {
        let covers = |(own, other): (&EntryPattern, &EntryPattern)| {
            let has_all = || other.values.iter().all(|value| own.values.contains(value));
            own.key == other.key && (own.values.is_empty() || !other.values.is_empty() && has_all())
        };
        self.entries.len() == other.entries.len() && self.entries.iter().zip(&other.entries).all(covers)
    }

    fn fits(&self, entries: &[Entry<'_>]) -> bool {
        let fits = |(pattern, (key, value)): (&EntryPattern, &Entry<'_>)| {
            *pattern.key == **key
                && (pattern.values.is_empty() || pattern.values.iter().any(|known| **known == **value))
        };
        self.entries.len() == entries.len() && self.entries.iter().zip(entries).all(fits)
    }
}

impl Template {
    /// Parses a text for descriptors with these entries.
    ///
    /// # Errors
    /// Why it is no template.
    pub fn parse(text: &str, entries: &[&str]) -> Result<Self, TemplateError> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braces) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = braces.strip_prefix("{{") {
                literal.push('{');
                rest = after;
                continue;
            }
            if let Some(after) = braces.strip_prefix("}}") {
                literal.push('}');
                rest = after;
                continue;
            }
            let inner = braces.strip_prefix('{').ok_or(TemplateError::Brace)?;
            let (name, after) = inner.split_once('}').ok_or(TemplateError::Brace)?;
            let mut named = entries.iter().enumerate().filter(|(_, entry)| **entry == name).map(|(index, _)| index);
            let index = named.next().ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            if named.next().is_some() {
                return Err(TemplateError::Several(name.to_owned()));
            }
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
            }
            pieces.push(Piece::Entry(index));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Ok(Self(pieces))
    }

    /// The text for a descriptor that fits the rule.
    pub fn text(&self, entries: &[Entry<'_>]) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Entry(index) => entries.get(*index).map_or_else(String::new, |(_, value)| (*value).to_owned()),
        };
        self.0.iter().map(piece).collect()
    }

    /// The text, if it is the same for all descriptors.
    pub fn literal(&self) -> Option<&str> {
        match &*self.0 {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let entries = [("actor", "7"), ("scope", "s"), ("x", "1"), ("x", "2")];
        let names = entries.map(|(name, _)| name);
        for (text, expected) in [
            ("", Ok("")),
            ("all", Ok("all")),
            ("{actor}", Ok("7")),
            ("/v1/{scope}/{actor}", Ok("/v1/s/7")),
            ("{actor}{actor}", Ok("77")),
            ("/orders/{{id}}", Ok("/orders/{id}")),
            ("{{{actor}}}", Ok("{7}")),
            ("{actor", Err(TemplateError::Brace)),
            ("actor}", Err(TemplateError::Brace)),
            ("{}", Err(TemplateError::Unknown(String::new()))),
            ("{Actor}", Err(TemplateError::Unknown("Actor".into()))),
            ("{x}", Err(TemplateError::Several("x".into()))),
        ] {
            let template = Template::parse(text, &names);
            assert_eq!(template.map(|template| template.text(&entries)), expected.map(str::to_owned), "{text}");
        }
        assert_eq!(Template::parse("a{{", &names).unwrap().literal(), Some("a{"));
        assert_eq!(Template::parse("{actor}", &names).unwrap().literal(), None);
    }

    #[test]
    fn the_first_rule_that_fits_all_entries_decides() {
        let rule = |entries: &[(&str, &[&str])], limit| DescriptorRule {
            is_reported: false,
            entries: entries
                .iter()
                .map(|(key, values)| EntryPattern {
                    key: (*key).into(),
                    values: values.iter().map(|value| (*value).into()).collect(),
                })
                .collect(),
            plan: None,
            limits: vec![MappedLimit { limit, parts: Vec::new() }],
            accepts_limit: false,
        };
        let domains = vec![
            ("a".into(), rule(&[("k", &["1", "2"])], 0)),
            ("a".into(), rule(&[("k", &[])], 1)),
            ("a".into(), rule(&[("k", &["1"]), ("l", &[])], 2)),
            ("b".into(), rule(&[("k", &[])], 3)),
        ];
        let rules = Descriptors { checks: vec![rule(&[("actor", &[])], 4)], domains };
        for (domain, entries, expected) in [
            ("a", &[("k", "1")][..], Some(0)),
            ("a", &[("k", "2")], Some(0)),
            ("a", &[("k", "3")], Some(1)),
            ("a", &[("k", "1"), ("l", "")], Some(2)),
            ("a", &[("l", ""), ("k", "1")], None),
            ("a", &[("k", "2"), ("l", "")], None),
            ("a", &[("k", "1"), ("l", ""), ("m", "")], None),
            ("a", &[], None),
            ("b", &[("k", "1")], Some(3)),
            ("c", &[("k", "1")], None),
        ] {
            let found = rules.of_domain(domain, entries);
            assert_eq!(found.map(|rule| rule.limits[0].limit), expected, "{domain} {entries:?}");
        }
        assert_eq!(rules.of_check(&[("actor", "7")]).map(|rule| rule.limits[0].limit), Some(4));
    }
}
