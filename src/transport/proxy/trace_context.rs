//! The place of a request in a trace, by W3C Trace Context: continued from the client's `traceparent`, or begun.
//!
//! Not here: the spans (telemetry), and their export (app).

use crate::base::fields::Fields;
use crate::base::split_mix::random;
use crate::base::telemetry::SpanContext;

/// The fields of the context.
pub(super) const TRACEPARENT: &str = "traceparent";
pub(super) const TRACESTATE: &str = "tracestate";

/// The bit of the flags that says that the trace is recorded.
const SAMPLED: u8 = 1;

/// A valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) is_sampled: bool,
}

impl Parent {
    /// The only `traceparent` of `fields`, if it is valid (W3C Trace Context, section 3.2).
    pub(super) fn of(fields: Fields<'_>) -> Option<Self> {
        let mut values = fields.all(TRACEPARENT);
        let value = str::from_utf8(values.next()?).ok()?;
        if values.next().is_some() {
            return None;
        }
        let (known, more) = value.split_at_checked(55)?;
        let mut parts = known.split('-');
        let mut part = |len: usize| {
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            parts.next().filter(|part| part.len() == len && part.bytes().all(is_hex))
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // A later version may have more parts.
        let is_known = if version == "00" { more.is_empty() } else { more.is_empty() || more.starts_with('-') };
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (version != "ff" && is_known).then_some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }
}

/// The context of a request with this parent, as Weir writes it: with a span of its own, and a further one for the
/// request to its service. A client that is not `trusted` cannot decide that the trace is recorded; then one of `sample`
/// traces is, the same on all replicas.
pub(super) fn context(parent: Option<Parent>, is_trusted: bool, sample: u64) -> SpanContext {
    let trace = parent.map_or_else(|| u128::from(not_zero()) << 64 | u128::from(random()), |parent| parent.trace);
    let is_sampled = match parent {
        Some(parent) if is_trusted => parent.is_sampled,
        // The low half is random in all traces (W3C Trace Context, level 2, section 3.2.2.3.1).
        _ => u64::try_from(trace & u128::from(u64::MAX)).unwrap_or(0).is_multiple_of(sample.max(1)),
    };
    SpanContext {
        trace,
        parent: parent.map_or(0, |parent| parent.span),
        server: not_zero(),
        client: not_zero(),
        is_sampled,
    }
}

fn not_zero() -> u64 {
    random().max(1)
}

/// The `traceparent` for the service.
pub(super) fn write(out: &mut Vec<u8>, context: &SpanContext) {
    use std::io::Write as _;
    let SpanContext { trace, client, is_sampled, .. } = context;
    // Writing to memory does not fail.
    let _ = write!(out, "00-{trace:032x}-{client:016x}-{:02x}", u8::from(*is_sampled));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parent(values: &[&str]) -> Option<Parent> {
        let fields: FieldBuf = values.iter().map(|value| ("traceparent", *value)).collect();
        Parent::of(fields.fields())
    }

    #[test]
    fn only_valid_parents_are_continued() {
        let (trace, span) = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);
        let valid = |is_sampled| Some(Parent { trace, span, is_sampled });
        for (value, expected) in [
            (VALID.to_owned(), valid(true)),
            (VALID.replace("-01", "-00"), valid(false)),
            (VALID.replace("-01", "-03"), valid(true)),
            // A later version is read as version 00.
            (VALID.replacen("00-", "cc-", 1), valid(true)),
            (format!("{}-what-the-future-is-like", VALID.replacen("00-", "cc-", 1)), valid(true)),
            (format!("{}.what", VALID.replacen("00-", "cc-", 1)), None),
            (format!("{VALID}-more"), None),
            (VALID.replacen("00-", "ff-", 1), None),
            (VALID.to_uppercase(), None),
            (VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)), None),
            (VALID.replace("00f067aa0ba902b7", &"0".repeat(16)), None),
            (VALID.replace("-01", "-0"), None),
            (VALID.replace("-01", "-0x"), None),
            (VALID.replacen('-', "_", 1), None),
            (String::new(), None),
            ("é".repeat(40), None),
        ] {
            assert_eq!(parent(&[&value]), expected, "{value}");
        }
        assert_eq!(parent(&[VALID, VALID]), None);
        assert_eq!(parent(&[]), None);
    }

    #[test]
    fn a_trusted_proxy_decides_about_recording_and_others_do_not() {
        let parent = parent(&[VALID]);
        let unsampled = parent.map(|parent| Parent { is_sampled: false, ..parent });
        assert!(context(parent, true, u64::MAX).is_sampled);
        assert!(!context(unsampled, true, 1).is_sampled);
        assert!(!context(parent, false, u64::MAX).is_sampled);
        assert!(context(unsampled, false, 1).is_sampled);
        let begun = [(); 1000].map(|()| context(None, false, 10));
        let sampled = begun.iter().filter(|context| context.is_sampled).count();
        assert!((40..200).contains(&sampled), "{sampled}");
        let SpanContext { trace, parent: none, server, client, .. } = begun[0];
        assert!(trace != 0 && none == 0 && server != 0 && client != 0 && server != client);
        let mut out = Vec::new();
        write(&mut out, &context(parent, true, 1));
        let written = String::from_utf8(out).unwrap();
        assert!(written.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && written.ends_with("-01"), "{written}");
        assert_ne!(written, VALID);
    }
}
