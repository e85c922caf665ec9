//! What happens beyond a limit, and after a request: bans, delays, settling.

use super::*;

#[test]
fn bans() {
    insta::assert_snapshot!(said(r#"[[limit]]
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
    error: `limit.ban.after`: `10` is not a rate
     --> weir.toml:5:17
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                 ^^^^
      |
      = help: write it like "100/min" or "5/15min"

    error: `limit.ban.for`: must be longer than zero
     --> weir.toml:5:29
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                             ^^^^

    error: unknown key `forever` in `[limit.ban]`
     --> weir.toml:5:35
      |
    5 | ban = { after = "10", for = "0s", forever = true }
      |                                   ^^^^^^^
      |
      = help: `[limit.ban]` can have after, for, for_max, status

    error: `limit.ban.for`: the first ban is longer than `for_max`
      --> weir.toml:10:33
       |
    10 | ban = { after = "10/min", for = "2h", for_max = "1h" }
       |                                 ^^^^            ---- the longest

    error: `limit.ban.after` is missing
      --> weir.toml:15:7
       |
    15 | ban = {}
       |       ^^
       |
       = help: expected string (rate). Rate of refusals by this limit that bans a key.

    error: `limit.ban.for` is missing
      --> weir.toml:15:7
       |
    15 | ban = {}
       |       ^^
       |
       = help: expected duration. Time for which requests of the key under this limit are refused; each further ban is twice as long.
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
    insta::assert_snapshot!(said(r#"[[limit]]
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
    error: `limit.delay` needs `on_limit = "delay"`
     --> weir.toml:5:9
      |
    5 | delay = { step = "1s" }
      |         ^^^^^^^^^^^^^^^
      |
      = help: without it, the limit refuses requests

    error: `limit.delay` needs `on_limit = "delay"`
      --> weir.toml:11:9
       |
    11 | delay = { max = "1s" }
       |         ^^^^^^^^^^^^^^
       |
       = help: with `hold`, the limit computes how long a request waits

    error: `limit.delay.step`: is longer than `max`, so every delay would be `max`
      --> weir.toml:17:18
       |
    17 | delay = { step = "2s", max = "1s" }
       |                  ^^^^        ---- the longest

    error: `limit.hold.max_wait` needs `on_limit = "hold"`
      --> weir.toml:23:21
       |
    23 | hold = { max_wait = "1s" }
       |                     ^^^^
       |
       = help: `delay.max` is the longest delay of a request

    error: `limit.ban` needs a limit that refuses requests, and this limit delays them
      --> weir.toml:24:7
       |
    24 | ban = { after = "1/s", for = "1s" }
       |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `limit.on_limit`: `delya` is not one of `reject`, `hold`, `delay`
      --> weir.toml:29:12
       |
    29 | on_limit = "delya"
       |            ^^^^^^^
       |
       = help: did you mean `delay`?
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
    insta::assert_snapshot!(said(&limit("count = { status = [99, \"6xx\", \"4xx\"] }\nmax_debt = 5")), @r#"
    error: `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:21
      |
    5 | count = { status = [99, "6xx", "4xx"] }
      |                     ^^

    error: `limit.count.status`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:25
      |
    5 | count = { status = [99, "6xx", "4xx"] }
      |                         ^^^^^

    error: `limit.max_debt`: has no effect without `settle`: only settlement can create debt
     --> weir.toml:6:12
      |
    6 | max_debt = 5
      |            ^
      |
      = help: add `settle`
    "#);
    insta::assert_snapshot!(said(&limit("count = {}\nsettle = { by = \"elapsed\" }")), @r#"
    error: `limit.count.status`: is missing: list the statuses that count
     --> weir.toml:5:9
      |
    5 | count = {}
      |         ^^

    error: `limit.settle.by`: `elapsed` is not one of `elapsed_ms`, `response_bytes`, `status`, `json`, `openai-chat`, `openai-responses`, `anthropic`, `gemini`, `header:NAME`, `json:POINTER`
     --> weir.toml:6:17
      |
    6 | settle = { by = "elapsed" }
      |                 ^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"status\", every = \"1s\" }")), @r#"
    error: `limit.settle.units`: is missing
     --> weir.toml:5:10
      |
    5 | settle = { by = "status", every = "1s" }
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: write it like `units = { "4xx" = 10, "304" = 0 }`

    error: `limit.settle.every`: is valid only with `elapsed_ms` in `by`
     --> weir.toml:5:35
      |
    5 | settle = { by = "status", every = "1s" }
      |                                   ^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"header:a b\", units = { \"4xx\" = 1 } }")), @r#"
    error: `limit.settle.by`: `a b` is not a header name
     --> weir.toml:5:17
      |
    5 | settle = { by = "header:a b", units = { "4xx" = 1 } }
      |                 ^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"json:usage\", default = -1 }")), @r#"
    error: `limit.settle.by`: expected a JSON pointer, such as `/usage/total_tokens`
     --> weir.toml:5:17
      |
    5 | settle = { by = "json:usage", default = -1 }
      |                 ^^^^^^^^^^^^

    error: `limit.settle.default`: expected whole number from 0
     --> weir.toml:5:41
      |
    5 | settle = { by = "json:usage", default = -1 }
      |                                         ^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"json:/a\", units = {}, price = {}, every = \"1s\" }")), @r#"
    error: `limit.settle.units`: is valid only with `status`, `json` or a preset in `by`
     --> weir.toml:5:36
      |
    5 | settle = { by = "json:/a", units = {}, price = {}, every = "1s" }
      |                                    ^^

    error: `limit.settle.price`: is valid only with a preset in `by`
     --> weir.toml:5:48
      |
    5 | settle = { by = "json:/a", units = {}, price = {}, every = "1s" }
      |                                                ^^

    error: `limit.settle.every`: is valid only with `elapsed_ms` in `by`
     --> weir.toml:5:60
      |
    5 | settle = { by = "json:/a", units = {}, price = {}, every = "1s" }
      |                                                            ^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"json\" }")), @r#"
    error: `limit.settle.units`: is missing
     --> weir.toml:5:10
      |
    5 | settle = { by = "json" }
      |          ^^^^^^^^^^^^^^^
      |
      = help: write it like `units = { "/usage/input_tokens" = 1 }`
    "#);
    let units = "units = { \"a~2\" = 1, \"/b\" = -1, \"/c\" = \"1/0\", \"/d\" = true }";
    insta::assert_snapshot!(said(&limit(&format!("settle = {{ by = \"json\", {units} }}"))), @r#"
    error: `limit.settle.units`: expected a JSON pointer, such as `/usage/total_tokens`
     --> weir.toml:5:35
      |
    5 | settle = { by = "json", units = { "a~2" = 1, "/b" = -1, "/c" = "1/0", "/d" = true } }
      |                                   ^^^^^

    error: `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
     --> weir.toml:5:53
      |
    5 | settle = { by = "json", units = { "a~2" = 1, "/b" = -1, "/c" = "1/0", "/d" = true } }
      |                                                     ^^

    error: `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
     --> weir.toml:5:64
      |
    5 | settle = { by = "json", units = { "a~2" = 1, "/b" = -1, "/c" = "1/0", "/d" = true } }
      |                                                                ^^^^^

    error: `limit.settle.units`: expected a number from 0 to 1000000000 with at most six decimals, or a fraction such as `1/10`
     --> weir.toml:5:78
      |
    5 | settle = { by = "json", units = { "a~2" = 1, "/b" = -1, "/c" = "1/0", "/d" = true } }
      |                                                                              ^^^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"anthropic\", units = { cached = 1 } }")), @r#"
    error: `limit.settle.units`: expected one of `input`, `cache_write`, `cache_read`, `output`
     --> weir.toml:5:40
      |
    5 | settle = { by = "anthropic", units = { cached = 1 } }
      |                                        ^^^^^^
    "#);
    let price = "price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }";
    insta::assert_snapshot!(said(&limit(&format!("settle = {{ by = \"gemini\", {price}, units = {{}} }}"))), @r#"
    error: `limit.settle.price`: expected one of `input`, `cache_read`, `output`
     --> weir.toml:5:66
      |
    5 | settle = { by = "gemini", price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }, units = {} }
      |                                                                  ^^^^^

    error: `limit.settle.price`: needs `input` and `output`
     --> weir.toml:5:83
      |
    5 | settle = { by = "gemini", price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }, units = {} }
      |                                                                                   ^^^^^^^^^^^^^

    error: `limit.settle.price`: expected a table of names and weights
     --> weir.toml:5:102
      |
    5 | settle = { by = "gemini", price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }, units = {} }
      |                                                                                                      ^

    error: `limit.settle.units`: is the same for all models: give `units` or `price`
     --> weir.toml:5:115
      |
    5 | settle = { by = "gemini", price = { a = { input = 1, output = 2, other = 3 }, b = { input = 1 }, c = 3 }, units = {} }
      |                                                                                                                   ^^
    "#);
    insta::assert_snapshot!(said(&limit("settle = { by = \"status\", units = { \"4x\" = 1, \"404\" = -1 } }")), @r#"
    error: `limit.settle.units`: expected a status from 100 to 599, or a class such as `"4xx"`
     --> weir.toml:5:37
      |
    5 | settle = { by = "status", units = { "4x" = 1, "404" = -1 } }
      |                                     ^^^^

    error: `limit.settle.units`: expected a whole number of units, at least 0
     --> weir.toml:5:55
      |
    5 | settle = { by = "status", units = { "4x" = 1, "404" = -1 } }
      |                                                       ^^
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
    insta::assert_snapshot!(said(&limit("stage = \"arrival\"\nsettle = { by = \"elapsed_ms\" }")), @r#"
    error: a limit of stage `arrival` cannot change its charges after the response
     --> weir.toml:6:10
      |
    6 | settle = { by = "elapsed_ms" }
      |          ^^^^^^^^^^^^^^^^^^^^^
    "#);
}
