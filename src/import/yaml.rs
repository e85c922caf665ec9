//! Reads YAML into trees whose nodes remember whether a format has read them.
//!
//! A format takes the members that it knows. [`Node::report`] then notes all others, so no member is ignored silently.
//! Not here: the meaning of a member.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::str::FromStr;

use granit_parser::{Event, Parser, ScalarStyle};

use super::draft::{Draft, SourceLine};
use super::report::{ImportError, Kind};

/// The most nodes of a file, each counted as often as aliases repeat it, and the deepest nesting.
const NODES_MAX: usize = 1_000_000;
const DEPTH_MAX: usize = 128;

/// A value of YAML.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The line of its name, or of itself in a list.
    pub(super) place: SourceLine,
    value: NodeValue,
    is_read: Cell<bool>,
    nodes: usize,
    depth: usize,
}

#[derive(Debug, Default)]
enum NodeValue {
    #[default]
    Null,
    Text(String),
    List(Vec<Rc<Node>>),
    Table(Vec<(String, Rc<Node>)>),
}

/// Reasons for the members that a format does not read, by their names.
pub(super) struct Reasons {
    /// Names of members that change no decision.
    pub(super) not_needed: &'static str,
    pub(super) left_out: &'static [(&'static str, &'static str)],
}

impl Reasons {
    fn of(&self, name: &str) -> (Kind, &'static str) {
        if self.not_needed.split_whitespace().any(|known| known == name) {
            return (Kind::NotNeeded, "it changes no decision about requests");
        }
        let reason = self.left_out.iter().find(|(known, _)| *known == name);
        (Kind::LeftOut, reason.map_or("Weir has no option for it", |(_, reason)| reason))
    }
}

impl Node {
    /// The member `name` of a table. One that is `null` counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|member| is_set(member, name)).map(|(_, node)| &**node)
    }

    /// Whether a table has the member `name`. Reads nothing.
    pub(super) fn has(&self, name: &str) -> bool {
        matches!(&self.value, NodeValue::Table(members) if members.iter().any(|member| is_set(member, name)))
    }

    /// The member at the end of this path of names.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// All members of a table, with their names.
    pub(super) fn members(&self) -> &[(String, Rc<Self>)] {
        let NodeValue::Table(members) = &self.value else { return &[] };
        self.is_read.set(true);
        members
    }

    /// The items of a list.
    pub(super) fn items(&self) -> &[Rc<Self>] {
        let NodeValue::List(items) = &self.value else { return &[] };
        self.is_read.set(true);
        items
    }

    /// The text of a scalar; empty for any other value.
    pub(super) fn text(&self) -> &str {
        let NodeValue::Text(text) = &self.value else { return "" };
        self.is_read.set(true);
        text
    }

    /// The items of the member `name`.
    pub(super) fn list(&self, name: &str) -> &[Rc<Self>] {
        self.get(name).map_or(&[], Self::items)
    }

    /// The text of the member `name`.
    pub(super) fn word(&self, name: &str) -> &str {
        self.get(name).map_or("", Self::text)
    }

    /// The texts of the items of the member `name`.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        self.list(name).iter().map(|item| item.text().to_owned()).collect()
    }

    /// The member `name` as a value of this type; `None` if it is absent. One that is no such value stays unread.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        let member = self.get(name)?;
        let NodeValue::Text(text) = &member.value else { return None };
        let number = text.parse().ok()?;
        member.is_read.set(true);
        Some(number)
    }

    /// The member `name` as a boolean; `false` if it is absent or none.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.number(name).unwrap_or(false)
    }

    pub(super) fn is_read(&self) -> bool {
        self.is_read.get()
    }

    /// Marks the node and all below it as read.
    pub(super) fn skip(&self) {
        self.is_read.set(true);
        match &self.value {
            NodeValue::Null | NodeValue::Text(_) => {}
            NodeValue::List(items) => items.iter().for_each(|item| item.skip()),
            NodeValue::Table(members) => members.iter().for_each(|(_, member)| member.skip()),
        }
    }

    /// Keeps the lines of members with such names, and of all below them, out of comments and reports. Reads nothing.
    pub(super) fn hide_members(&self, is_secret: &dyn Fn(&str) -> bool, draft: &mut Draft) {
        match &self.value {
            NodeValue::Null | NodeValue::Text(_) => {}
            NodeValue::List(items) => items.iter().for_each(|item| item.hide_members(is_secret, draft)),
            NodeValue::Table(members) => {
                for (name, member) in members {
                    if is_secret(name) {
                        member.hide(draft);
                    } else {
                        member.hide_members(is_secret, draft);
                    }
                }
            }
        }
    }

    fn hide(&self, draft: &mut Draft) {
        match &self.value {
            NodeValue::Null => return,
            NodeValue::Text(_) => {}
            NodeValue::List(items) => items.iter().for_each(|item| item.hide(draft)),
            NodeValue::Table(members) => members.iter().for_each(|(_, member)| member.hide(draft)),
        }
        draft.hide(self.place);
    }

    /// Notes the node, and marks it and all below it as read.
    pub(super) fn left_out(&self, why: impl Into<String>, draft: &mut Draft) {
        draft.left_out(self.place, why);
        self.skip();
    }

    /// Notes all nodes that are not read, each with the reason of the member that it is in.
    pub(super) fn report(&self, reasons: &Reasons, draft: &mut Draft) {
        self.report_as("", reasons, draft);
    }

    fn report_as(&self, name: &str, reasons: &Reasons, draft: &mut Draft) {
        if !self.is_read() {
            let (kind, why) = reasons.of(name);
            return draft.note(
                kind,
                self.place,
                if name.is_empty() { why.to_owned() } else { format!("`{name}`: {why}") },
            );
        }
        match &self.value {
            NodeValue::Null | NodeValue::Text(_) => {}
            NodeValue::List(items) => items.iter().for_each(|item| item.report_as(name, reasons, draft)),
            NodeValue::Table(members) => members.iter().for_each(|(name, node)| {
                if !matches!(node.value, NodeValue::Null) {
                    node.report_as(name, reasons, draft);
                }
            }),
        }
    }
}

/// Whether a member has this name, and a value other than `null`.
fn is_set((known, node): &(String, Rc<Node>), name: &str) -> bool {
    known == name && !matches!(node.value, NodeValue::Null)
}

/// A list or a table that has not ended.
struct Open {
    node: Node,
    anchor: usize,
    /// The name of the next member, and its place.
    name: Option<(String, SourceLine)>,
}

/// Reads the documents of the first file of `draft`.
///
/// # Errors
/// The file is not YAML, or has too many or too deep nodes.
pub(super) fn read(draft: &Draft) -> Result<Vec<Rc<Node>>, ImportError> {
    let fail = |line, what: &str| ImportError(format!("{}: {what}", draft.name_of(SourceLine { file: 0, line })));
    let mut documents = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut anchors = HashMap::new();
    for event in Parser::new_from_str(draft.text(0)) {
        let (event, span) = event.map_err(|error| fail(error.marker().line(), &error.info()))?;
        let place = SourceLine { file: 0, line: span.start.line() };
        let new = |value| Node { place, value, nodes: 1, depth: 1, ..Node::default() };
        let (ended, anchor) = match event {
            Event::SequenceStart(_, anchor, _) => {
                open.push(Open { node: new(NodeValue::List(Vec::new())), anchor, name: None });
                continue;
            }
            Event::MappingStart(_, anchor, _) => {
                open.push(Open { node: new(NodeValue::Table(Vec::new())), anchor, name: None });
                continue;
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && ["", "~", "null"].contains(&&*text);
                let node = new(if is_null { NodeValue::Null } else { NodeValue::Text(text.into_owned()) });
                (with_place_of(node, &open), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { node, anchor, .. }) = open.pop() else { continue };
                (with_place_of(node, &open), anchor)
            }
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(node) => (Rc::clone(node), 0),
                None => return Err(fail(place.line, "an alias of a value that has not ended")),
            },
            _ => continue,
        };
        if anchor > 0 {
            anchors.insert(anchor, Rc::clone(&ended));
        }
        let Some(parent) = open.last_mut() else {
            documents.push(ended);
            continue;
        };
        parent.node.nodes = parent.node.nodes.saturating_add(ended.nodes);
        parent.node.depth = parent.node.depth.max(ended.depth + 1);
        if parent.node.nodes > NODES_MAX || parent.node.depth > DEPTH_MAX {
            return Err(fail(place.line, "there are too many values"));
        }
        match (&mut parent.node.value, parent.name.take()) {
            (NodeValue::Table(members), Some((name, _))) => members.push((name, ended)),
            (NodeValue::Table(_), None) => parent.name = Some((key(&ended), ended.place)),
            (NodeValue::List(items), _) => items.push(ended),
            _ => {}
        }
    }
    Ok(documents)
}

/// The node at the place of its name, if it is a member of a table.
fn with_place_of(mut node: Node, open: &[Open]) -> Rc<Node> {
    node.place = open.last().and_then(|parent| parent.name.as_ref()).map_or(node.place, |(_, place)| *place);
    Rc::new(node)
}

/// The name of a member. A table has no member whose name is not a text.
fn key(node: &Node) -> String {
    if let NodeValue::Text(text) = &node.value { text.clone() } else { String::new() }
}
