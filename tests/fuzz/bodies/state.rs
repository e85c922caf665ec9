//! States and snapshots from bytes: what is read can be asked, and what is not whole is not read.

use weir::base::time::Timestamp;
use weir::engine::limit::state::State;
use weir::engine::limit::{Algorithm, AlgorithmName, AnyState, ClockShift, Packed, Rate, Settings, Unpacker};
use weir::engine::store::snapshot::restore;

const NOW: Timestamp = Timestamp::from_ns(1_800_000_000_000_000_000);

fn rules() -> Vec<Algorithm> {
    let settings = Settings { shapes: true, ..Rate { count: 5, period_ns: 7_000_000_000 }.into() };
    let each = AlgorithmName::ALL.into_iter().map(|(_, name)| name.rule(&settings).expect("a rule"));
    let mut rules: Vec<_> = each.collect();
    let several = rules.iter().filter(|rule| !rule.is_released()).take(2).cloned().collect();
    rules.push(Algorithm::Several(several));
    rules
}

pub fn run(bytes: &[u8]) {
    let _ = restore(bytes, NOW, |_| None);
    let by_ns = bytes.first().map_or(0, |byte| (i64::from(*byte) - 128) * 3_600_000_000_000);
    for moved in [ClockShift::default(), ClockShift { by_ns, now: NOW }] {
        let Some(state) = AnyState::unpack(&mut Unpacker::new(bytes, moved)) else { continue };
        for rule in rules() {
            let mut state = state.clone();
            for second in [0, 1, 8, 100] {
                let now = NOW.saturating_add_ns(second * 1_000_000_000);
                let peeked = state.peek(&rule, 1, now);
                // How far ahead a made-up instant lies may be cut off at the end of time; whether it passes may not.
                assert_eq!(state.admit(&rule, 1, now).is_admitted(), peeked.is_admitted());
                state.wait(&rule, 1, 2, now);
                state.settle(&rule, -1, 3, now);
                state.idle_at();
            }
        }
    }
}
