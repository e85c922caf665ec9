//! Names of the entities of Kong. Plugins and lists refer to an entity by its name or by its id.

use std::collections::BTreeMap;

use crate::import::yaml::Node;

/// The name of each entity, by its kind and by its name or its id.
#[derive(Default)]
pub(super) struct Names(BTreeMap<(&'static str, String), String>);

impl Names {
    /// Reads the entities of a document.
    pub(super) fn read(&mut self, document: &Node) {
        let services = document.list("services");
        for service in services {
            self.add("service", service, name_of(service));
        }
        for route in services.iter().flat_map(|service| service.list("routes")).chain(document.list("routes")) {
            self.add("route", route, name_of(route));
        }
        for consumer in document.list("consumers") {
            self.add("consumer", consumer, consumer_name_of(consumer).to_owned());
            // A file may leave out the list of groups.
            for group in consumer.list("groups") {
                let text = Some(group.word("name")).filter(|name| !name.is_empty()).unwrap_or_else(|| group.text());
                self.0.entry(("consumer_group", text.to_owned())).or_insert_with(|| text.to_owned());
            }
        }
        for group in document.list("consumer_groups") {
            self.add("consumer_group", group, group.word("name").to_owned());
        }
    }

    fn add(&mut self, kind: &'static str, node: &Node, name: String) {
        self.0.insert((kind, node.word("id").to_owned()), name.clone());
        self.0.insert((kind, name.clone()), name);
    }

    /// The name of the entity that the member `kind` of `node` refers to; empty without this member.
    ///
    /// # Errors
    /// The reason why there is no such entity.
    pub(super) fn reference(&self, node: &Node, kind: &'static str) -> Result<&str, String> {
        node.get(kind).map_or(Ok(""), |reference| self.resolve(kind, reference))
    }

    /// The name of the entity that `reference` is, a text or a table.
    ///
    /// # Errors
    /// The reason why there is no such entity.
    pub(super) fn resolve(&self, kind: &'static str, reference: &Node) -> Result<&str, String> {
        let words = ["id", "name", "username", "custom_id"].map(|member| reference.word(member));
        let mut texts = words.into_iter().chain([reference.text()]).filter(|text| !text.is_empty());
        let known = texts.find_map(|text| self.0.get(&(kind, text.to_owned()))).filter(|name| !name.is_empty());
        known.map(String::as_str).ok_or_else(|| format!("the file has no such `{kind}`"))
    }
}

/// The name of a service or a route, or its line.
pub(super) fn name_of(node: &Node) -> String {
    match node.word("name") {
        "" => format!("line-{}", node.place.line),
        name => name.to_owned(),
    }
}

/// The name of a consumer.
pub(super) fn consumer_name_of(node: &Node) -> &str {
    Some(node.word("username")).filter(|name| !name.is_empty()).unwrap_or_else(|| node.word("custom_id"))
}
