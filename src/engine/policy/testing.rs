//! Helpers for tests of several files.

use http::Method;

use super::{
    Allowed, Cost, Except, Facts, Limit, Match, Mode, OnLimit, PathPattern, RefusalRules, Settle, SettleBy, Stage,
    Strategy,
};
use crate::base::fields::FieldBuf;
use crate::engine::limit::adaptive_rate::WHOLE;
use crate::engine::limit::{Algorithm, OnFull, Quota, Rate};

/// The facts about `GET` for `path` at `host` from 192.0.2.1.
pub(crate) fn facts<'a>(host: &'a str, path: &'a str, headers: &'a FieldBuf) -> Facts<'a> {
    Facts {
        method: &Method::GET,
        host,
        path,
        query: None,
        headers: headers.fields(),
        client_ip: [192, 0, 2, 1].into(),
        is_free_preflight: false,
        is_proxied: false,
        certificate: None,
        cost: None,
        body: None,
    }
}

impl Settle {
    /// A correction with this debt, and with nothing else.
    pub(crate) fn only(by: SettleBy, max_debt: u64) -> Self {
        Self { by, every_ns: None, max_debt, usage_of: None, priced: None, cut_debt: None }
    }
}

/// A limit with these paths and otherwise ordinary settings.
pub(crate) fn limit(name: &str, paths: &[&str]) -> Limit {
    let paths = paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect();
    Limit {
        name: name.into(),
        stage: Stage::Identified,
        mode: Mode::Enforce,
        enforced_percent: 100,
        matches: Match { paths, ..Match::default() },
        except: Except::default(),
        key: Vec::new(),
        allowed: Allowed::to_all(Algorithm::TokenBucket(
            Quota::new(Rate { count: 1, period_ns: 1_000_000_000 }, 1).unwrap(),
        )),
        strategy: Strategy::Local,
        cost: Cost::Units(1),
        after: None,
        on_limit: OnLimit::Reject,
        refusals: RefusalRules::default(),
        ban: None,
        stale: None,
        max_keys: 1,
        on_full: OnFull::Shared,
        persist: false,
        ramp: None,
        ramp_steps: 0,
        adapt: None,
        adapted: WHOLE,
        jitter_percent: 0,
        candidate_of: None,
        unit_name: None,
        is_listed: false,
    }
}
