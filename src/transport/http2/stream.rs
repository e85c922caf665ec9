//! The streams of a connection and their states (RFC 9113, section 5.1).

use std::collections::VecDeque;

use super::flow::{ReceiveWindow, SendWindow};

/// Names a stream for as long as its owner has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    slot: u32,
    id: u32,
}

impl Key {
    /// The identifier of the stream.
    pub fn id(self) -> u32 {
        self.id
    }
}

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Peer,
    Here,
}

/// A stream and what its owner keeps with it.
#[derive(Debug)]
pub(super) struct Stream<S> {
    pub(super) id: u32,
    /// The peer has not ended it.
    pub(super) is_receiving: bool,
    /// This side has not ended it.
    pub(super) is_sending: bool,
    /// Which side reset it first.
    pub(super) reset_by: Option<Side>,
    /// The head of the response was sent.
    pub(super) is_answered: bool,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    /// Bytes of the body that are to come, if the head says so.
    pub(super) body_remaining: Option<u64>,
    pub(super) owner: S,
}

impl<S> Stream<S> {
    /// Whether it counts for the bound of open streams.
    pub(super) fn is_open(&self) -> bool {
        self.reset_by.is_none() && (self.is_receiving || self.is_sending)
    }

    /// Whether something may be sent on it.
    pub(super) fn may_send(&self) -> bool {
        self.reset_by.is_none() && self.is_sending
    }
}

/// Slots that an idle connection keeps.
const IDLE_SLOTS_MAX: usize = 4;

/// Identifiers of ended streams that are remembered, so that late frames are told from mistakes.
const ENDED_MAX: usize = 128;

/// All streams that have an owner, and the identifiers of those that ended last.
#[derive(Debug)]
pub(super) struct Streams<S> {
    slots: Vec<Option<Stream<S>>>,
    free: Vec<u32>,
    /// Identifiers and slots; identifiers only grow.
    by_id: Vec<(u32, u32)>,
    ended: VecDeque<(u32, bool)>,
}

impl<S> Default for Streams<S> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_id: Vec::new(), ended: VecDeque::new() }
    }
}

impl<S> Streams<S> {
    /// How many have an owner.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.iter().filter(|stream| stream.is_open()).count()
    }

    /// Adds a stream; its identifier is larger than all before.
    pub(super) fn insert(&mut self, stream: Stream<S>) -> Key {
        let id = stream.id;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.slots[slot as usize] = Some(stream);
        self.by_id.push((id, slot));
        Key { slot, id }
    }

    /// The stream of this identifier.
    pub(super) fn find(&self, id: u32) -> Option<Key> {
        let at = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(Key { slot: self.by_id[at].1, id })
    }

    pub(super) fn get(&self, key: Key) -> Option<&Stream<S>> {
        self.slots.get(key.slot as usize)?.as_ref().filter(|stream| stream.id == key.id)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream<S>> {
        self.slots.get_mut(key.slot as usize)?.as_mut().filter(|stream| stream.id == key.id)
    }

    /// Removes a stream, and remembers how it ended.
    pub(super) fn remove(&mut self, key: Key) -> Option<Stream<S>> {
        let at = self.by_id.binary_search_by_key(&key.id, |(id, _)| *id).ok()?;
        let stream = self.slots.get_mut(key.slot as usize)?.take()?;
        self.by_id.remove(at);
        self.free.push(key.slot);
        if self.by_id.is_empty() && self.slots.capacity() > IDLE_SLOTS_MAX {
            (self.slots, self.free, self.by_id) = (Vec::new(), Vec::new(), Vec::new());
        }
        self.ended(key.id, stream.reset_by == Some(Side::Here));
        Some(stream)
    }

    /// Remembers a stream that has ended. After a reset from here, what the peer had sent before is still to come.
    pub(super) fn ended(&mut self, id: u32, is_late: bool) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, is_late));
    }

    /// Whether the stream ended a short time ago, and whether frames for it may be late.
    pub(super) fn end_of(&self, id: u32) -> Option<bool> {
        self.ended.iter().rev().find(|(ended, _)| *ended == id).map(|(_, is_late)| *is_late)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<S>> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream<S>> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32) -> Stream<()> {
        Stream {
            id,
            is_receiving: true,
            is_sending: true,
            reset_by: None,
            is_answered: false,
            send: SendWindow::new(0),
            receive: ReceiveWindow::new(0),
            body_remaining: None,
            owner: (),
        }
    }

    #[test]
    fn slots_are_used_again_and_old_keys_name_nothing() {
        let mut streams = Streams::default();
        let keys: Vec<_> = (0..5).map(|turn| streams.insert(stream(turn * 2 + 1))).collect();
        assert_eq!((streams.len(), streams.open(), streams.find(7)), (5, 5, Some(keys[3])));
        streams.get_mut(keys[1]).unwrap().reset_by = Some(Side::Here);
        assert_eq!((streams.len(), streams.open()), (5, 4));
        for key in &keys[1..3] {
            assert!(streams.remove(*key).is_some() && streams.remove(*key).is_none());
        }
        assert_eq!((streams.end_of(3), streams.end_of(5), streams.end_of(7)), (Some(true), Some(false), None));
        let next = streams.insert(stream(11));
        assert!([keys[1].slot, keys[2].slot].contains(&next.slot));
        assert!(streams.get(keys[2]).is_none() && streams.get(next).is_some());
        for key in [keys[0], keys[3], keys[4], next] {
            assert!(streams.remove(key).is_some());
        }
        assert_eq!((streams.len(), streams.slots.capacity()), (0, 0));
    }

    #[test]
    fn few_ends_are_remembered() {
        let mut streams = Streams::default();
        for turn in 0..1000 {
            let key = streams.insert(stream(turn * 2 + 1));
            streams.remove(key);
        }
        assert_eq!((streams.ended.len(), streams.end_of(1), streams.end_of(1999)), (ENDED_MAX, None, Some(false)));
        assert!(streams.slots.capacity() <= IDLE_SLOTS_MAX);
    }
}
