//! The keys of one client: those that each limit makes of its identities and its address.

use std::collections::HashSet;

use super::identify::stated_principal;
use super::keys::{FoundKey, KeyName};
use super::lookup::{KeyError, normal};
use super::state::{Gate, Live};
use super::top_keys::TOP_KEYS;
use crate::engine::policy::access::AccessRule;
use crate::engine::policy::client_ip::unmap;
use crate::engine::policy::{KeyPart, Limit};

/// The keys of a client in one limit.
#[derive(Debug)]
pub struct ClientKeys<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// The parts of the limit's key that the client does not name.
    pub missing: Vec<String>,
    /// The key of the client; if parts are missing, the known keys that have the others.
    pub keys: Vec<FoundKey>,
}

/// The name of the part of a client for all parts of keys that count addresses.
const ADDRESS: &str = "ip";

impl Gate {
    /// The keys of the client with these parts, for each limit whose key has one of them or none at all. `ip` names the
    /// address for all parts that count addresses. Of a limit whose key has more parts, at most `most` keys whose names
    /// are known: the most refused first, then those with an override.
    ///
    /// # Errors
    /// No limit has a part of this name.
    pub fn keys_of_client<'l>(
        &self,
        live: &'l Live,
        named: &[(String, String)],
        most: usize,
    ) -> Result<Vec<ClientKeys<'l>>, KeyError> {
        let policy = &live.policy;
        let all = || policy.limits().iter().flat_map(|limit| &limit.key);
        let is_known = |name: &str| name == ADDRESS || all().any(|part| is_named(&policy.part_name(part), part, name));
        if let Some((name, _)) = named.iter().find(|(name, _)| !is_known(name)) {
            return Err(KeyError::UnknownPart(name.clone()));
        }
        let of_limit = |(index, limit): (usize, &'l Limit)| {
            let given: Option<Vec<_>> = limit.key.iter().map(|part| named_text(live, index, part, named)).collect();
            let given = given?;
            if !limit.key.is_empty() && given.iter().all(Option::is_none) {
                return None;
            }
            let names = limit.key.iter().zip(&given).filter(|(_, text)| text.is_none());
            let missing: Vec<_> = names.map(|(part, _)| policy.part_name(part).into_owned()).collect();
            let keys = if missing.is_empty() {
                let parts = limit.key.iter().zip(given).map(|(part, text)| (policy.part_name(part).into_owned(), text));
                let parts = parts.filter_map(|(name, text)| Some((name, text?))).collect();
                vec![self.find_key(live, &limit.name, &KeyName::Parts(parts)).ok()?]
            } else {
                self.known_keys(live, index, &given, most)
            };
            Some(ClientKeys { limit, missing, keys })
        };
        Ok(policy.limits().iter().enumerate().filter_map(of_limit).collect())
    }

    /// The keys of a limit whose names are known and have the given parts.
    fn known_keys(&self, live: &Live, index: usize, given: &[Option<String>], most: usize) -> Vec<FoundKey> {
        let (Some(applied), Some(state)) = (live.policy.at(index), live.states.get(index)) else { return Vec::new() };
        let parts = &applied.limit.key;
        let wanted: Vec<_> = parts
            .iter()
            .zip(given)
            .map(|(part, text)| Some(live.policy.shown_text(&self.secret, part, text.as_deref()?)))
            .collect();
        let refused = state.refused.top(&state.name, TOP_KEYS).keys.into_iter().map(|key| (key.hash, key.text));
        let mut seen = HashSet::new();
        let found = |(key, name): (_, Box<str>)| {
            let pieces: Vec<&str> = name.split('|').collect();
            let is_wanted = pieces.len() == parts.len()
                && wanted.iter().zip(&pieces).all(|(wanted, piece)| wanted.as_ref().is_none_or(|text| text == piece));
            let shown = || {
                parts
                    .iter()
                    .zip(&pieces)
                    .map(|(part, piece)| (live.policy.part_name(part).into_owned(), (*piece).to_owned()))
            };
            let shown = (is_wanted && seen.insert(key)).then(|| shown().collect())?;
            Some(FoundKey { key, limit: index, shown: Some(shown), texts: None })
        };
        refused.chain(self.known_names(live, &applied)).filter_map(found).take(most).collect()
    }

    /// What the access lists say about the client with these parts, whatever path it asks for.
    pub fn access_of_client(&self, live: &Live, named: &[(String, String)]) -> Option<AccessRule> {
        let access = live.policy.access.as_deref()?;
        let of_part = |(name, text): &(String, String)| {
            if name == ADDRESS {
                return access.by_address(unmap(text.parse().ok()?));
            }
            let identities = &live.policy.identities;
            let index = identities.iter().position(|identity| *identity.name == **name)?;
            access.by_identity(index, &stated_principal(identities.get(index), &text.as_str().into()))
        };
        let rules: Vec<_> = named.iter().filter_map(of_part).collect();
        let denied = rules.iter().find(|rule| **rule == AccessRule::Deny);
        denied.or(rules.first()).copied()
    }
}

/// The text that the client has in this part: `None` inside if it names none, outside if no request can have it.
#[expect(clippy::option_option)] // no text, and no such text
fn named_text(live: &Live, index: usize, part: &KeyPart, named: &[(String, String)]) -> Option<Option<String>> {
    let name = live.policy.part_name(part);
    let Some((_, text)) = named.iter().find(|(given, _)| is_named(&name, part, given)) else { return Some(None) };
    normal(live, index, part, text).map(Some)
}

/// Whether `given` names `part`, whose name is `name`.
fn is_named(name: &str, part: &KeyPart, given: &str) -> bool {
    match part {
        KeyPart::Ip | KeyPart::Network { .. } => given == ADDRESS,
        KeyPart::Header(..) => given.eq_ignore_ascii_case(name),
        _ => given == name,
    }
}
