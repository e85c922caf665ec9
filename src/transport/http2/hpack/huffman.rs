//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: the lengths decide it. Codes of one length are consecutive numbers in the order of their
//! symbols. Weir decodes only; what it encodes is plain.

/// Bits of each symbol's code. The code of the end of the string has 30 bits, all of them ones.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26,
];

/// Bits of the longest code.
const BITS_MAX: u32 = 30;

/// Bits that the table of short codes is indexed by; nearly all text has codes of 5 to 8 bits.
const SHORT_BITS: u32 = 11;

/// A code of the short table: the symbol, and its bits above it; 0 if the code is longer.
const SHORT: [u16; 1 << SHORT_BITS] = short();

/// All symbols by the length of their code, then by number.
const BY_CODE: [u8; 256] = by_code();

/// For each length: the first code, and where its symbol stands in [`BY_CODE`].
const FIRST: [(u32, u32); BITS_MAX as usize + 2] = first();

const fn by_code() -> [u8; 256] {
    let (mut symbols, mut at, mut bits) = ([0; 256], 0, 1);
    while bits <= BITS_MAX {
        let mut symbol = 0_u8;
        loop {
            if LENGTHS[symbol as usize] as u32 == bits {
                symbols[at] = symbol;
                at += 1;
            }
            if symbol == u8::MAX {
                break;
            }
            symbol += 1;
        }
        bits += 1;
    }
    symbols
}

const fn first() -> [(u32, u32); BITS_MAX as usize + 2] {
    let mut first = [(0, 0); BITS_MAX as usize + 2];
    let (mut code, mut at, mut bits) = (0, 0, 1);
    while bits <= BITS_MAX {
        first[bits as usize] = (code, at);
        while at < 256 && LENGTHS[BY_CODE[at as usize] as usize] as u32 == bits {
            code += 1;
            at += 1;
        }
        code <<= 1;
        bits += 1;
    }
    first[bits as usize] = (code, at);
    first
}

const fn short() -> [u16; 1 << SHORT_BITS] {
    let mut table = [0; 1 << SHORT_BITS];
    let (mut at, mut code) = (0, 0_usize);
    let mut bits = LENGTHS[BY_CODE[0] as usize] as u32;
    while at < 256 {
        let symbol = BY_CODE[at];
        let len = LENGTHS[symbol as usize] as u32;
        if len > SHORT_BITS {
            break;
        }
        code <<= len - bits;
        bits = len;
        let (mut entry, end) = (code << (SHORT_BITS - bits), (code + 1) << (SHORT_BITS - bits));
        while entry < end {
            table[entry] = u16::from_be_bytes([LENGTHS[symbol as usize], symbol]);
            entry += 1;
        }
        code += 1;
        at += 1;
    }
    table
}

/// A string that no text encodes to (RFC 7541, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoText;

/// Appends the text of `coded` to `out`: at most 8/5 of its length.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), NoText> {
    out.reserve(coded.len() * 8 / 5);
    let (mut source, mut word, mut bits) = (coded.iter(), 0_u64, 0_u32);
    loop {
        while bits < BITS_MAX {
            let Some(byte) = source.next() else { break };
            word = word << 8 | u64::from(*byte);
            bits += 8;
        }
        // The next 30 bits, with ones behind the end, as the padding has them.
        let missing = BITS_MAX.saturating_sub(bits);
        let next = (word << missing | ((1 << missing) - 1)) >> (bits + missing - BITS_MAX);
        let next = u32::try_from(next & ((1 << BITS_MAX) - 1)).unwrap_or(0);
        let (symbol, len) = symbol(next);
        if len <= bits {
            out.push(symbol.ok_or(NoText)?);
            bits -= len;
            continue;
        }
        // Less than a byte of ones.
        let padding = (1 << bits) - 1;
        return if bits < 8 && word & padding == padding { Ok(()) } else { Err(NoText) };
    }
}

/// The symbol at the front of 30 bits, and its length; none for the end of the string.
fn symbol(next: u32) -> (Option<u8>, u32) {
    let short = SHORT[(next >> (BITS_MAX - SHORT_BITS)) as usize];
    if short != 0 {
        let [len, symbol] = short.to_be_bytes();
        return (Some(symbol), len.into());
    }
    for bits in SHORT_BITS + 1..=BITS_MAX {
        let ((first, at), (_, next_at)) = (FIRST[bits as usize], FIRST[bits as usize + 1]);
        let offset = (next >> (BITS_MAX - bits)).wrapping_sub(first);
        if offset < next_at - at {
            return (Some(BY_CODE[(at + offset) as usize]), bits);
        }
    }
    (None, BITS_MAX)
}

/// Appends the code of `text`.
#[cfg(test)]
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut word, mut bits) = (0_u64, 0);
    for &symbol in text {
        let len = LENGTHS[usize::from(symbol)];
        let (first, at) = FIRST[usize::from(len)];
        let rank = BY_CODE.iter().position(|&other| other == symbol).unwrap_or(0);
        word = word << len | u64::from(first + u32::try_from(rank).unwrap_or(0) - at);
        bits += u32::from(len);
        while bits >= 8 {
            bits -= 8;
            out.push((word >> bits & 0xff) as u8);
        }
    }
    if bits > 0 {
        out.push((word << (8 - bits) & 0xff) as u8 | ((1 << (8 - bits)) - 1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, NoText> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        for (coded, expected) in [
            (&b""[..], Ok(&b""[..])),
            (&[0x07], Ok(b"0")), // 00000 111
            (&[0x06], Err(NoText)),
            (&[0x07, 0xff], Err(NoText)),
            (&[0xff], Err(NoText)),
            (&[0xff, 0xff, 0xff, 0xff], Err(NoText)), // the end of the string
            (&[0xff, 0xff, 0xff, 0xfc], Err(NoText)),
            (&[0xff, 0xc7], Ok(b"\0")), // 1111111111000 111
        ] {
            assert_eq!(decoded(coded).as_deref().map_err(|fault| *fault), expected, "{coded:02x?}");
        }
    }

    #[test]
    fn every_symbol_has_a_code() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let mut coded = Vec::new();
        encode(&all, &mut coded);
        assert_eq!(decoded(&coded), Ok(all));
    }

    proptest! {
        #[test]
        fn text_is_decoded_as_it_was_encoded(text in any::<Vec<u8>>()) {
            let mut coded = Vec::new();
            encode(&text, &mut coded);
            prop_assert_eq!(decoded(&coded), Ok(text));
        }

        #[test]
        fn anything_is_text_or_not(coded in any::<Vec<u8>>()) {
            if let Ok(text) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                prop_assert_eq!(again, coded);
            }
        }
    }
}
