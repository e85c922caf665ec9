//! States that a replica asks a peer for. They come part by part: each is asked for when the one before is there, so the
//! peer remembers nothing.

use super::message::{Cursor, States};
use crate::base::time::Timestamp;

/// The part that is wanted, and those after it.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The next part; `None` once all are there.
    wanted: Option<Cursor>,
    /// When the part is to be asked for, again if it was before.
    ask_at: Timestamp,
}

impl Parts {
    /// The parts from `first` on.
    pub(super) fn from(first: Cursor) -> Self {
        Self { wanted: Some(first), ..Self::default() }
    }

    /// Whether not all parts are there.
    pub(super) fn is_open(&self) -> bool {
        self.wanted.is_some()
    }

    /// Has the parts from `first` on asked for, unless those on the way contain them.
    pub(super) fn want(&mut self, first: Cursor) {
        if self.wanted.as_ref().is_none_or(|wanted| position(wanted) > position(&first)) {
            self.wanted = Some(first);
        }
    }

    /// The part that is to be asked for at `now`. It is asked for again after `again_ns`.
    pub(super) fn ask(&mut self, again_ns: u64, now: Timestamp) -> Option<Cursor> {
        let wanted = self.wanted.clone().filter(|_| self.ask_at <= now)?;
        self.ask_at = now.saturating_add_ns(again_ns);
        Some(wanted)
    }

    /// Notes that a part has come, after which `next` is wanted. Returns whether it was asked for.
    pub(super) fn take(&mut self, part: &States, next: Option<&Cursor>, now: Timestamp) -> bool {
        let Some(at) = part.at.as_ref().filter(|at| self.wanted.as_ref() == Some(*at)) else { return false };
        // A part that leads back would be asked for forever.
        self.wanted = next.filter(|next| position(next) > position(at)).cloned();
        if self.wanted.is_some() {
            self.ask_at = now;
        }
        true
    }
}

fn position(cursor: &Cursor) -> (&str, u64, u64) {
    (&cursor.limit, cursor.bans, cursor.from)
}
