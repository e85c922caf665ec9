//! Units of bodies, however they are cut, of published forms, and beside `serde_json`.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::engine::units::framing::Form;

fn pointers(pointers: &[(&str, &str)]) -> Arc<BodyUnits> {
    let weighted =
        |(pointer, weight): &(&str, &str)| (Pointer::parse(pointer).unwrap(), Weight::parse(weight).unwrap());
    Arc::new(BodyUnits::of_pointers(pointers.iter().map(weighted), None))
}

fn preset(preset: Preset) -> Arc<BodyUnits> {
    Arc::new(BodyUnits::of_preset(preset, |_| Weight::ONE, Vec::new(), None))
}

fn read_pieces<'b>(rule: &Arc<BodyUnits>, kind: &str, pieces: impl IntoIterator<Item = &'b [u8]>) -> UnitReader {
    let mut reader = UnitReader::new(Arc::clone(rule), Some(kind.as_bytes()), None);
    pieces.into_iter().for_each(|piece| reader.push(piece));
    reader
}

/// The reading of a whole body, which is the same however it is cut into two or into single bytes.
fn read(rule: &Arc<BodyUnits>, kind: &str, body: &str) -> Reading {
    let whole = |pieces: Vec<&[u8]>| {
        let mut reader = read_pieces(rule, kind, pieces);
        reader.end();
        reader.reading()
    };
    let body = body.as_bytes();
    let reading = whole(vec![body]);
    for at in 0..body.len() {
        assert_eq!(whole(vec![&body[..at], &body[at..]]), reading, "cut at {at}");
    }
    assert_eq!(whole(body.chunks(1).collect()), reading, "byte by byte");
    reading
}

const JSON: &str = "application/json; charset=utf-8";
const EVENTS: &str = "Text/Event-Stream;charset=utf-8";
const LINES: &str = "application/x-ndjson";

#[test]
fn pointers_find_numbers() {
    for (pointer, body, expected) in [
        ("/usage/total_tokens", r#"{"id":"a","usage":{"prompt":3,"total_tokens":12},"x":[{"usage":9}]}"#, Ok(12)),
        ("/usage/total_tokens", r#" { "usage" : { "total_tokens" : 12.2 } } "#, Ok(13)),
        ("/u\u{e9}", r#"{"u\u00e9":7}"#, Ok(7)),
        ("/\u{1f600}", r#"{"\ud83d\ude00":7}"#, Ok(7)),
        ("/a~1b/~0", r#"{"a/b":{"~":5}}"#, Ok(5)),
        ("/", r#"{"a":1,"":4}"#, Ok(4)),
        ("/rows/1/n", r#"{"rows":[{"n":1},{"n":2},{"n":3}]}"#, Ok(2)),
        ("/0/n", r#"[{"n":1},{"n":2}]"#, Ok(1)),
        ("/n", r#"[{"n":1},{"m":1},{"n":3},{}]"#, Ok(3)),
        ("/n", r#"[{"n":1},{"n":3},"#, Ok(3)),
        ("/a/b", r#"{"a":{"b":1},"a":{"c":2}}"#, Err(Unreadable::Absent)),
        ("/a/b", r#"{"a":{"b":1},"a":{"b":2}}"#, Ok(2)),
        ("/a/b", r#"{"x":{"a":{"b":1}}}"#, Err(Unreadable::Absent)),
        ("/a", r#"{"a":"12"}"#, Err(Unreadable::Absent)),
        ("/a", r#"{"a":null}"#, Err(Unreadable::Absent)),
        ("/a", r#"{"a":{"a":1}}"#, Err(Unreadable::Absent)),
        ("/a", r#"{"a":-1}"#, Err(Unreadable::Number)),
        ("/a", r#"{"a":9007199254740993}"#, Ok(9_007_199_254_740_993)),
        ("/a", r#"{"a":1e300}"#, Ok(u64::MAX)),
        ("/a", r#"{"a":1,}"#, Err(Unreadable::Syntax)),
        ("/a", r#"{"a":1"#, Err(Unreadable::Syntax)),
        ("/a", r#"{"a":1} {"a":2}"#, Err(Unreadable::Syntax)),
        ("/a", r#"{"a":01}"#, Err(Unreadable::Syntax)),
        ("/a", "<html>", Err(Unreadable::Syntax)),
        ("/a", "", Err(Unreadable::Absent)),
    ] {
        let reading = read(&pointers(&[(pointer, "1")]), JSON, body);
        let syntax = Err(Unreadable::Syntax);
        let found = reading.units.ok_or_else(|| reading.unreadable.unwrap());
        // Numbers of a text that turns out to be no JSON count only in elements before that.
        assert!(
            found == expected || expected == syntax && body.starts_with(r#"{"a":1} "#) && found == Ok(1),
            "{body}: {reading:?}"
        );
    }
}

#[test]
fn deep_and_long_texts_need_no_memory() {
    let deep = format!("{}1{}", "[".repeat(126), "]".repeat(126));
    let rule = pointers(&[("/n", "1")]);
    assert_eq!(read(&rule, JSON, &format!(r#"{{"a":{deep},"n":1}}"#)).units, Some(1));
    let reading = read(&rule, JSON, &format!(r#"{{"a":[{deep}],"n":1}}"#));
    assert_eq!(reading.unreadable, Some(Unreadable::Syntax));
    // Names and numbers that are longer than any that matters.
    let mut reader = read_pieces(&rule, JSON, [&b"{\""[..]]);
    let piece = [b'n'; 10_000];
    (0..100).for_each(|_| reader.push(&piece));
    reader.push(b"\":");
    (0..100).for_each(|_| reader.push(&[b'1'; 10_000]));
    reader.push(b",\"n\":2}");
    reader.end();
    assert_eq!(reader.reading().units, Some(2));
    // A line of 100 MiB.
    let mut reader = UnitReader::new(rule, Some(LINES.as_bytes()), None);
    reader.push(b"{\"n\":1,\"text\":\"");
    (0..10_000).for_each(|_| reader.push(&[b'a'; 10_486]));
    reader.push(b"\"}\n");
    reader.end();
    assert_eq!(reader.reading().units, Some(1));
}

#[test]
fn weights_are_summed_exactly() {
    let rule = pointers(&[("/in", "1"), ("/out", "4"), ("/cached", "1/10")]);
    assert_eq!(read(&rule, JSON, r#"{"in":10,"out":5,"cached":20}"#).units, Some(32));
    assert_eq!(read(&rule, JSON, r#"{"in":10,"cached":1}"#).units, Some(11));
}

#[test]
fn events_and_lines_have_a_document_each() {
    let rule = pointers(&[("/n", "1")]);
    for (kind, body, expected, is_broken) in [
        (EVENTS, "data: {\"n\":1}\n\ndata: {\"n\":5}\n\ndata: [DONE]\n\n", Some(5), true),
        (EVENTS, "data:{\"n\":1}\r\n\r\nevent: x\r\ndata:{\"m\":5}\r\n\r\n", Some(1), false),
        (EVENTS, "data: {\"n\":\rdata: 3}\r\r", Some(3), false),
        (EVENTS, ": data: {\"n\":1}\ndat: {\"n\":1}\ndatax: {\"n\":1}\n\n", None, false),
        (EVENTS, "data: {\"n\":7}", Some(7), false),
        (EVENTS, "data\ndata: {\"n\":7}\nid: 1\n\n", Some(7), false),
        (
            EVENTS,
            "data: {\"n\":8,\"m\":\"n\"}\n\ndata: {\"n\" : null , \"m\":1}\n\ndata: {\"m\":\"n\"}\n\n",
            Some(8),
            false,
        ),
        (EVENTS, "data: {\"n\":null,\"x\":{\"n\":null},\"n\":2}\n\n", Some(2), false),
        (EVENTS, "data: {\"\\u006e\":4}\n\ndata: {\"m\":\"\\n\"}\n\n", Some(4), false),
        (EVENTS, "data: {\"x\":{}\ndata: ,\"n\":6}\n\ndata: {\"m\":1}\r\n\r\n", Some(6), false),
        (LINES, "{\"n\":1}\n\n{\"n\":4}\r\n{\"m\":4}", Some(4), false),
        (LINES, "{\"n\":1}\nbroken\n", Some(1), true),
        (LINES, "{\"m\":\"\\q\"}\n{\"n\":3}\n", Some(3), true),
        (LINES, "{\"m\":\"\\ud83d\u{1}\"}\n{\"n\":3}\n", Some(3), true),
    ] {
        let reading = read(&rule, kind, body);
        assert_eq!(reading.units, expected, "{body}");
        assert!(reading.is_whole && (!is_broken || expected.is_some()), "{body}");
    }
    for kind in [JSON, "text/plain", "", "text/event-streams"] {
        assert_eq!(Form::of(Some(kind.as_bytes())), Form::Json, "{kind}");
    }
}

/// Answers in the forms that the services publish, whole and as streams, with the sum of all tokens.
const ANSWERS: [(Preset, &str, &str, u64); 8] = [
    (Preset::OpenaiChat, JSON, include_str!("answers/openai-chat.json"), 1117),
    (Preset::OpenaiChat, EVENTS, include_str!("answers/openai-chat.events"), 1117),
    (Preset::OpenaiResponses, JSON, include_str!("answers/openai-responses.json"), 348),
    (Preset::OpenaiResponses, EVENTS, include_str!("answers/openai-responses.events"), 348),
    (Preset::Anthropic, JSON, include_str!("answers/anthropic.json"), 2200),
    (Preset::Anthropic, EVENTS, include_str!("answers/anthropic.events"), 2200),
    (Preset::Gemini, JSON, include_str!("answers/gemini.json"), 530),
    (Preset::Gemini, EVENTS, include_str!("answers/gemini.events"), 530),
];

#[test]
fn presets_read_published_forms() {
    for (of, kind, body, expected) in ANSWERS {
        assert_eq!(read(&preset(of), kind, body).units, Some(expected), "{of:?} {kind}");
    }
}

#[test]
fn a_model_has_its_price() {
    let tariffs = |of| {
        let price = |model: &str, input: &str, cached: &str, output: &str| {
            let weight = |name: &str| match name {
                "input" => Weight::parse(input).ok(),
                "cache_read" => Weight::parse(cached).ok(),
                "output" => Weight::parse(output).ok(),
                _ => None,
            };
            Tariff::new(of, model, weight)
        };
        vec![price("m*", "100", "100", "100"), price("model-1-*", "2.5", "0.25", "10"), price("model-2", "1", "1", "1")]
    };
    let rule = |of| Arc::new(BodyUnits::of_preset(of, |_| Weight::ONE, tariffs(of), Some(9)));
    // 17 of 1,017 tokens of input were not in the cache; 100 tokens are output.
    for (kind, body) in [(JSON, ANSWERS[0].2), (EVENTS, ANSWERS[1].2)] {
        let micros = (17 * 10 + 1000 + 100 * 40_u64).div_ceil(4);
        assert_eq!(read(&rule(Preset::OpenaiChat), kind, body).units, Some(micros));
    }
    let other = r#"{"model":"other","usage":{"prompt_tokens":5}}"#;
    let reading = read(&rule(Preset::OpenaiChat), JSON, other);
    assert_eq!((reading.unreadable, rule(Preset::OpenaiChat).owed(&reading, 1)), (Some(Unreadable::Model), Some(9)));
    let exact = r#"{"model":"model-2","usage":{"prompt_tokens":5}}"#;
    assert_eq!(read(&rule(Preset::OpenaiChat), JSON, exact).units, Some(5));
}

#[test]
fn a_body_that_breaks_off_costs_what_has_come() {
    // What is owed if a stream breaks off behind each of its events, when two units are charged.
    let owed = |of, body: &str| {
        let events: Vec<_> = body.split_inclusive("\n\n").collect();
        let after = |count: usize| {
            let rule = preset(of);
            let reader = read_pieces(&rule, EVENTS, events[..count].iter().map(|event| event.as_bytes()));
            rule.owed(&reader.reading(), 2)
        };
        (0..=events.len()).map(after).collect::<Vec<_>>()
    };
    let chat = owed(Preset::OpenaiChat, ANSWERS[1].2);
    assert_eq!(chat, [None, Some(2), Some(2), Some(3), Some(1117), Some(1117)]);
    let anthropic = owed(Preset::Anthropic, ANSWERS[5].2);
    assert_eq!(anthropic[..5], [None, Some(2051), Some(2052), Some(2053), Some(2054)]);
    assert_eq!(anthropic.last(), Some(&Some(2201)));
    // A rule without a preset keeps the charge, if that is more than what is known.
    let rule = pointers(&[("/n", "1")]);
    for (body, expected) in
        [("data: {\"n\":8}\n\n", Some(50)), ("data: {\"n\":80}\n\n", Some(80)), ("data: {}\n\n", None)]
    {
        assert_eq!(rule.owed(&read_pieces(&rule, EVENTS, [body.as_bytes()]).reading(), 50), expected);
    }
    // A default below the charge is the cost of whole bodies only.
    let of_pointer = || BodyUnits::of_pointers([(Pointer::parse("/n").unwrap(), Weight::ONE)], Some(5));
    let of_preset = || BodyUnits::of_preset(Preset::OpenaiChat, |_| Weight::ONE, Vec::new(), Some(5));
    for rule in [of_pointer(), of_preset()].map(Arc::new) {
        assert_eq!(rule.owed(&Reading::UNANSWERED, 50), Some(50));
        assert_eq!(rule.owed(&Reading::UNANSWERED, 2), Some(5));
        for (kind, body) in
            [(EVENTS, ""), (EVENTS, "data: {}\n\n"), (EVENTS, "data: {"), (JSON, ""), (JSON, "{\"a\":1,")]
        {
            let mut reader = read_pieces(&rule, kind, [body.as_bytes()]);
            assert_eq!(rule.owed(&reader.reading(), 50), Some(50), "{kind} {body}");
            assert_eq!(rule.owed(&reader.reading(), 2), Some(5), "{kind} {body}");
            reader.end();
            assert_eq!(rule.owed(&reader.reading(), 50), Some(5), "{kind} {body}");
        }
    }
}

#[test]
fn an_encoded_body_is_not_read() {
    let rule = pointers(&[("/n", "1")]);
    for (encoding, expected) in [("identity", Some(1)), ("", Some(1)), ("gzip", None), ("identity, br", None)] {
        let mut reader = UnitReader::new(Arc::clone(&rule), None, Some(encoding.as_bytes()));
        reader.push(b"{\"n\":1}");
        reader.end();
        assert_eq!(reader.reading().units, expected, "{encoding}");
    }
}

/// Texts that are JSON, or nearly.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let names = prop_oneof![Just("a"), Just("b"), Just("\\u0061"), Just("c\\n"), Just("0"), Just("\\ud800")];
    // A text as a strategy would be parsed for each case.
    let regex = |text| prop::string::string_regex(text).unwrap();
    let leaves = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        (0..100_i32).prop_map(|number| format!("{}", f64::from(number) / 4.0)),
        regex("[-]?[0-9]{1,3}([.][0-9]{0,2})?([eE][+-]?[0-9]{0,2})?"),
        regex("\"[a\\\\u0-9b\"]{0,6}\""),
    ];
    let names = std::rc::Rc::new(names.boxed());
    let values = leaves.prop_recursive(5, 40, 5, move |inner| {
        let member = (names.as_ref().clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\" : {value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(", "))),
        ]
    });
    values.prop_map(String::into_bytes)
}

/// The number of random texts; `WEIR_SCANNER_CASES` sets another. Each is read four times.
fn cases() -> u32 {
    std::env::var("WEIR_SCANNER_CASES").map_or(2_500, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// In two pieces each, and with at most one damaged byte.
    #[test]
    fn the_scanner_agrees_with_serde_json(
        text in texts(),
        readings in any::<[(prop::sample::Index, Option<(prop::sample::Index, u8)>); 4]>(),
    ) {
        let rule = pointers(&[("/a", "1"), ("/b/a", "1"), ("/a/0/b", "1"), ("/0", "0")]);
        for (cut, damage) in readings {
            let mut text = text.clone();
            if let Some((at, byte)) = damage {
                let at = at.index(text.len());
                text[at] = byte;
            }
            let cut = cut.index(text.len() + 1);
            let mut reader = read_pieces(&rule, JSON, [&text[..cut], &text[cut..]]);
            reader.end();
            check_against_serde(&text, reader.reading());
        }
    }
}

fn check_against_serde(text: &[u8], reading: Reading) {
    let json = serde_json::from_slice::<serde::de::IgnoredAny>(text);
    // What follows a whole document takes nothing back.
    let is_whole = json.as_ref().err().is_none_or(|error| error.to_string().starts_with("trailing characters"));
    let is_blank = text.trim_ascii().is_empty();
    assert!(is_whole || is_blank || reading.unreadable == Some(Unreadable::Syntax), "{reading:?}");
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else { return };
    let numbers: Vec<_> = ["/a", "/b/a", "/a/0/b", "/0"]
        .iter()
        .filter_map(|pointer| value.pointer(pointer))
        .filter(|value| value.is_number())
        .collect();
    let wholes: Option<Vec<_>> = numbers.iter().map(|number| number.as_u64()).collect();
    match wholes {
        Some(wholes) if wholes.is_empty() => assert_eq!(reading.unreadable, Some(Unreadable::Absent)),
        Some(_) => {
            let weighed = ["/a", "/b/a", "/a/0/b"].iter().filter_map(|pointer| value.pointer(pointer)?.as_u64());
            assert_eq!(reading.units, Some(weighed.fold(0, u64::saturating_add)));
        }
        None => assert!(reading.units.is_some() || reading.unreadable == Some(Unreadable::Number), "{reading:?}"),
    }
}
