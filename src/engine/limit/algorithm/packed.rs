//! Any state as bytes: the number of its algorithm, and the bytes of the state.

use super::{AnyState, Several};
use crate::engine::limit::{Packed, Unpacker};

impl AnyState {
    /// The number of the algorithm in stored bytes. A number is never reused.
    const fn tag(&self) -> u8 {
        match self {
            Self::TokenBucket(_) => 1,
            Self::LeakyBucket(_) => 2,
            Self::FixedWindow(_) => 3,
            Self::SlidingLog(_) => 4,
            Self::SlidingWindow(_) => 5,
            Self::SubWindow(_) => 6,
            Self::Concurrency(_) => 7,
            Self::Several(_) => 8,
        }
    }
}

impl Packed for AnyState {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.tag());
        match self {
            Self::TokenBucket(state) => state.pack(bytes),
            Self::LeakyBucket(state) => state.pack(bytes),
            Self::FixedWindow(state) => state.pack(bytes),
            Self::SlidingLog(state) => state.pack(bytes),
            Self::SlidingWindow(state) => state.pack(bytes),
            Self::SubWindow(state) => state.pack(bytes),
            Self::Concurrency(state) => state.pack(bytes),
            Self::Several(several) => {
                bytes.push(u8::try_from(several.states.len()).unwrap_or(u8::MAX));
                several.states.iter().for_each(|state| state.pack(bytes));
            }
        }
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        unpack(from, true)
    }
}

/// Unpacks a state. [`AnyState::Several`] never contains itself.
fn unpack(from: &mut Unpacker<'_>, may_be_several: bool) -> Option<AnyState> {
    Some(match from.u8()? {
        1 => AnyState::TokenBucket(Packed::unpack(from)?),
        2 => AnyState::LeakyBucket(Packed::unpack(from)?),
        3 => AnyState::FixedWindow(Packed::unpack(from)?),
        4 => AnyState::SlidingLog(Packed::unpack(from)?),
        5 => AnyState::SlidingWindow(Packed::unpack(from)?),
        6 => AnyState::SubWindow(Packed::unpack(from)?),
        7 => AnyState::Concurrency(Packed::unpack(from)?),
        8 if may_be_several => {
            let states: Option<Box<[_]>> = (0..from.u8()?).map(|_| unpack(from, false)).collect();
            AnyState::Several(Several { states: states? })
        }
        _ => return None,
    })
}
