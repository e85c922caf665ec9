//! `share_by` and `weights` of a limit, and what is wrong with them.

use super::*;
use crate::engine::limit::Algorithm;
use crate::engine::policy::{KeyPart, Variant};

#[test]
fn shares_need_one_bucket_that_no_other_option_changes() {
    let shared = "rate = '10/s'\nburst = 20\nkey = []\nshare_by = ['ip']\n".to_owned();
    for (limit, expected) in [
        (shared.replace("[]", "['path']"), &["`limit.key`: `share_by` shares one budget for all requests"][..]),
        (shared.replace("['ip']", "[]"), &["`limit.share_by`: needs a part"]),
        (shared.replace("['ip']", "['pi']"), &["`limit.share_by`: `pi` is not a part of a key"]),
        (shared.replace("['ip']", "['route']"), &["`limit.share_by`: `route` is the matching pattern"]),
        (shared.replace("share_by", "weights = { a = 3 } #"), &["`limit.weights`: has an effect only with `share_by`"]),
        (
            shared.clone() + "weights = { a = 0, b = 1001, c = '3', d = -1, e = 4 }",
            &["this is an integer", "this is a string", "`limit.weights.NAME`: expected whole number from 1 to 1000"],
        ),
        (
            shared.clone() + "plans = { a = '9/s' }\noverrides = { '192.0.2.1' = '9/s' }\ncandidate = { rate = '5/s' }",
            &["`limit.plans`: does not go with", "`limit.overrides`: does not go", "`limit.candidate`: does not go"],
        ),
        (shared.clone() + "on_limit = 'delay'", &["`limit.on_limit`: `delay` charges without regard to shares"]),
        (
            shared.replace("burst = 20", "algorithm = 'sliding_window'"),
            &["`limit.share_by`: needs `algorithm = \"token_bucket\"` with one rate"],
        ),
        (
            shared.replace("burst = 20\n", "").replace("'10/s'", "['10/s', '90/min']"),
            &["`limit.share_by`: needs `algorithm = \"token_bucket\"` with one rate"],
        ),
        (
            shared.clone()
                + "strategy = 'redis'\n[store.a]\nredis = 'redis://127.0.0.1:1'\n[fleet]\nstrategy = 'local'\nreplicas = 2\nsecret = { env = 'WEIR_FLEET_SECRET' }",
            &["`limit.strategy`: `share_by` needs `local` or `split`"],
        ),
        (shared.clone() + "persist = true", &["`limit.persist`: fair shares begin anew with the process"]),
        (
            shared.clone() + "stage = 'arrival'\nweights = { a = 3 }",
            &["`limit.weights`: the plan of a request is unknown at stage `arrival`"],
        ),
    ] {
        let Err(problems) = compile(&format!("{UPSTREAM}[[limit]]\nname = 'a'\n{limit}")) else { panic!("{limit}") };
        let said = problems.to_string();
        assert!(expected.iter().all(|expected| said.contains(expected)), "{limit}\n{said}");
    }
}

#[test]
fn the_weight_is_that_of_the_plan() {
    let limit = "[[limit]]\nname = 'a'\nrate = '10/s'\nburst = 20\nkey = []\nshare_by = ['ip', 'host']\n\
                 weights = { gold = 4 }\nstrategy = 'split'\n[fleet]\nstrategy = 'local'\nreplicas = 2\n";
    let config = compile(&format!("{UPSTREAM}{limit}")).unwrap_or_else(|problems| panic!("{problems}"));
    let said = config.warnings.to_string();
    assert!(said.contains("without `[plans]` no request has a plan"), "{said}");
    let limit = &config.policy.limits()[0];
    assert_eq!(limit.key, [KeyPart::Ip, KeyPart::Host]);
    let gold = limit.allowed.plan("gold");
    for (variant, weight) in [(Variant::Usual, 1), (gold, 4)] {
        let Some(Algorithm::FairShare(rule)) = limit.allowed.rule(variant) else { panic!("{variant:?}") };
        assert_eq!((rule.weight(), limit.allowed.usual.capacity()), (weight, 10));
        let written = limit.allowed.written(variant).and_then(|written| written.text(None));
        assert_eq!(written, Some(format!("10/s, burst 20, token bucket, shared with weight {weight}")));
    }
    assert_eq!(limit.allowed.plan("other"), Variant::Usual);
}
