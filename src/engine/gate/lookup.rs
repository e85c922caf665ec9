//! Looks keys up by the names of their parts, for operators and services, which have no request; and the keys that were
//! refused most.

use http::HeaderValue;

use super::state::{Gate, Live};
use super::top_keys::TopKeys;
use crate::engine::limit::Key;
use crate::engine::policy::{Applied, KeyPart, Variant, host, key_of_marked_id};

/// Why no request can have a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no limit of this name.
    #[error("there is no such limit")]
    UnknownLimit,
    /// The key lacks this part.
    #[error("key: `{0}` is missing")]
    MissingPart(String),
    /// The limit's key has no such part.
    #[error("key: this limit's key has no `{0}`")]
    UnknownPart(String),
    /// This part occurs twice.
    #[error("key: `{0}` occurs twice")]
    DoublePart(String),
    /// No request has this value in this part.
    #[error("key: `{0}` {values}", values = values_of(.0))]
    BadPart(String),
    /// This part contains `|`, which separates parts.
    #[error("key: `{0}` contains `|`, which separates the parts of a key")]
    Bar(String),
    /// The text has another number of parts than the limit's key.
    #[error("key: this limit's key has {0} parts, with `|` between them")]
    Parts(usize),
    /// All requests share one budget.
    #[error("key: this limit has one budget for all requests, so it has no keys")]
    OneForAll,
}

/// What is said of the values of a part.
fn values_of(part: &str) -> &'static str {
    if part == "ip" || part.starts_with("ip/") {
        "is an address such as 192.0.2.7, or the network that the key counts as one"
    } else {
        "cannot have this value"
    }
}

impl Gate {
    /// The `n` keys that each limit refused or held most of late. With a name, only those of that limit; the result is
    /// empty if no limit has the name.
    pub fn top(&self, live: &Live, limit: Option<&str>, n: usize) -> Vec<TopKeys> {
        let states = live.states.iter().filter(|state| limit.is_none_or(|limit| *state.name == *limit));
        states.map(|state| state.refused.top(&state.name, n)).collect()
    }

    /// The `n` networks (IPv4 by /24, IPv6 by /48) whose clients limits and bans refused or held most of late.
    pub fn top_networks(&self, n: usize) -> TopKeys {
        self.refused_networks.0.top("", n)
    }

    /// The text by which an override names a key of `limit`. `named` are the parts of the key with their names. If an
    /// override of this key is in force, the text is the one that it has.
    ///
    /// # Errors
    /// Why no override can name the key.
    pub fn key_text(&self, live: &Live, limit: &str, named: &[(String, String)]) -> Result<String, KeyError> {
        let Applied { index, limit, .. } = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?;
        let texts = texts(live, index, named)?;
        match &*texts {
            [] => return Err(KeyError::OneForAll),
            [_] => {}
            texts => {
                if let Some((part, _)) = limit.key.iter().zip(texts).find(|(_, text)| text.contains('|')) {
                    return Err(KeyError::Bar(live.policy.part_name(part).into_owned()));
                }
            }
        }
        let text = texts.join("|");
        let key = self.secret.key_of_text(&limit.key, &text, live.policy.client_ip.prefixes, &live.policy.identities);
        Ok(key.and_then(|key| known_text(live, index, key)).unwrap_or(text))
    }

    /// The text by which an override names a key of `limit` of which only the hash is known: the text of the override in
    /// force, or else `#` and the id.
    ///
    /// # Errors
    /// Why no override can name the key.
    pub fn text_of_hash(&self, live: &Live, limit: &str, key: Key) -> Result<String, KeyError> {
        let Applied { index, limit, .. } = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?;
        if limit.key.is_empty() {
            return Err(KeyError::OneForAll);
        }
        Ok(known_text(live, index, key).unwrap_or_else(|| format!("#{}", key.id())))
    }

    /// The parts of an override's text with their names, without secrets.
    ///
    /// # Errors
    /// The text if it has an id, or the masked text if no key of the limit has it.
    pub fn shown_key(&self, live: &Live, limit: &str, text: &str) -> Result<Vec<(String, String)>, String> {
        let masked = || self.secret.masked(text.as_bytes());
        let Applied { index, limit, .. } = live.policy.by_name(limit).ok_or_else(masked)?;
        let parts = &limit.key;
        if key_of_marked_id(text).is_some() && !parts.is_empty() {
            return Err(text.to_owned());
        }
        let texts: Vec<&str> = if parts.len() > 1 { text.split('|').collect() } else { vec![text] };
        let is_normal = |(part, text): (&KeyPart, &&str)| match part {
            KeyPart::Method => text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'),
            _ => normal(live, index, part, text).as_deref() == Some(*text),
        };
        if texts.len() != parts.len() || !parts.iter().zip(&texts).all(is_normal) {
            return Err(masked());
        }
        let shown = |(part, text): (&KeyPart, &str)| {
            (live.policy.part_name(part).into_owned(), live.policy.shown_text(&self.secret, part, text))
        };
        Ok(parts.iter().zip(texts).map(shown).collect())
    }
}

/// The text of the override of a key that is in force.
fn known_text(live: &Live, index: usize, key: Key) -> Option<String> {
    let Some(Variant::Override(place)) = live.special(index, key) else { return None };
    let overrides = &live.policy.limits().get(index)?.allowed.overrides;
    overrides.get(usize::from(place)).map(|(text, _)| text.to_string())
}

/// The texts of a key's parts in the order of the limit's key, as a request has them.
///
/// # Errors
/// Why no request can have the key.
pub(super) fn texts(live: &Live, index: usize, named: &[(String, String)]) -> Result<Vec<String>, KeyError> {
    let parts = &live.policy.limits()[index].key;
    let is_named = |part: &KeyPart, text: &str| match part {
        KeyPart::Header(..) => text.eq_ignore_ascii_case(&live.policy.part_name(part)),
        _ => *text == *live.policy.part_name(part),
    };
    // First: a misspelt name says more than the part that is missing for it.
    if let Some((name, _)) = named.iter().find(|(name, _)| !parts.iter().any(|part| is_named(part, name))) {
        return Err(KeyError::UnknownPart(name.clone()));
    }
    let text = |part: &KeyPart| {
        let name = || live.policy.part_name(part).into_owned();
        let mut values = named.iter().filter(|(named, _)| is_named(part, named)).map(|(_, value)| value);
        let value = values.next().ok_or_else(|| KeyError::MissingPart(name()))?;
        if values.next().is_some() {
            return Err(KeyError::DoublePart(name()));
        }
        normal(live, index, part, value).ok_or_else(|| KeyError::BadPart(name()))
    };
    parts.iter().map(text).collect()
}

/// The texts of a key's parts in one text, with `|` between them, as a request has them.
///
/// # Errors
/// Why no request can have the key.
pub(super) fn texts_of(live: &Live, index: usize, text: &str) -> Result<Vec<String>, KeyError> {
    let key = live.policy.limits().get(index).map_or(&[][..], |limit| &limit.key);
    let texts: Vec<&str> = match key.len() {
        0 if text.is_empty() => Vec::new(),
        0 | 1 => vec![text],
        _ => text.split('|').collect(),
    };
    if texts.len() != key.len() {
        return Err(if key.is_empty() { KeyError::OneForAll } else { KeyError::Parts(key.len()) });
    }
    let named = |(part, text): (&KeyPart, &str)| {
        normal(live, index, part, text).ok_or_else(|| KeyError::BadPart(live.policy.part_name(part).into_owned()))
    };
    key.iter().zip(texts).map(named).collect()
}

/// `value` as a request has it in this part of its key; `None` if no request has it.
pub(super) fn normal(live: &Live, index: usize, part: &KeyPart, value: &str) -> Option<String> {
    match part {
        KeyPart::Ip | KeyPart::Network { .. } => {
            part.prefixes(live.policy.client_ip.prefixes).parse(value).map(|_| value.to_owned())
        }
        KeyPart::Path => live.policy.paths.matched(value).ok(),
        KeyPart::Parameter(_) => live.policy.paths.matched_part(value),
        KeyPart::Uri => live.policy.paths.matched_uri(value).ok(),
        KeyPart::Route => is_route(live, index, value).then(|| value.to_owned()),
        KeyPart::Header(..) => {
            let is_field = value.trim_ascii() == value && HeaderValue::from_bytes(value.as_bytes()).is_ok();
            is_field.then(|| value.to_owned())
        }
        KeyPart::Host => (value.is_empty() || host::is_authority(value)).then(|| host::host(value).into_owned()),
        _ => Some(value.to_owned()),
    }
}

/// Whether the limit has the pattern `text`; for a limit without patterns, whether `text` is empty.
fn is_route(live: &Live, index: usize, text: &str) -> bool {
    let paths = &live.policy.limits()[index].matches.paths;
    if paths.is_empty() { text.is_empty() } else { paths.iter().any(|path| path.as_str() == text) }
}
