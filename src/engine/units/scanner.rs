//! A scanner of JSON (RFC 8259) that takes the text in pieces of any size, and keeps the values of some pointers.
//!
//! It accepts what `serde_json` accepts, and text that is no UTF-8 or has halves of surrogate pairs within strings:
//! programs that stream answers cut them anywhere. Of equal names in an object the last counts.

mod digits;
mod string;

use smallvec::SmallVec;

use self::digits::Digits;
use self::string::StringScanner;
use super::number::Number;
use super::pointers::{PointerTree, ROOT, Slot};

/// The deepest nesting of arrays and objects.
const DEPTH_MAX: u32 = 127;
/// The longest text of a number that is read. A pointer to a longer one finds no number.
const NUMBER_MAX: usize = 512;
/// The longest text of a string that is kept, in bytes.
const TEXT_MAX: usize = 256;

/// The value of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(Number),
    /// The number is negative, or its text too long; of requests also the text of a string.
    Unreadable,
    Text(Box<[u8]>),
    /// Only of requests.
    Boolean(bool),
    /// A value of another kind, or an unfinished one.
    Absent,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an array.
    FirstItem,
    /// A name, or the end of an object.
    FirstName,
    Name,
    Colon,
    /// A comma, or the end of the array or object.
    AfterItem,
    /// White space behind the document.
    End,
    String {
        is_name: bool,
    },
    Number(Digits),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
    /// The text is no JSON.
    Failed,
}

/// An open array or object on the way of a pointer.
#[derive(Clone, Copy, Debug)]
struct Level {
    node: usize,
    /// The elements of an array so far.
    index: u64,
}

/// The scanner of one document after another.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    /// Open arrays and objects.
    depth: u32,
    /// The bit of each depth: whether it is an object.
    objects: u128,
    /// Whether the document is an array whose elements are documents.
    is_list: bool,
    /// The levels that pointers lead through; those of a deeper level are not on the way of any.
    path: SmallVec<[Level; 8]>,
    /// The node of the value that comes next.
    node: Option<usize>,
    /// The slot of the number or string that is read.
    slot: Option<Slot>,
    /// The text of a name, number or string that is kept.
    text: Vec<u8>,
    string: StringScanner,
    /// The values of the document so far.
    current: Vec<Option<Value>>,
    /// The newest values of all documents.
    newest: Vec<Option<Value>>,
    /// Complete documents since the newest one with a number.
    since: u64,
    /// Of a request: the nodes whose values have begun.
    begun: Vec<bool>,
    /// Other readers may find other values: a name on the way of a pointer is repeated or has other letters.
    is_ambiguous: bool,
}

impl Scanner {
    pub(super) fn new(tree: &PointerTree) -> Self {
        Self {
            state: State::Value,
            depth: 0,
            objects: 0,
            is_list: false,
            path: SmallVec::new(),
            node: None,
            slot: None,
            text: Vec::new(),
            string: StringScanner::default(),
            current: vec![None; tree.slots],
            newest: vec![None; tree.slots],
            since: 0,
            begun: vec![false; tree.request_nodes()],
            is_ambiguous: false,
        }
    }

    /// The newest value of a pointer.
    pub(super) fn value(&self, slot: Slot) -> Option<&Value> {
        self.newest.get(slot)?.as_ref()
    }

    /// Complete documents since the newest one with a number.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Whether other readers may find other values.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Whether the text is no JSON.
    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Whether nothing of a document is read yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.state == State::Value && self.depth == 0
    }

    /// Takes a complete document without a number as read.
    pub(super) fn skip(&mut self) {
        self.since += 1;
    }

    /// Reads more of the document.
    pub(super) fn push(&mut self, tree: &PointerTree, bytes: &[u8]) {
        self.push_noting(tree, bytes, |_, _| {});
    }

    /// Reads more. Notes where in `bytes` each value outside arrays begins, with its node; the document has none.
    pub(super) fn push_noting(
        &mut self,
        tree: &PointerTree,
        mut bytes: &[u8],
        mut note: impl FnMut(Option<usize>, usize),
    ) {
        let len = bytes.len();
        while let [byte, rest @ ..] = bytes {
            bytes = match self.state {
                State::Failed => return,
                State::String { is_name } => self.read_string(tree, is_name, bytes),
                State::Number(digits) => self.read_number(digits, bytes),
                State::Literal(expected) => {
                    self.read_literal(expected, *byte);
                    rest
                }
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => rest,
                _ => {
                    if self.state == State::Value && (self.node.is_some() || self.depth == 0) {
                        note(self.node, len - bytes.len());
                    }
                    self.read_token(tree, *byte);
                    rest
                }
            };
        }
    }

    /// Ends the document, and begins the next. Returns whether the text was one document, or white space only.
    pub(super) fn end(&mut self) -> bool {
        if let State::Number(digits) = self.state
            && digits.may_end()
        {
            self.end_number();
        }
        let is_blank = self.is_fresh();
        let is_whole = self.state == State::End;
        (self.state, self.depth, self.is_list, self.node) = (State::Value, 0, false, None);
        self.path.clear();
        self.string = StringScanner::default(); // the document may have failed within a string
        self.current.fill(None);
        is_whole || is_blank
    }

    fn read_token(&mut self, tree: &PointerTree, byte: u8) {
        match (self.state, byte) {
            (State::FirstItem, b']') | (State::FirstName, b'}') => self.close(),
            (State::Value | State::FirstItem, _) => self.begin_value(tree, byte),
            (State::FirstName | State::Name, b'"') => {
                self.text.clear();
                self.state = State::String { is_name: true };
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterItem, b',') => self.state = if self.in_object() { State::Name } else { State::Value },
            (State::AfterItem, b'}') if self.in_object() => self.close(),
            (State::AfterItem, b']') if !self.in_object() => self.close(),
            _ => self.state = State::Failed,
        }
    }

    fn in_object(&self) -> bool {
        self.objects >> self.depth & 1 == 1
    }

    /// The depth of the values that are documents.
    fn top(&self) -> u32 {
        self.is_list.into()
    }

    /// The innermost open array or object, if it is on the way of a pointer.
    fn level(&mut self) -> Option<&mut Level> {
        let is_on_way = self.path.len() == (self.depth - self.top()) as usize;
        self.path.last_mut().filter(|_| is_on_way)
    }

    fn begin_value(&mut self, tree: &PointerTree, byte: u8) {
        if self.depth == 0 && byte == b'[' && !tree.points_into_array() {
            self.is_list = true;
            return self.open(false);
        }
        if self.depth == self.top() {
            self.node = Some(ROOT);
        } else if !self.in_object() {
            self.node = self.level().and_then(|level| {
                level.index += 1;
                tree.element(level.node, level.index - 1)
            });
        }
        if let Some(node) = self.node {
            self.is_ambiguous |= self.begun.get_mut(node).is_some_and(|begun| std::mem::replace(begun, true));
            tree.each_slot(node, &mut |slot| self.current[slot] = None);
        }
        self.text.clear();
        self.slot = self.node.and_then(|node| tree.slot(node));
        if let Some(slot) = self.slot {
            self.current[slot] = Some(match byte {
                b't' | b'f' if tree.is_request() => Value::Boolean(byte == b't'),
                _ => Value::Absent,
            });
        }
        self.state = match byte {
            b'{' | b'[' => {
                if let Some(node) = self.node.filter(|&node| tree.has_children(node)) {
                    self.path.push(Level { node, index: 0 });
                }
                return self.open(byte == b'{');
            }
            b'"' => State::String { is_name: false },
            b't' => State::Literal(b"rue"),
            b'f' => State::Literal(b"alse"),
            b'n' => State::Literal(b"ull"),
            b'-' => State::Number(Digits::Sign),
            b'0' => State::Number(Digits::Zero),
            b'1'..=b'9' => State::Number(Digits::Whole),
            _ => State::Failed,
        };
        if matches!(self.state, State::Number(_)) && self.slot.is_some() {
            self.text.push(byte);
        }
    }

    fn open(&mut self, is_object: bool) {
        if self.depth == DEPTH_MAX {
            self.state = State::Failed;
            return;
        }
        self.depth += 1;
        self.objects = self.objects & !(1 << self.depth) | u128::from(is_object) << self.depth;
        self.node = None;
        self.state = if is_object { State::FirstName } else { State::FirstItem };
    }

    fn close(&mut self) {
        if self.level().is_some() {
            self.path.pop();
        }
        self.depth -= 1;
        self.end_value();
    }

    /// Ends a value, and the document with it if it is one.
    fn end_value(&mut self) {
        self.node = None;
        self.state = if self.depth == 0 { State::End } else { State::AfterItem };
        if self.depth == self.top() && !(self.is_list && self.depth == 0) {
            self.commit();
        }
    }

    /// Takes the values of a complete document. One without a number replaces no text.
    fn commit(&mut self) {
        let is_number = |value: &Option<Value>| matches!(value, Some(Value::Number(_) | Value::Unreadable));
        let has_number = self.current.iter().any(is_number);
        self.since = if has_number { 0 } else { self.since + 1 };
        for (newest, current) in self.newest.iter_mut().zip(&mut self.current) {
            let value = current.take().filter(|value| *value != Value::Absent);
            if value.is_some() && (has_number || newest.is_none()) {
                *newest = value;
            }
        }
    }

    fn read_literal(&mut self, expected: &'static [u8], byte: u8) {
        match expected {
            [first, rest @ ..] if *first == byte && rest.is_empty() => self.end_value(),
            [first, rest @ ..] if *first == byte => self.state = State::Literal(rest),
            _ => self.state = State::Failed,
        }
    }

    fn read_number<'b>(&mut self, mut digits: Digits, bytes: &'b [u8]) -> &'b [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match digits.next(*byte) {
                Some(next) => digits = next,
                None if digits.may_end() => {
                    self.end_number();
                    return &bytes[at..];
                }
                None => {
                    self.state = State::Failed;
                    return &[];
                }
            }
            if self.slot.is_some() && self.text.len() <= NUMBER_MAX {
                self.text.push(*byte);
            }
        }
        self.state = State::Number(digits);
        &[]
    }

    fn end_number(&mut self) {
        if let Some(slot) = self.slot {
            let number = Some(&*self.text).filter(|text| text.len() <= NUMBER_MAX).and_then(Number::parse);
            self.current[slot] = Some(number.map_or(Value::Unreadable, Value::Number));
        }
        self.end_value();
    }

    /// Reads on in a string or a name, and returns what follows it.
    fn read_string<'b>(&mut self, tree: &PointerTree, is_name: bool, bytes: &'b [u8]) -> &'b [u8] {
        let level = if is_name { self.level().map(|level| level.node) } else { None };
        let kept = if is_name { level.map(|_| tree.longest) } else { self.slot.map(|_| TEXT_MAX) };
        // One byte more shows that a text is too long.
        let text = kept.map(|longest| (&mut self.text, longest + 1));
        let Some(read) = self.string.read(bytes, text) else {
            self.state = State::Failed;
            return &[];
        };
        let Some(rest) = read else { return &[] };
        if is_name {
            self.node = level.and_then(|node| tree.child(node, &self.text));
            self.is_ambiguous |= self.node.is_none() && level.is_some_and(|node| tree.has_alike(node, &self.text));
            self.state = State::Colon;
            return rest;
        }
        if let Some(slot) = self.slot {
            if self.text.len() <= TEXT_MAX {
                self.current[slot] = Some(Value::Text(self.text.as_slice().into()));
            } else if tree.is_request() {
                self.current[slot] = Some(Value::Unreadable);
            }
        }
        self.end_value();
        rest
    }
}
