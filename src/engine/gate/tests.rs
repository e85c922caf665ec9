//! Scripts in virtual time: requests, their instants, and the answers with their instants.

mod adaptation;
mod adapted_rate;
mod adopt_rules;
mod bans;
mod candidate;
mod dates;
mod delay;
mod delta;
mod explain;
mod fair_share;
mod handover;
mod hold;
mod jitter;
mod keyed;
mod keys;
mod lease;
mod lookup;
mod named_charges;
mod outages;
mod partly;
mod priority;
mod ramp;
mod rate;
mod redis;
mod refusal_log;
mod remote;
mod settle;
mod shared_bans;
mod spend;
mod stages;
mod stream;
mod stress;
mod top_keys;
mod unsettled;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, Method};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use self::redis::FakeRedis;
use super::{Gate, HoldCaps, Live, Pass, Refusal, Step};
use crate::base::fields::FieldBuf;
use crate::base::telemetry::Metrics;
use crate::base::time::{self, Clock, Timestamp};
use crate::engine::limit::adaptive_rate::WHOLE;
use crate::engine::limit::ban::Rule as BanRule;
use crate::engine::limit::fair_share::{Rule as FairShareRule, SharedPool};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::tests::{algorithm, each_algorithm};
use crate::engine::limit::{Algorithm, Key, LeaseUnits, OnFull, Quota, Rate, Retry, concurrency};
use crate::engine::policy::KeyPart;
use crate::engine::policy::client_ip::{AddressHeader, ClientIpRules, Prefixes};
use crate::engine::policy::{
    Allowed, Cost, DelayRule, Except, Facts, HeaderTest, HoldRule, Identity, Limit, Match, Mode, OnLimit, PlanSource,
    Policy, Priorities, RefusalRules, Repeated, Stage, Strategy,
};
use crate::engine::store::backend::{OnFailure, Unavailable};
use crate::engine::store::{RemoteStore, TokenCache, Usage};

const MS_NS: u64 = 1_000_000;
const MANY: Usage = Usage { count: 1000, bytes: 1 << 20 };
const CAPS: HoldCaps = HoldCaps { all: MANY, per_client: MANY };

fn ns(text: &str) -> u64 {
    let duration: Duration = humantime::parse_duration(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    u64::try_from(duration.as_nanos()).unwrap()
}

/// A limit on requests with the header of its name. The header's value is the key.
fn limit(name: &str, count: u64, period: &str, burst: u64, on_limit: OnLimit) -> Limit {
    let header: HeaderName = name.parse().unwrap();
    Limit {
        name: name.into(),
        stage: Stage::Identified,
        mode: Mode::Enforce,
        enforced_percent: 100,
        matches: Match { headers: vec![(header.clone(), HeaderTest::Present)], ..Match::default() },
        except: Except::default(),
        key: vec![KeyPart::Header(header, Repeated::Reject)],
        allowed: Allowed::to_all(Algorithm::TokenBucket(
            Quota::new(Rate { count, period_ns: ns(period) }, burst).unwrap(),
        )),
        strategy: Strategy::Local,
        cost: Cost::Units(1),
        after: None,
        on_limit,
        refusals: RefusalRules::default(),
        ban: None,
        stale: None,
        max_keys: 1000,
        on_full: OnFull::Sketch,
        persist: true,
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

/// The bucket of a limit, and the cost of a request.
fn bucket(limit: &Limit) -> (&Quota, u64) {
    match (&limit.allowed.usual, &limit.cost) {
        (Algorithm::TokenBucket(quota), Cost::Units(units)) => (quota, *units),
        other => panic!("{other:?}"),
    }
}

fn hold(max_wait_ns: Option<u64>) -> OnLimit {
    OnLimit::Hold(HoldRule { max_wait_ns, max_waiting: 1000 })
}

fn policy(limits: Vec<Limit>, identities: Vec<Identity>) -> Policy {
    Policy::new(
        limits,
        identities,
        ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, prefixes: Prefixes::default() },
    )
    .with_access(None, Some(PlanSource::Header(HeaderName::from_static("x-plan"))))
}

/// `x-priority` of any client names the priority.
fn priorities(min_share_percent: u8) -> Priorities {
    Priorities { header: Some(HeaderName::from_static("x-priority")), rules: Vec::new(), min_share_percent }
}

fn new_gate() -> &'static Gate {
    gate_of(Clock::start())
}

fn gate_of(clock: Clock) -> &'static Gate {
    Box::leak(Box::new(Gate::new(clock, [7; 16], metrics())))
}

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new("0", "test").unwrap())
}

fn install(gate: &Gate, limits: impl IntoIterator<Item = Limit>, caps: HoldCaps) -> &'static Live {
    install_with(gate, limits, caps, &[])
}

fn install_with(
    gate: &Gate,
    limits: impl IntoIterator<Item = Limit>,
    caps: HoldCaps,
    stores: &[RemoteStore],
) -> &'static Live {
    let policy = policy(limits.into_iter().collect(), Vec::new());
    Box::leak(Box::new(gate.install_with(policy, caps, Arc::new(TokenCache::new(10)), stores)))
}

/// Headers of `limit=value` words.
fn headers(words: &[&str]) -> FieldBuf {
    words.iter().filter_map(|word| word.split_once('=')).collect()
}

fn facts(headers: &FieldBuf) -> Facts<'_> {
    Facts {
        method: &Method::GET,
        host: "h",
        path: "/",
        query: None,
        headers: headers.fields(),
        client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        is_free_preflight: false,
        is_proxied: true,
        certificate: None,
        cost: None,
        body: None,
    }
}

fn ask(gate: &'static Gate, live: &'static Live, headers: &FieldBuf) -> Step<'static> {
    gate.admit(live, Stage::Identified, &facts(headers), || 100, gate.clock.now()).unwrap()
}

/// The answer to a request, once it has waited for all that it must wait for.
async fn answer(
    mut step: Step<'static>,
    redis: &FakeRedis,
    headers: &FieldBuf,
) -> Result<Pass<'static>, Refusal<'static>> {
    loop {
        match step {
            Step::Pass(pass) => return Ok(*pass),
            Step::Refuse(refusal) => return Err(*refusal),
            Step::Wait(waiting) => return waiting.wait(redis).await.map(|pass| *pass).map_err(|refusal| *refusal),
            Step::Delay(delayed) => return delayed.wait().await.map(|pass| *pass).map_err(|refusal| *refusal),
            Step::Ask(asking) => step = asking.ask(redis, &facts(headers), || 100).await,
        }
    }
}

/// Names and values, owned.
fn pairs_of(key: &[(&str, &str)]) -> Vec<(String, String)> {
    key.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Asserts that no request waits, no capacity is reserved, and no queue remains.
fn assert_at_rest(gate: &Gate, live: &Live) {
    assert!(gate.capacity.is_empty(), "capacity for waiting requests: {:?}", gate.capacity);
    let known = gate.states.lock().unwrap();
    for state in known.values().chain(&live.states) {
        assert_eq!(state.metrics.held_now.get(), 0, "gauge of {}", state.name);
        assert!(state.queues.is_empty() && state.delays.is_empty(), "queues of {}", state.name);
    }
}

/// The answer to a request, and its instant.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    at_ns: u64,
    what: String,
    retry: Option<Retry>,
}

impl Told {
    fn new(at_ns: u64, answer: &Result<Pass<'_>, Refusal<'_>>) -> Self {
        match answer {
            Ok(_) => Self { at_ns, what: "pass".into(), retry: None },
            Err(refusal) => Self { at_ns, what: format!("{:?}", refusal.cause), retry: Some(refusal.retry) },
        }
    }
}

/// Runs a script in milliseconds. An answer may come up to one millisecond late, because of tokio's timers.
///
/// - `limit NAME COUNT PERIOD BURST reject|hold=MAX_WAIT|delay=STEP,MAX [waiting=N] [cost=N] [shadow] [off]
///   [ban=COUNT/PERIOD,FOR,FOR_MAX] [override=KEY,COUNT,PERIOD,BURST] [plan=NAME,COUNT,PERIOD,BURST] [redis=REPLICAS]
///   [lease=REPLICAS,UNITS] [concurrency=MAX] [and=COUNT/PERIOD] [other=REPLICAS]`; `other` is a second store
/// - `store split|local|reject|allow`: what decides while the store is down
/// - `AT store up|down|cold|slow=LATENCY|late=LATENCY`; `late` is down after this time
/// - `AT other LATENCY`: of the second store
/// - `AT calls N`: the calls to the store since the last such row
/// - `AT elsewhere LIMIT=KEY UNITS`: another replica charges units
/// - `AT remain LIMIT=KEY UNITS`: the units that the store has for a key
/// - `priorities MIN_SHARE`: `x-priority` names the priority
/// - `caps REQUESTS BYTES`: bounds on waiting requests; a head has 100 bytes
/// - `AT limit ...`, `AT without NAME`: a reload
/// - `AT ask NAME LIMIT=KEY... [x-plan=NAME] [undo=AFTER] [late]`: with `undo` the pass is dropped uncommitted, AFTER it came;
///   with `late` the request came before the last reload, and is decided by the limits before it
/// - `AT check NAME LIMIT=KEY[*UNITS]... [plan=NAME]`: charges without a request; the answer has the units that remain
/// - `AT ask r1..r3 ...`: a row of each of these names, and so with `check`
/// - `AT leave NAME` · `AT close` · `AT return`: units of leases that have ended go back
/// - `... > [AT] pass` · `... > [AT] CAUSE RETRY`: the answer, at once or at AT. A request without one gets none
/// - `> AT NAME pass` · `> AT NAME CAUSE RETRY`: the same in a row of its own, where the order of the answers matters.
struct Script {
    gate: &'static Gate,
    live: &'static Live,
    /// What was in force before.
    before: &'static Live,
    start: Timestamp,
    limits: BTreeMap<String, Limit>,
    priorities: Option<Priorities>,
    caps: HoldCaps,
    redis: FakeRedis,
    store: RemoteStore,
    other: RemoteStore,
    told: Arc<Mutex<HashMap<String, Told>>>,
    tasks: HashMap<String, JoinHandle<()>>,
}

/// Tests by name, each with scripts to [`check`].
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident: $($rows:literal),+;)+) => {$(
        $(#[$doc])*
        #[tokio::test(start_paused = true)]
        async fn $name() {
            $(super::check($rows).await;)+
        }
    )+};
}
use scripts;

async fn check(rows: &str) {
    let mut told = run(rows).await;
    for row in lines(rows) {
        expect(&mut told, row);
    }
    assert!(told.is_empty(), "unexpected: {told:?}");
}

fn lines(rows: &str) -> impl Iterator<Item = &str> {
    rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'))
}

/// The words of a row before its `>`, and those after it.
fn cells(row: &str) -> [Vec<&str>; 2] {
    let (question, answer) = row.split_once('>').unwrap_or((row, ""));
    [question, answer].map(|half| half.split_whitespace().collect())
}

/// `r1..r3` are three names.
fn names(text: &str) -> Vec<String> {
    let Some((first, last)) = text.split_once("..") else { return vec![text.to_owned()] };
    let prefix = first.trim_end_matches(|char: char| char.is_ascii_digit());
    let number = |name: &str| name.strip_prefix(prefix).unwrap().parse::<u32>().unwrap();
    (number(first)..=number(last)).map(|number| format!("{prefix}{number}")).collect()
}

/// Runs a script, and returns all answers by name.
async fn run(rows: &str) -> HashMap<String, Told> {
    let gate = new_gate();
    let redis = FakeRedis::new(gate.clock);
    let live = install(gate, [], CAPS);
    let mut script = Script {
        gate,
        live,
        before: live,
        start: gate.clock.now(),
        limits: BTreeMap::new(),
        priorities: None,
        caps: CAPS,
        store: redis.store(OnFailure::Split),
        other: redis.store(OnFailure::Split),
        redis,
        told: Arc::default(),
        tasks: HashMap::new(),
    };
    for [question, _] in lines(rows).map(cells).filter(|[question, _]| !question.is_empty()) {
        script.run(&question).await;
    }
    for (who, task) in script.tasks {
        let end = timeout(Duration::from_hours(24 * 365), task).await;
        assert!(end.is_ok_and(|end| end.is_ok()), "{who} is stuck");
    }
    assert_at_rest(gate, script.live);
    std::mem::take(&mut *script.told.lock().unwrap())
}

fn is_instant(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

/// Takes the answers that a row expects.
fn expect(told: &mut HashMap<String, Told>, row: &str) {
    let [question, answer] = cells(row);
    let (at, who, answer) = match (&*question, &*answer) {
        (_, []) => return,
        ([], [at, who, answer @ ..]) | ([_, _, who, ..], [at, answer @ ..]) if is_instant(at) => (at, who, answer),
        ([at, _, who, ..], answer) => (at, who, answer),
        _ => panic!("not an answer: {row}"),
    };
    for who in names(who) {
        let found = told.remove(&who).unwrap_or_else(|| panic!("no answer to {who}: {row}"));
        let due_ns = ns(at);
        assert!((due_ns..due_ns + MS_NS).contains(&found.at_ns), "{who}: {row}: {found:?}");
        assert_eq!(found.what, answer[0], "{who}: {row}");
        let late_ns = found.at_ns - due_ns;
        match (answer.get(1), found.retry) {
            (None, None) | (Some(&"never"), Some(Retry::Never)) | (Some(&"release"), Some(Retry::ON_RELEASE)) => {}
            (Some(retry), Some(Retry::AfterNs(found_ns))) => assert_eq!(found_ns + late_ns, ns(retry), "retry: {row}"),
            (_, found) => panic!("{who}: {row}: {found:?}"),
        }
    }
}

impl Script {
    async fn run(&mut self, cells: &[&str]) {
        match *cells {
            ["limit", name, ..] => {
                self.limits.insert(name.into(), parse_limit(&cells[1..]));
            }
            ["priorities", min_share] => {
                self.priorities = Some(priorities(min_share.parse().unwrap()));
            }
            ["caps", waiting, bytes] => {
                let all = Usage { count: waiting.parse().unwrap(), bytes: bytes.parse().unwrap() };
                self.caps = HoldCaps { all, ..self.caps };
            }
            [at, verb @ ("ask" | "check"), who, ref words @ ..] => {
                for who in names(who) {
                    self.until(at).await;
                    if verb == "ask" { self.ask(&who, words) } else { self.check(&who, words) }
                }
                return;
            }
            [at, "leave", who] => {
                self.until(at).await;
                let task = self.tasks.remove(who).unwrap_or_else(|| panic!("{who} does not wait"));
                task.abort();
                assert!(task.await.is_err(), "{who} was gone before");
                return;
            }
            [at, "return"] => {
                self.until(at).await;
                self.live.return_leases(false);
                return;
            }
            [at, "close"] => {
                self.until(at).await;
                self.gate.close();
                return;
            }
            [at, "calls" | "elsewhere" | "other" | "remain" | "store", ..] => {
                self.until(at).await;
                self.run_store(&cells[1..], at);
                return;
            }
            ["store", on_failure] => {
                self.store = self.redis.store(match on_failure {
                    "split" => OnFailure::Split,
                    "local" => OnFailure::Local,
                    "reject" => OnFailure::Reject,
                    "allow" => OnFailure::Allow,
                    _ => panic!("not on_failure: {on_failure}"),
                });
            }
            [at, "without", name] => {
                self.until(at).await;
                self.limits.remove(name);
            }
            [at, "limit", name, ..] => {
                self.until(at).await;
                self.limits.insert(name.into(), parse_limit(&cells[2..]));
            }
            _ => panic!("not a row: {cells:?}"),
        }
        let stores = [self.store.clone(), self.other.clone()];
        let policy = policy(self.limits.values().cloned().collect(), Vec::new());
        let policy = policy.with_priorities(self.priorities.clone(), None);
        let live = self.gate.install_with(policy, self.caps, Arc::new(TokenCache::new(10)), &stores);
        self.before = std::mem::replace(&mut self.live, Box::leak(Box::new(live)));
        self.gate.adopt_rules(self.before, self.live);
    }

    /// A row about the store.
    fn run_store(&self, cells: &[&str], at: &str) {
        match *cells {
            ["calls", calls] => assert_eq!(self.redis.take_calls().to_string(), calls, "calls until {at}"),
            ["other", latency] => self.redis.slow_other(Duration::from_nanos(ns(latency))),
            ["elsewhere", what, units] => {
                let (limit, key) = self.key(what);
                self.redis.settle(&limit.name, key, &limit.allowed.usual, units.parse().unwrap());
            }
            ["remain", what, units] => {
                let (limit, key) = self.key(what);
                let remaining = self.redis.remaining(&limit.name, key, &limit.allowed.usual);
                assert_eq!(remaining.to_string(), units, "units of {what} at {at}");
            }
            ["store", "up"] => self.redis.set(None, Duration::ZERO),
            ["store", "down"] => self.redis.set(Some(Unavailable::Down), Duration::ZERO),
            ["store", "cold"] => self.redis.set(Some(Unavailable::Cold), Duration::ZERO),
            ["store", slow] => {
                let (word, latency) = slow.split_once('=').unwrap();
                let trouble = (word == "late").then_some(Unavailable::Timeout);
                self.redis.set(trouble, Duration::from_nanos(ns(latency)));
            }
            _ => panic!("not a row: {cells:?}"),
        }
    }

    /// The limit and the key of `LIMIT=KEY`.
    fn key(&self, what: &str) -> (&Limit, Key) {
        let (limit, text) = what.split_once('=').unwrap();
        let limit = &self.limits[limit];
        (limit, self.gate.secret.key_of_text(&limit.key, text, Prefixes::default(), &[]).unwrap())
    }

    async fn until(&self, at: &str) {
        sleep_until(self.gate.clock.instant(self.start.saturating_add_ns(ns(at)))).await;
    }

    fn check(&mut self, who: &str, words: &[&str]) {
        let plan = words.iter().find_map(|word| word.strip_prefix("plan=")).map(str::to_owned);
        let charge = |word: &&str| {
            let (limit, key) = word.split_once('=').filter(|(limit, _)| *limit != "plan")?;
            let (key, rate) = key.split_once('@').map_or((key, None), |(key, rate)| (key, rate.split_once('/')));
            let (key, units) = key.split_once('*').unwrap_or((key, "1"));
            let key = pairs_of(&[(&format!("header:{limit}"), key)]);
            let units = units.parse().unwrap();
            let charge = self.gate.named_charge(self.live, limit, &key, plan.clone(), units).unwrap();
            let rate = rate.map(|(count, period)| Rate { count: count.parse().unwrap(), period_ns: ns(period) });
            let requested = |rate| self.gate.with_rate(self.live, charge.clone(), rate).unwrap();
            Some(rate.map_or_else(|| charge.clone(), requested))
        };
        // A task outlives this call.
        let charges: &'static [_] = words.iter().filter_map(charge).collect::<Vec<_>>().leak();
        let (gate, live, start, redis) = (self.gate, self.live, self.start, self.redis.clone());
        let (told, name) = (Arc::clone(&self.told), who.to_owned());
        let decided = gate.decide_named(live, charges);
        let task = tokio::spawn(async move {
            let verdict = match decided {
                Some(verdict) => verdict,
                None => gate.decide_named_by(live, charges, &redis).await,
            };
            let item = verdict.decisive();
            let denial = item.and_then(|item| item.denial);
            assert_eq!(denial.is_none(), verdict.is_admitted);
            let what = denial.map_or("pass".to_owned(), |denial| format!("{:?}", denial.cause));
            let what = item.map_or(what.clone(), |item| format!("{what}/{}", item.standing.remaining));
            let at_ns = gate.clock.now().ns_since(start);
            told.lock().unwrap().insert(name, Told { at_ns, what, retry: denial.map(|denial| denial.retry) });
        });
        assert!(self.tasks.insert(who.to_owned(), task).is_none(), "{who} checks twice");
    }

    fn ask(&mut self, who: &str, words: &[&str]) {
        let undo_after = words.iter().find_map(|word| word.strip_prefix("undo=")).map(ns);
        let words: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("undo=")).collect();
        let fields = headers(&words);
        let live = if words.contains(&"late") { self.before } else { self.live };
        let step = ask(self.gate, live, &fields);
        let (gate, start, told, name) = (self.gate, self.start, Arc::clone(&self.told), who.to_owned());
        let tell = move |answer: Result<Pass<'static>, Refusal<'static>>| {
            told.lock().unwrap().insert(name, Told::new(gate.clock.now().ns_since(start), &answer));
            answer.ok()
        };
        let end = async move |pass: Option<Pass<'static>>| match (pass, undo_after) {
            (Some(pass), Some(after_ns)) => {
                tokio::time::sleep(Duration::from_nanos(after_ns)).await;
                drop(pass);
            }
            (Some(mut pass), None) => pass.charged.commit(true),
            (None, _) => {}
        };
        let task = match step {
            Step::Pass(pass) => {
                let pass = tell(Ok(*pass));
                tokio::spawn(async move { end(pass).await })
            }
            Step::Refuse(refusal) => {
                tell(Err(*refusal));
                return;
            }
            step => {
                let redis = self.redis.clone();
                tokio::spawn(async move { end(tell(answer(step, &redis, &fields).await)).await })
            }
        };
        assert!(self.tasks.insert(who.to_owned(), task).is_none(), "{who} asks twice");
    }
}

fn parse_limit(cells: &[&str]) -> Limit {
    let [name, count, period, burst, ref options @ ..] = *cells else { panic!("not a limit: {cells:?}") };
    let mut limit = limit(name, count.parse().unwrap(), period, burst.parse().unwrap(), OnLimit::Reject);
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("reject", _) => {}
            ("hold", "forever") => limit.on_limit = hold(None),
            ("hold", max_wait) => limit.on_limit = hold(Some(ns(max_wait))),
            ("waiting", max) => {
                let max = max.parse().unwrap();
                match &mut limit.on_limit {
                    OnLimit::Hold(rule) => rule.max_waiting = max,
                    OnLimit::Delay(rule) => rule.max_waiting = max,
                    OnLimit::Reject => panic!("nobody waits"),
                }
            }
            ("delay", rule) => {
                let (step, max) = rule.split_once(',').unwrap();
                let slow_down = SlowDown { step_ns: ns(step), max_ns: ns(max) };
                limit.on_limit = OnLimit::Delay(DelayRule { slow_down, max_waiting: 1000 });
            }
            ("override", rule) => limit.allowed.overrides.push(parse_rule(rule)),
            ("plan", rule) => limit.allowed.plans.push(parse_rule(rule)),
            ("ban", rule) => limit.ban = Some(parse_ban(rule)),
            ("cost", cost) => limit.cost = Cost::Units(cost.parse().unwrap()),
            ("shadow", _) => limit.mode = Mode::Shadow,
            ("enforce", percent) => limit.enforced_percent = percent.parse().unwrap(),
            ("concurrency", max) => {
                let rule = concurrency::Rule::new(max.parse().unwrap()).unwrap();
                limit.allowed = Allowed::to_all(Algorithm::Concurrency(rule));
            }
            ("shared", _) => {
                let Algorithm::TokenBucket(quota) = limit.allowed.usual else { panic!("not a bucket: {cells:?}") };
                let rule = FairShareRule::new(quota, 1, SharedPool::default());
                limit.allowed = Allowed::to_all(Algorithm::FairShare(rule));
            }
            ("off", _) => limit.mode = Mode::Off,
            // As a limit has it whose callers request rates.
            ("window", kind) => {
                let from = if kind == "fixed" { " from first" } else { "" };
                limit.allowed = Allowed::to_all(algorithm(&format!("{kind}_window {count}/{period}{from}")));
                limit.on_full = OnFull::Reject;
            }
            ("and", rate) => {
                let both = format!("token_bucket {count}/{period} burst {burst}+token_bucket {rate}");
                limit.allowed = Allowed::to_all(algorithm(&both));
            }
            ("max_keys", max) => limit.max_keys = max.parse().unwrap(),
            ("lease", lease) => {
                let (replicas, units) = lease.split_once(',').unwrap();
                let units = LeaseUnits::Fixed(units.parse().unwrap());
                limit.strategy = Strategy::Lease { store: 0, replicas: replicas.parse().unwrap(), units };
            }
            ("other", replicas) => limit.strategy = Strategy::Redis { store: 1, replicas: replicas.parse().unwrap() },
            ("redis", replicas) => limit.strategy = Strategy::Redis { store: 0, replicas: replicas.parse().unwrap() },
            _ => panic!("not an option: {option}"),
        }
    }
    limit
}

/// `NAME,COUNT,PERIOD,BURST`, or `NAME,unlimited`.
fn parse_rule(text: &str) -> (Box<str>, Option<Algorithm>) {
    if let Some(name) = text.strip_suffix(",unlimited") {
        return (name.into(), None);
    }
    let [name, count, period, burst] = text.split(',').collect::<Vec<_>>()[..] else { panic!("not a rule: {text}") };
    let rate = Rate { count: count.parse().unwrap(), period_ns: ns(period) };
    (name.into(), Some(Algorithm::TokenBucket(Quota::new(rate, burst.parse().unwrap()).unwrap())))
}

/// `COUNT/PERIOD,FOR,FOR_MAX`.
fn parse_ban(text: &str) -> BanRule {
    let [after, first, most] = text.split(',').collect::<Vec<_>>()[..] else { panic!("not a ban: {text}") };
    let (count, period) = after.split_once('/').unwrap();
    let after = Rate { count: count.parse().unwrap(), period_ns: ns(period) };
    BanRule::new(after, ns(first), ns(most)).unwrap()
}
