//! What happens beyond a limit, and after a request: bans, delays, settling.

use super::*;

#[test]
fn bans() {
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
ban = { after = "10", for = "0s", forever = true }
[[limit]]
name = "b"
key = []
rate = "5/min"
ban = { after = "10/min", for = "2h", for_max = "1h" }
[[limit]]
name = "c"
key = []
rate = "5/min"
ban = {}"#), @r#"
    5:17 «"10"» `limit.ban.after`: `10` is not a rate
      = write it like "100/min" or "5/15min"
    5:29 «"0s"» `limit.ban.for`: must be longer than zero
    5:35 «forever» unknown key `forever` in `[limit.ban]`
      = `[limit.ban]` can have after, for, for_max, status
    10:33 «"2h"» `limit.ban.for`: the first ban is longer than `for_max` [also 10:49 «"1h"» the longest]
    15:7 «{}» `limit.ban.after` is missing
      = expected string (rate). Rate of refusals by this limit that bans a key.
    15:7 «{}» `limit.ban.for` is missing
      = expected duration. Time for which requests of the key under this limit are refused; each further ban is twice as long.
    "#);
    let rule = |text: &str| {
        let config = format!("{UPSTREAM}[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\nban = {{ {text} }}\n");
        compile(&config).unwrap().policy.limits()[0].ban.unwrap()
    };
    let lengths_s = |text: &str| [0, 1, 2, 63].map(|bans| rule(text).length_ns(bans) / 1_000_000_000);
    assert_eq!(lengths_s(r#"after = "10/min", for = "1h", for_max = "3h""#), [3600, 7200, 10_800, 10_800]);
    assert_eq!(lengths_s(r#"after = "10/min", for = "10h""#), [36_000, 72_000, 86_400, 86_400]);
    assert_eq!(lengths_s(r#"after = "10/min", for = "25h""#), [90_000; 4]);
}

#[test]
fn delays() {
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
delay = { step = "1s" }
[[limit]]
name = "b"
key = []
rate = "5/min"
on_limit = "hold"
delay = { max = "1s" }
[[limit]]
name = "c"
key = []
rate = "5/min"
on_limit = "delay"
delay = { step = "2s", max = "1s" }
[[limit]]
name = "d"
key = []
rate = "5/min"
on_limit = "delay"
hold = { max_wait = "1s" }
ban = { after = "1/s", for = "1s" }
[[limit]]
name = "e"
key = []
rate = "5/min"
on_limit = "delya""#), @r#"
    5:9 «{ step = "1s" }» `limit.delay` needs `on_limit = "delay"`
      = without it, the limit refuses requests
    11:9 «{ max = "1s" }» `limit.delay` needs `on_limit = "delay"`
      = with `hold`, the limit computes how long a request waits
    17:18 «"2s"» `limit.delay.step`: is longer than `max`, so every delay would be `max` [also 17:30 «"1s"» the longest]
    23:21 «"1s"» `limit.hold.max_wait` needs `on_limit = "hold"`
      = `delay.max` is the longest delay of a request
    24:7 «{ after = "1/s", for = "1s" }» `limit.ban` needs a limit that refuses requests, and this limit delays them
    29:12 «"delya"» `limit.on_limit`: `delya` is not one of `reject`, `hold`, `delay`
      = did you mean `delay`?
    "#);
    let rule = |text: &str| {
        let limit = "[[limit]]\nname = \"a\"\nkey = []\nrate = \"5/s\"\non_limit = \"delay\"\n";
        compile(&format!("{UPSTREAM}{limit}{text}\n")).unwrap().policy.limits()[0].on_limit
    };
    let delay = |step_ms: u64, max_ms: u64, max_waiting| {
        let slow_down = SlowDown { step_ns: step_ms * 1_000_000, max_ns: max_ms * 1_000_000 };
        OnLimit::Delay(DelayRule { slow_down, max_waiting })
    };
    assert_eq!(rule(""), delay(100, 5000, 1000));
    assert_eq!(rule("delay = { step = \"7ms\", max = \"1min\" }\nhold = { max_waiting = 3 }"), delay(7, 60_000, 3));
}

#[test]
fn settling() {
    let limit = |more: &str| format!("[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/s\"\n{more}");
    insta::assert_snapshot!(brief(&limit("count = { status = [99, \"6xx\", \"4xx\"] }\nmax_debt = 5")), @r#"
    5:21 «99» `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
    5:25 «"6xx"» `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
    6:12 «5» `limit.max_debt`: has no effect without `settle`: only settlement can create debt
      = add `settle`
    "#);
    insta::assert_snapshot!(brief(&limit("count = {}\nsettle = { by = \"elapsed\" }")), @r#"
    5:9 «{}» `limit.count.status`: is missing: list the statuses that count
    6:17 «"elapsed"» `limit.settle.by`: `elapsed` is not one of `elapsed_ms`, `response_bytes`, `status`, `json`, `openai-chat`, `openai-responses`, `anthropic`, `gemini`, `header:NAME`, `json:POINTER`
    "#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"status\", every = \"1s\" }")), @r#"
    5:10 «{ by = "status", every = "1s" }» `limit.settle.units`: is missing
      = write it like `units = { "4xx" = 10, "304" = 0 }`
    5:35 «"1s"» `limit.settle.every`: is valid only with `elapsed_ms` in `by`
    "#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"header:a b\", units = { \"4xx\" = 1 } }")), @r#"5:17 «"header:a b"» `limit.settle.by`: `a b` is not a header name"#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"json:usage\", default = -1 }")), @r#"
    5:17 «"json:usage"» `limit.settle.by`: expected a JSON pointer, such as `/usage/total_tokens`
    5:41 «-1» `limit.settle.default`: expected whole number from 0
    "#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"json:/a\", units = {}, price = {}, every = \"1s\" }")), @r#"
    5:36 «{}» `limit.settle.units`: is valid only with `status`, `json` or a preset in `by`
    5:48 «{}» `limit.settle.price`: is valid only with a preset in `by`
    5:60 «"1s"» `limit.settle.every`: is valid only with `elapsed_ms` in `by`
    "#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"json\" }")), @r#"
    5:10 «{ by = "json" }» `limit.settle.units`: is missing
      = write it like `units = { "/usage/input_tokens" = 1 }`
    "#);
    let units = "units = { \"a~2\" = 1, \"/b\" = -1, \"/c\" = \"1/0\", \"/d\" = true }";
    insta::assert_snapshot!(brief(&limit(&format!("settle = {{ by = \"json\", {units} }}"))), @r#"
    5:35 «"a~2"» `limit.settle.units`: expected a JSON pointer, such as `/usage/total_tokens`
    5:53 «-1» `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
    5:64 «"1/0"» `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
    5:78 «true» `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
    "#);
    insta::assert_snapshot!(brief(&limit("settle = { by = \"anthropic\", units = { cached = 1 } }")), @"5:40 «cached» `limit.settle.units`: expected one of `input`, `cache_write`, `cache_read`, `output`");
    let price = "price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }";
    insta::assert_snapshot!(brief(&limit(&format!("settle = {{ by = \"gemini\", {price}, units = {{}} }}"))), @r"
    5:66 «other» `limit.settle.price`: expected one of `input`, `cache_read`, `output`
    5:83 «{ input = 1 }» `limit.settle.price`: needs `input` and `output`
    5:102 «3» `limit.settle.price`: expected a table of names and weights
    5:115 «{}» `limit.settle.units`: is the same for all models: give `units` or `price`
    ");
    insta::assert_snapshot!(brief(&limit("settle = { by = \"status\", units = { \"4x\" = 1, \"404\" = -1 } }")), @r#"
    5:37 «"4x"» `limit.settle.units`: expected a status from 100 to 599, or a class such as `"4xx"`
    5:55 «-1» `limit.settle.units`: expected a whole number of units, at least 0
    "#);
    for (rest, hint) in [
        (
            "unit_name = 'cents'\nsettle = { by = 'anthropic', price.a = { input = 1, output = 2 } }",
            "`limit.unit_name`: the units of a limit with `price` are `micro-usd`",
        ),
        ("unit_name = 'a b'", "`limit.unit_name`: `a b` is not 1 to 64 of `A-Z a-z 0-9 _ -`"),
    ] {
        let said = said(&limit(rest));
        assert!(said.contains(hint), "{rest}\n{said}");
    }
    for (settle, hint) in [
        (
            "by = 'anthropic', include_usage = 'add'",
            "`limit.settle.include_usage`: is valid only with `openai-chat` in `by`",
        ),
        (
            "by = 'openai-chat', include_usage = 'set'",
            "`limit.settle.include_usage`: `set` is not one of `keep`, `add`",
        ),
        ("by = 'openai-chat', unpriced = 'refuse'", "`limit.settle.unpriced`: has an effect only with `price`"),
        (
            "by = 'gemini', unpriced = 'refuse', price.a = { input = 1, output = 2 }",
            "`limit.settle.unpriced`: is valid only with another preset than `gemini` in `by`",
        ),
    ] {
        let said = said(&limit(&format!("settle = {{ {settle} }}")));
        assert!(said.contains(hint), "{settle}\n{said}");
    }
    insta::assert_snapshot!(brief(&limit("stage = \"arrival\"\nsettle = { by = \"elapsed_ms\" }")), @r#"6:10 «{ by = "elapsed_ms" }» a limit of stage `arrival` cannot change its charges after the response"#);
}
