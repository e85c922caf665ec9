//! SipHash-1-3 with 128 bits of output, over whole words.
//!
//! The compression, the finalisation and the constants are those of Aumasson and Bernstein (2012) and of their
//! 128-bit variant. What differs is the end of a message: there is no last
//! block with the length, so an address is one block and not two. That is as good where no message is the
//! beginning of another, which is the caller's to see to.

/// A hash in progress.
#[derive(Clone, Copy)]
pub(crate) struct SipHasher {
    state: [u64; 4],
}

impl SipHasher {
    /// A hash of no words yet, under a secret of 16 bytes.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let secret = u128::from_le_bytes(secret);
        let [low, high] = halves(secret);
        Self {
            state: [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    /// The hash with one more word.
    #[inline]
    pub(crate) fn word(mut self, word: u64) -> Self {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
        self
    }

    /// The hash with these bytes as words, of which the last is filled up with zeros.
    #[inline]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self = self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self = self.word(u64::from_le_bytes(last));
        }
        self
    }

    /// Both halves of the hash.
    #[inline]
    pub(crate) fn finish(mut self) -> (u64, u64) {
        self.state[2] ^= 0xee;
        let first = self.mix();
        self.state[1] ^= 0xdd;
        (first, self.mix())
    }

    #[inline]
    fn mix(&mut self) -> u64 {
        self.round();
        self.round();
        self.round();
        self.state.iter().fold(0, |mixed, word| mixed ^ word)
    }

    #[inline]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.state;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v3 = v3.rotate_left(21) ^ v0;
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.state = [v0, v1, v2, v3];
    }
}

/// The lower and the upper word.
#[allow(clippy::cast_possible_truncation)] // that is what a half is
pub(crate) fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher13};

    use super::SipHasher;

    proptest! {
        /// A message whose length leaves room for itself in the last word has the same blocks in both.
        #[test]
        fn agrees_with_siphash_where_the_blocks_are_the_same(
            secret in any::<[u8; 16]>(), words in 0_usize..8, random in any::<[u8; 64]>(),
        ) {
            let message = &random[..words * 8 + 7];
            let mut theirs = SipHasher13::new_with_key(&secret);
            theirs.write(message);
            let theirs = theirs.finish128();
            let mut blocks = message.to_vec();
            blocks.push(u8::try_from(message.len()).unwrap());
            prop_assert_eq!(SipHasher::new(secret).bytes(&blocks).finish(), (theirs.h1, theirs.h2));
        }

        #[test]
        fn the_last_word_is_filled_with_zeros(secret in any::<[u8; 16]>(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut filled = bytes.clone();
            filled.resize(bytes.len().next_multiple_of(8), 0);
            let hasher = SipHasher::new(secret);
            prop_assert_eq!(hasher.bytes(&bytes).finish(), hasher.bytes(&filled).finish());
        }
    }
}
