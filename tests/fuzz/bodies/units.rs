//! The reader of units agrees with `serde_json`, and reads the same however the body is cut. The first two bytes say where.

use std::sync::Arc;

use weir::engine::units::{BodyUnits, Pointer, Reading, UnitReader, Unreadable, Weight};

const POINTERS: [&str; 4] = ["/a", "/b/a", "/a/0/b", "/c/1"];

pub fn run(bytes: &[u8]) {
    let [first, second, text @ ..] = bytes else { return };
    let rule = |pointers: &[&str]| {
        let pointers = pointers.iter().filter_map(|pointer| Pointer::parse(pointer).ok());
        Arc::new(BodyUnits::of_pointers(pointers.map(|pointer| (pointer, Weight::ONE)), None))
    };
    let (all, alike) = (rule(&POINTERS), rule(&POINTERS[..3]));
    let cut = usize::from(u16::from_le_bytes([*first, *second])) % (text.len() + 1);
    let read_by = |rule: &Arc<BodyUnits>, kind: &str, pieces: &[&[u8]]| {
        let mut reader = UnitReader::new(Arc::clone(rule), Some(kind.as_bytes()), None);
        for piece in pieces {
            reader.push(piece);
        }
        reader.end();
        reader.reading()
    };
    for kind in ["application/json", "text/event-stream", "application/x-ndjson"] {
        let (whole, pieces) = (read_by(&all, kind, &[text]), [&text[..cut], &text[cut..]]);
        assert_eq!(read_by(&all, kind, &pieces), whole, "{kind}");
        // Whole events and lines without the name that these pointers have in common are not read.
        let bytes: Vec<_> = text.chunks(1).collect();
        assert_eq!(read_by(&alike, kind, &[text]).units, read_by(&alike, kind, &bytes).units, "{kind}");
        if kind == "application/json" && !text.trim_ascii_start().starts_with(b"[") {
            compare(text, whole);
        }
    }
}

fn compare(text: &[u8], reading: Reading) {
    let value = match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(value) => value,
        Err(error) => {
            // Accepted are halves of surrogate pairs, text that is no UTF-8, numbers beyond the range of a double, and
            // what follows a whole document.
            let is_lax = std::str::from_utf8(text).is_err()
                || text.windows(2).any(|pair| pair == b"\\u")
                || ["number out of range", "trailing characters"]
                    .iter()
                    .any(|start| error.to_string().starts_with(start));
            let is_unreadable = matches!(reading.unreadable, Some(Unreadable::Syntax | Unreadable::Absent));
            assert!(is_lax || is_unreadable, "{error}: {reading:?}");
            return;
        }
    };
    let numbers: Vec<_> =
        POINTERS.iter().filter_map(|at| value.pointer(at)).filter(|value| value.is_number()).collect();
    let wholes: Option<Vec<u64>> = numbers.iter().map(|number| number.as_u64()).collect();
    match wholes {
        Some(wholes) if wholes.is_empty() => assert_eq!(reading.units, None),
        Some(wholes) => assert_eq!(reading.units, Some(wholes.into_iter().fold(0, u64::saturating_add))),
        None => assert!(reading.units.is_some() || reading.unreadable == Some(Unreadable::Number), "{reading:?}"),
    }
}
