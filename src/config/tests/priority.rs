//! `[priority]` and `[overload]`: their values, and what is wrong with them.

use super::*;
use crate::engine::policy::{Overload, Priority, PriorityRule};

#[test]
fn rules_and_bounds() {
    let text = format!(
        "{UPSTREAM}[server]\ntrusted_proxies = ['192.0.2.1']
         [plans]\nfrom = 'header:x-plan'
         [priority]\nheader = 'X-Priority'\nmin_share = '5%'
         rule = [
             {{ priority = 'critical', match = {{ path = '/pay', method = ['GET', 'POST'] }} }},
             {{ priority = 'background', plan = ['free', 'trial'] }},
             {{ priority = 'normal' }},
         ]
         [overload]\ncpu = '90%'\nin_flight = 5000\nqueue_delay = '200ms'\n"
    );
    let policy = compile(&text).unwrap_or_else(|problems| panic!("{problems}")).policy;
    let priorities = policy.priorities.unwrap();
    let rule = |rule: &PriorityRule| (rule.priority, rule.matches.paths.len(), rule.plans.len());
    let rules: Vec<_> = priorities.rules.iter().map(rule).collect();
    assert_eq!(rules, [(Priority::Critical, 1, 0), (Priority::Background, 0, 2), (Priority::Normal, 0, 0)]);
    let methods: Vec<_> = priorities.rules[0].matches.methods.iter().map(ToString::to_string).collect();
    assert_eq!(methods, ["GET", "POST", "HEAD"]);
    assert_eq!((priorities.header.as_ref().unwrap().as_str(), priorities.min_share_percent), ("x-priority", 5));
    let bounds = Overload { cpu_percent: Some(90), in_flight: Some(5000), queue_delay_ns: Some(200_000_000) };
    assert_eq!(policy.overload, Some(bounds));
    let policy = compile(UPSTREAM).unwrap().policy;
    assert!(policy.priorities.is_none() && policy.overload.is_none());
}

#[test]
fn wrong_priorities_and_bounds() {
    for (text, expected) in [
        ("[priority]", "`[priority]` gives no request a priority"),
        ("[priority]\nmin_share = '5%'", "`[priority]` gives no request a priority"),
        ("[priority]\nheader = 'x-priority'", "`priority.header`: a header counts only from trusted proxies"),
        ("[[priority.rule]]\nmatch = { path = '/a' }", "`priority.rule.priority` is missing"),
        ("[[priority.rule]]\npriority = 'high'", "`high` is not one of `critical`, `normal`, `background`"),
        ("[[priority.rule]]\npriority = 'normal'\nmatch = { header = { a = 'b' } }", "unknown key `header`"),
        ("[[priority.rule]]\npriority = 'normal'\nplan = 'free'", "without `[plans]` no request has a plan"),
        (
            "[plans]\nfrom = 'header:x-plan'\n[[priority.rule]]\npriority = 'normal'\nplan = 'free'",
            "a plan in a header counts only from trusted proxies",
        ),
        (
            "[[priority.rule]]\npriority = 'normal'\n[[priority.rule]]\npriority = 'critical'\nmatch = { path = '/a' }",
            "no request comes to this rule",
        ),
        ("[[priority.rule]]\npriority = 'normal'\n[priority]\nmin_share = '26%'", "`26%` is more than `25%`"),
        ("priority = { min_share = '-1%', rule = [{ priority = 'normal' }] }", "`-1%` is not a whole percentage"),
        ("[overload]", "`[overload]` has no bound"),
        ("[overload]\ncpu = '0%'", "`overload.cpu`: `0%` is not a whole percentage from `1%` to `100%`"),
        ("[overload]\ncpu = '100%'", "`overload.cpu`: the CPU time in use never exceeds `100%`"),
        ("[overload]\ncpu = 90", "`overload.cpu`"),
        ("[overload]\nin_flight = 0", "`overload.in_flight`"),
        ("[overload]\nqueue_delay = '0s'", "`overload.queue_delay`"),
        ("[overload]\nmemory = '90%'", "unknown key `memory` in `[overload]`"),
    ] {
        let (first, rest) = if text.starts_with('[') { ("", text) } else { (text, "") };
        let problems = compile(&format!("{first}\n{UPSTREAM}{rest}\n")).map(|_| ()).unwrap_err().to_string();
        assert!(problems.contains(expected), "{text}\n{problems}");
    }
}

#[test]
fn a_plan_that_no_limit_has_is_a_warning() {
    let text = format!(
        "{UPSTREAM}[server]\ntrusted_proxies = ['192.0.2.1']\n[plans]\nfrom = 'header:x-plan'
         [[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\nplans = {{ free = '2/s' }}
         [[priority.rule]]\npriority = 'background'\nplan = 'fre'\n"
    );
    let warnings = compile(&text).unwrap_or_else(|problems| panic!("{problems}")).warnings.to_string();
    assert!(warnings.contains("`priority.rule.plan`: no limit has a plan `fre`"), "{warnings}");
}
