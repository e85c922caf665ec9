//! Overrides that are set while Weir runs, for keys in Redis.

use serde_json::json;

use crate::ops::until;
use crate::support::{Client, Redis, Upstream};

use super::{assert_no_fallback, patient, shared, start};

/// Redis forgets a key when it is idle under the rule that it knows. So it has to hear of a slower one before that.
#[test]
fn a_lower_override_refills_nothing() {
    let kinds = ["rate = \"20/s\"\nburst = 100", "algorithm = \"sliding_log\"\nrate = \"100/5s\""];
    for kind in kinds {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let limit = format!("[[limit]]\nname = \"each\"\nkey = [\"path\"]\n{kind}\n");
        let fleet = start(&upstream, &shared(&patient(&redis), &limit));
        let ask = || fleet.weirs.iter().map(|weir| Client::connect(weir.address()).get("/a").status);
        assert!(fleet.ask(200, 6, &["/a"]).passed() >= 100, "{kind}");
        let body = json!({ "limit": "each", "key": { "path": "/a" }, "to": "20/h" });
        for weir in &fleet.weirs {
            let answer = weir.ask_admin("POST", "/v1/overrides", &body);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let name = redis.keys().into_iter().find(|name| name.starts_with("weir:{each:")).unwrap();
        until("Redis has the new rule", || {
            assert!(ask().all(|status| status == 429), "{kind}: refilled");
            redis.call(&["PTTL", &name]).number() > 60_000
        });
        assert_no_fallback(&fleet);
    }
}
