//! Consumers of Kong with their groups and keys.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Names, consumer_name_of};
use super::plugins::{Clients, IDENTITY, Plugin};
use crate::base::time::Timestamp;
use crate::engine::policy::api_keys::{ApiKey, KeyOwner, digest_of, is_adoptable, is_name};
use crate::import::draft::{Block, Draft, SourceLine, quoted};
use crate::import::yaml::Node;

/// The field of keys unless `key-auth` names others.
const KEY_FIELD: &str = "apikey";

/// A consumer.
#[derive(Default)]
struct Consumer {
    place: SourceLine,
    groups: Vec<String>,
    keys: Vec<String>,
}

/// All consumers, by name.
#[derive(Default)]
pub(super) struct Consumers(BTreeMap<String, Consumer>);

impl Consumers {
    /// Reads the consumers of a document, and the lists that refer to them.
    pub(super) fn read(&mut self, document: &Node, names: &Names, draft: &mut Draft) {
        for node in document.list("consumers") {
            let consumer = self.0.entry(consumer_name_of(node).to_owned()).or_default();
            consumer.place = node.place;
            for group in node.list("groups") {
                match names.resolve("consumer_group", group) {
                    Ok(name) => consumer.groups.push(name.to_owned()),
                    Err(reason) => group.left_out(reason, draft),
                }
            }
            consumer.keys.extend(node.list("keyauth_credentials").iter().map(|node| node.word("key").to_owned()));
        }
        for node in document.list("keyauth_credentials") {
            match names.reference(node, "consumer").map(|name| self.0.get_mut(name)) {
                Ok(Some(consumer)) => consumer.keys.push(node.word("key").to_owned()),
                Ok(None) => {}
                Err(reason) => node.left_out(reason, draft),
            }
        }
        for node in document.list("consumer_group_consumers") {
            let group = |name| Ok((name, names.reference(node, "consumer_group")?));
            match names.reference(node, "consumer").and_then(group) {
                Ok((name, group)) => {
                    if let Some(consumer) = self.0.get_mut(name) {
                        consumer.groups.push(group.to_owned());
                    }
                }
                Err(reason) => node.left_out(reason, draft),
            }
        }
    }

    /// Whether consumers have keys.
    pub(super) fn have_keys(&self) -> bool {
        self.0.values().any(|consumer| !consumer.keys.is_empty())
    }

    /// The consumers as limits have them, of which `anonymous` are those of requests without a key.
    pub(super) fn clients<'c>(&'c self, anonymous: BTreeSet<&'c str>) -> Clients<'c> {
        let plan =
            |(name, consumer): (&'c String, &'c Consumer)| Some((name.as_str(), consumer.groups.first()?.as_str()));
        let has_key = |(name, consumer): &(&String, &Consumer)| !consumer.keys.is_empty() && is_name(name);
        let keyed = self.0.iter().filter(has_key).map(|(name, _)| name.as_str());
        Clients { keyed: keyed.collect(), plans: self.0.iter().filter_map(plan).collect(), anonymous }
    }

    /// Writes the identity of the consumers, and notes their keys. `plugins` are the instances of `key-auth`, of which all routes
    /// have one that takes no request without a key, or not.
    pub(super) fn write(self, plugins: &[&Plugin<'_>], requires_all: bool, draft: &mut Draft) {
        if plugins.is_empty() || !self.have_keys() {
            let places = plugins.iter().map(|plugin| plugin.node.place).chain(self.0.values().map(|one| one.place));
            return places
                .for_each(|place| draft.left_out(place, "create keys by `weir apikeys new`, and set `[identity]`"));
        }
        let configs: Vec<_> = plugins.iter().filter_map(|plugin| plugin.node.get("config")).collect();
        let names = configs.iter().flat_map(|config| config.words("key_names"));
        let mut names: Vec<_> = names.map(|name| name.to_ascii_lowercase()).collect();
        names.dedup();
        let field = names.first().map_or(KEY_FIELD, String::as_str);
        let forwards = !configs.iter().any(|config| config.is_true("hide_credentials"));
        let (field_text, file) = (quoted(field), quoted(&draft.keys_file().to_string_lossy()));
        let keys = format!("{{ header = {field_text}, file = {file}, forward = {forwards} }}");
        for plugin in plugins {
            let config = plugin.node.get("config");
            if config.is_none_or(|config| config.number("key_in_query") != Some(false)) || names.len() > 1 {
                draft.differs(plugin.node.place, format!("Weir takes keys in the field `{field}` only"));
            }
        }
        let block = Block::new(format!("[identity.{IDENTITY}]"), plugins.iter().map(|plugin| plugin.node.place));
        let block = block.option("api_keys", keys);
        draft.push(if requires_all { block } else { block.option("on_missing", quoted("ip")) });
        if self.0.values().any(|consumer| !consumer.groups.is_empty()) {
            draft.push(Block::new("[plans]", []).option("from", quoted(&format!("{IDENTITY}.plan"))));
        }
        for (name, consumer) in self.0 {
            let is_anonymous = consumer.keys.is_empty() && plugins.iter().any(|plugin| plugin.anonymous == name);
            if !is_anonymous {
                consumer.write(name, draft);
            }
        }
    }
}

impl Consumer {
    fn write(self, name: String, draft: &mut Draft) {
        let (good, bad): (Vec<_>, Vec<_>) = self.keys.into_iter().partition(|key| is_adoptable(key.as_bytes()));
        if !bad.is_empty() {
            draft.left_out(self.place, "a key has not 16 to 512 visible characters; give the consumer another one");
        }
        if self.groups.len() > 1 {
            draft.differs(self.place, "the consumer has the plan of its first group only");
        }
        if !is_name(&name) || self.groups.first().is_some_and(|group| !is_name(group)) {
            return draft.left_out(self.place, "the name cannot be that of an owner of keys in Weir");
        }
        if good.is_empty() && bad.is_empty() {
            return draft.left_out(self.place, "the consumer has no key that Weir can verify");
        }
        let key = |key: String| ApiKey {
            digest: digest_of(key.as_bytes()),
            created: Timestamp::default(),
            expires: None,
            overlap_ends: None,
        };
        draft.api_keys.push(KeyOwner {
            name: name.into(),
            plan: self.groups.first().map(|group| group.as_str().into()),
            is_disabled: false,
            keys: good.into_iter().map(key).collect(),
        });
    }
}

/// Keeps the keys and other secrets of a document out of comments and reports, also those of unknown consumers.
pub(super) fn hide_secrets(document: &Node, draft: &mut Draft) {
    const WORDS: [&str; 4] = ["password", "secret", "token", "private_key"];
    document.hide_members(&|name| name == "key" || WORDS.iter().any(|word| name.contains(word)), draft);
}
