//! Where the bytes are cut never matters.

use proptest::prelude::*;

use super::*;

/// Frames that a client may send, good ones and bad ones.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0_u32..5).prop_map(|turn| turn * 2 + 1);
    let fields = prop_oneof![
        4 => Just(GET.to_owned()),
        1 => Just(format!("{GET}|content-length=5")),
        1 => Just(format!("{GET}|x=a\nb")),
        1 => Just("x-sum=1".to_owned()),
    ];
    let flags = prop_oneof![
        4 => Just(END_HEADERS),
        4 => Just(END_HEADERS | END_STREAM),
        1 => Just(END_STREAM),
        1 => any::<u8>(),
    ];
    prop_oneof![
        6 => (stream.clone(), fields, flags).prop_map(|(id, fields, flags)| frame(HEADERS, flags, id, &block(&fields))),
        4 => (stream.clone(), prop::collection::vec(any::<u8>(), 0..40), 0_u8..2).prop_map(|(id, data, end)| {
            frame(DATA, end, id, &data)
        }),
        2 => (stream.clone(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(id, data)| {
            frame(DATA, PADDED, id, &[&[data.len() as u8 / 2][..], &data].concat())
        }),
        2 => (stream.clone(), 0_u32..99).prop_map(|(id, more)| frame(WINDOW_UPDATE, 0, id, &more.to_be_bytes())),
        1 => (stream.clone(), any::<bool>()).prop_map(|(id, ends)| {
            frame(CONTINUATION, if ends { END_HEADERS } else { 0 }, id, &block("y=2"))
        }),
        1 => stream.clone().prop_map(|id| frame(RST_STREAM, 0, id, &[0, 0, 0, 8])),
        1 => any::<[u8; 8]>().prop_map(|payload| frame(PING, 0, 0, &payload)),
        1 => (0_u8..3, any::<u16>()).prop_map(|(id, value)| {
            frame(SETTINGS, 0, 0, &[&[0, id + 3, 0, 0][..], &value.to_be_bytes()].concat())
        }),
        1 => (any::<u8>(), any::<u8>(), stream, prop::collection::vec(any::<u8>(), 0..20)).prop_map(
            |(kind, flags, id, payload)| frame(kind, flags, id, &payload)
        ),
    ]
}

/// Events, with the pieces of a body put together, what was written, and how it ended.
fn outcome(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>, Option<Fatal>) {
    let mut lab = Lab::new(CONFIG);
    for piece in pieces {
        lab.say(piece);
    }
    let mut events: Vec<String> = Vec::new();
    for event in lab.events {
        let joined = events.last_mut().and_then(|last| {
            let (stream, data) = event.split_once(" data ")?;
            let (before, begin) = last.split_once(" data ")?;
            let begin = begin.strip_suffix(" false").filter(|_| stream == before)?;
            Some((format!("{stream} data {begin}{data}"), last))
        });
        match joined {
            Some((joined, last)) => *last = joined,
            None => events.push(event),
        }
    }
    (events, lab.out, lab.fatal)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn equal_bytes_have_equal_events(
        frames in prop::collection::vec(any_frame(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes = [opening(), frames.concat()].concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let whole = outcome(&[&bytes]);
        prop_assert_eq!(&outcome(&pieces), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&outcome(&single), &whole);
    }

    #[test]
    fn anything_may_come(bytes in any::<Vec<u8>>()) {
        let mut lab = Lab::open();
        lab.say(&bytes);
        prop_assert!(lab.connection.owners_mut().count() <= 2 * CONFIG.max_streams as usize);
    }
}
