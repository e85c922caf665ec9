//! An answer that is recorded on its way to a client, and stored once it is complete.

use std::sync::Arc;

use http::HeaderName;
use smallvec::SmallVec;

use super::answer::StoredAnswer;
use super::cache::AnswerCache;
use super::reservation::Reservation;
use super::rules;
use crate::base::fields::{FieldBuf, Fields};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;

/// An answer that may be stored.
pub(crate) struct NewAnswer<'a> {
    /// The fields that clients get, without those about limits and connections.
    pub(crate) fields: FieldBuf,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
    /// The fields of the request.
    pub(crate) request: Fields<'a>,
    /// The key of its resource.
    pub(crate) resource: Key,
    /// When its head arrived.
    pub(crate) at: Timestamp,
}

/// See the [module](self). Dropped before the end of the body, it stores nothing.
#[derive(Debug)]
pub(crate) struct Recording {
    answer: StoredAnswer,
    /// The key of the answer in each cache, in the order of its reservations.
    caches: SmallVec<[(Arc<AnswerCache>, Key); 1]>,
    /// The bytes that it takes of those for recordings, until it ends.
    recorded: SmallVec<[Reservation; 1]>,
    max_body: usize,
}

impl Recording {
    /// Begins to record an answer for `caches`. `None` if no later request could get it, or there is no room. `is_own`
    /// tells which fields of a request Weir writes itself.
    pub(crate) fn begin(
        new: NewAnswer<'_>,
        caches: &[(&Arc<AnswerCache>, Key)],
        is_own: impl Fn(&HeaderName) -> bool,
    ) -> Option<Box<Self>> {
        let NewAnswer { mut fields, length, request, resource, at } = new;
        let max_body = caches.iter().map(|(cache, _)| cache.max_body()).min()?;
        let length = usize::try_from(length.unwrap_or(0)).ok().filter(|length| *length <= max_body)?;
        let is_secret = ["set-cookie", "set-cookie2"].iter().any(|name| fields.fields().contains(name));
        if is_secret || rules::forbids_storage(request) || rules::forbids_storage(fields.fields()) {
            return None;
        }
        fields.shrink();
        let varied = rules::varied(fields.fields(), request, is_own)?;
        let (is_private, body, reserved) = (request.contains("authorization"), Vec::new(), SmallVec::new());
        let mut answer = StoredAnswer { fields, body, varied, is_private, at, resource, reserved };
        rules::reuse(&answer, answer.varied.fields(), at)?;
        let bytes = answer.bytes_with(length);
        let recorded = caches.iter().map(|(cache, _)| cache.reserve_recording(bytes)).collect::<Option<_>>()?;
        answer.reserved = caches.iter().map(|(cache, _)| cache.reserve(bytes)).collect::<Option<_>>()?;
        answer.body.reserve_exact(length);
        let caches = caches.iter().map(|(cache, key)| (Arc::clone(cache), *key)).collect();
        Some(Box::new(Self { answer, caches, recorded, max_body }))
    }

    /// Adds a piece of the body. Returns false if it is too long, and the recording of no use.
    pub(crate) fn push(&mut self, piece: &[u8]) -> bool {
        let (len, capacity) = (self.answer.body.len() + piece.len(), self.answer.body.capacity());
        if len > self.max_body {
            return false;
        }
        if len > capacity {
            let room = len.max(2 * capacity).min(self.max_body);
            let bytes = self.answer.bytes_with(room);
            let mut recorded = self.caches.iter().zip(&mut self.recorded);
            if !recorded.all(|((cache, _), recorded)| cache.resize_recording(recorded, bytes)) || !self.resize(room) {
                return false;
            }
            self.answer.body.reserve_exact(room - self.answer.body.len());
        }
        self.answer.body.extend_from_slice(piece);
        true
    }

    /// Stores the answer, whose body is complete.
    pub(crate) fn finish(mut self) {
        self.answer.body.shrink_to_fit();
        self.resize(self.answer.body.len());
        let answer = Arc::new(self.answer);
        self.caches.iter().for_each(|(cache, key)| cache.insert(*key, Arc::clone(&answer)));
    }

    /// Takes the bytes for a body of `body` bytes.
    fn resize(&mut self, body: usize) -> bool {
        let bytes = self.answer.bytes_with(body);
        let mut both = self.caches.iter().zip(&mut self.answer.reserved);
        both.all(|((cache, _), reserved)| cache.resize(reserved, bytes))
    }
}
