//! JSON pointers (RFC 6901) as one tree, which is followed while a document passes.

use std::fmt;

use crate::base::fields::decimal;

/// The most segments of a pointer.
const SEGMENTS_MAX: usize = 16;
/// The most bytes of a segment.
const SEGMENT_BYTES_MAX: usize = 256;

/// A pointer to a value of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer(Vec<Box<str>>);

impl Pointer {
    /// Reads the text of a pointer.
    ///
    /// # Errors
    /// The text is no pointer, or too long.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(text) = text.strip_prefix('/') else {
            return Err("expected a JSON pointer, such as `/usage/total_tokens`");
        };
        let segments: Vec<_> = text.split('/').map(unescape).collect::<Result<_, _>>()?;
        let is_long = segments.len() > SEGMENTS_MAX || segments.iter().any(|segment| segment.len() > SEGMENT_BYTES_MAX);
        if is_long { Err("a JSON pointer has at most 16 names of at most 256 bytes") } else { Ok(Self(segments)) }
    }

    /// The name of the outermost member.
    pub(super) fn first_name(&self) -> &str {
        self.0.first().map_or("", |name| name)
    }

    /// A name of a member that is in all pointers, is no index, and stands in a document as it is or with `\u`.
    pub(super) fn common_name<'p>(pointers: &[&'p Self]) -> Option<&'p str> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let is_name = |name: &str| name.bytes().all(is_plain) && name.bytes().any(|byte| byte.is_ascii_alphabetic());
        let (first, others) = pointers.split_first()?;
        let is_common =
            |name: &str| is_name(name) && others.iter().all(|other| other.0.iter().any(|own| **own == *name));
        first.0.iter().map(|name| &**name).find(|name| is_common(name))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}

fn unescape(segment: &str) -> Result<Box<str>, &'static str> {
    let mut parts = segment.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_at_checked(1) {
            Some(("0", rest)) => text.extend(["~", rest]),
            Some(("1", rest)) => text.extend(["/", rest]),
            _ => return Err("in a JSON pointer, write `~` as `~0`, and `/` in a name as `~1`"),
        }
    }
    Ok(text.into())
}

/// The index of a pointer in its list.
pub(super) type Slot = usize;

/// All pointers of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PointerTree {
    nodes: Vec<Node>,
    /// The longest name, in bytes.
    pub(super) longest: usize,
    /// The number of slots.
    pub(super) slots: usize,
    /// The document is a request, whose service may read it in other ways.
    is_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    name: Box<[u8]>,
    /// The name as an index of an array.
    index: Option<u64>,
    children: Vec<usize>,
    slot: Option<Slot>,
}

/// The root of the tree.
pub(super) const ROOT: usize = 0;

impl PointerTree {
    /// The tree of `pointers`, whose positions are the slots. Equal pointers must stand once.
    pub(super) fn new<'p>(pointers: impl IntoIterator<Item = &'p Pointer>) -> Self {
        let root = Node { name: Box::default(), index: None, children: Vec::new(), slot: None };
        let mut tree = Self { nodes: vec![root], longest: 0, slots: 0, is_request: false };
        for pointer in pointers {
            let end = pointer.0.iter().fold(ROOT, |at, name| tree.child_or_new(at, name));
            tree.nodes[end].slot = Some(tree.slots);
            tree.slots += 1;
        }
        tree
    }

    /// The tree of `pointers` into requests: an array at the top is one value.
    pub(super) fn of_request<'p>(pointers: impl IntoIterator<Item = &'p Pointer>) -> Self {
        let tree = Self::new(pointers);
        // The longest character of which readers make an ASCII letter has three bytes.
        Self { longest: 3 * tree.longest, is_request: true, ..tree }
    }

    /// Whether the document is a request.
    pub(super) fn is_request(&self) -> bool {
        self.is_request
    }

    /// The nodes of a request; none of another document.
    pub(super) fn request_nodes(&self) -> usize {
        if self.is_request { self.nodes.len() } else { 0 }
    }

    /// Whether some readers take `name`, which is not that of a member, for one: Go ignores the case of letters.
    pub(super) fn has_alike(&self, at: usize, name: &[u8]) -> bool {
        let folded = |name: &[u8]| String::from_utf8_lossy(name).to_uppercase().to_lowercase();
        self.is_request && {
            let name = folded(name);
            self.nodes[at].children.iter().any(|&child| folded(&self.nodes[child].name) == name)
        }
    }

    fn child_or_new(&mut self, at: usize, name: &str) -> usize {
        if let Some(child) = self.child(at, name.as_bytes()) {
            return child;
        }
        let is_index = name == "0" || !name.starts_with('0');
        let index = decimal(name.as_bytes()).filter(|_| is_index);
        self.nodes.push(Node { name: name.as_bytes().into(), index, children: Vec::new(), slot: None });
        let child = self.nodes.len() - 1;
        self.nodes[at].children.push(child);
        self.longest = self.longest.max(name.len());
        child
    }

    /// The node of a member of an object.
    pub(super) fn child(&self, at: usize, name: &[u8]) -> Option<usize> {
        self.nodes[at].children.iter().copied().find(|&child| *self.nodes[child].name == *name)
    }

    /// The node of an element of an array.
    pub(super) fn element(&self, at: usize, index: u64) -> Option<usize> {
        self.nodes[at].children.iter().copied().find(|&child| self.nodes[child].index == Some(index))
    }

    /// Whether a pointer points to a value within that of the node.
    pub(super) fn has_children(&self, at: usize) -> bool {
        !self.nodes[at].children.is_empty()
    }

    /// Whether an array at the top of a document is one value. Otherwise each of its elements is a document.
    pub(super) fn points_into_array(&self) -> bool {
        self.is_request || self.nodes[ROOT].children.iter().any(|&child| self.nodes[child].index.is_some())
    }

    /// The slot of the value of a node.
    pub(super) fn slot(&self, at: usize) -> Option<Slot> {
        self.nodes[at].slot
    }

    /// Calls `each` with the slots of a node and of all below it.
    pub(super) fn each_slot(&self, at: usize, each: &mut impl FnMut(Slot)) {
        let node = &self.nodes[at];
        node.slot.iter().for_each(|slot| each(*slot));
        node.children.iter().for_each(|child| self.each_slot(*child, each));
    }
}
