//! The settings of both sides (RFC 9113, section 6.5).

use super::error::{ErrorCode, Fatal};
use super::flow::WINDOW_MAX;
use super::frame::PAYLOAD_MAX_SETTING;

/// What a connection may spend, and what it offers.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Streams open at once.
    pub max_streams: u32,
    /// Bytes of a head, as RFC 9113, section 6.5.2, counts them.
    pub max_head_bytes: usize,
    /// Fields of a head.
    pub max_fields: usize,
    /// Whether a CONNECT may name a protocol (RFC 8441).
    pub takes_protocol: bool,
}

const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// The largest value of `SETTINGS_MAX_FRAME_SIZE`.
const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;

impl Config {
    /// What the peer is told. All other settings have their initial values.
    pub(super) fn settings(&self) -> impl Iterator<Item = (u16, u32)> {
        let list_max = u32::try_from(self.max_head_bytes).unwrap_or(u32::MAX);
        let connect = self.takes_protocol.then_some((ENABLE_CONNECT_PROTOCOL, 1));
        [(MAX_CONCURRENT_STREAMS, self.max_streams), (MAX_HEADER_LIST_SIZE, list_max)].into_iter().chain(connect)
    }
}

/// The send window of new streams, `window` so far, after SETTINGS with this payload, whose length is a multiple of 6.
/// Nothing else that the peer sets matters to a server without a dynamic table and without push.
pub(super) fn initial_window(mut window: u32, payload: &[u8]) -> Result<u32, Fatal> {
    for &[a, b, c, d, e, f] in payload.as_chunks::<6>().0 {
        let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
        match id {
            ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(PROTOCOL),
            INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                return Err(Fatal::new(ErrorCode::FlowControl, "an initial window that is too large"));
            }
            INITIAL_WINDOW_SIZE => window = value,
            MAX_FRAME_SIZE if !(PAYLOAD_MAX_SETTING..=FRAME_SIZE_MAX).contains(&value) => return Err(PROTOCOL),
            _ => {}
        }
    }
    Ok(window)
}

const PROTOCOL: Fatal = Fatal::new(ErrorCode::Protocol, "a setting with a value that it cannot have");

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(settings: &[(u16, u32)]) -> Vec<u8> {
        settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect()
    }

    /// RFC 9113, section 6.5.2.
    #[test]
    fn values_have_bounds() {
        for (setting, expected) in [
            ((1, 0), Ok(())),
            ((1, u32::MAX), Ok(())),
            ((2, 0), Ok(())),
            ((2, 1), Ok(())),
            ((2, 2), Err(ErrorCode::Protocol)),
            ((3, 0), Ok(())),
            ((4, 0x7fff_ffff), Ok(())),
            ((4, 0x8000_0000), Err(ErrorCode::FlowControl)),
            ((5, 16_383), Err(ErrorCode::Protocol)),
            ((5, 16_384), Ok(())),
            ((5, 16_777_215), Ok(())),
            ((5, 16_777_216), Err(ErrorCode::Protocol)),
            ((6, 0), Ok(())),
            ((8, 1), Ok(())),
            ((8, 2), Err(ErrorCode::Protocol)),
            ((0xff, 7), Ok(())),
        ] {
            let applied = initial_window(0, &payload(&[setting])).map_err(|fatal| fatal.code);
            assert_eq!(applied.map(|_| ()), expected, "{setting:?}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        assert_eq!(initial_window(0, &payload(&[(4, 1), (9, 1), (4, 2)])), Ok(2));
        assert_eq!(initial_window(2, &[]), Ok(2));
    }

    #[test]
    fn the_peer_is_told_the_bounds() {
        let config = Config { max_streams: 7, max_head_bytes: 16, max_fields: 3, takes_protocol: false };
        assert_eq!(config.settings().collect::<Vec<_>>(), [(3, 7), (6, 16)]);
        let config = Config { takes_protocol: true, ..config };
        assert_eq!(config.settings().last(), Some((8, 1)));
    }
}
