//! Rules of routers of Traefik, as alternatives of conditions.

use crate::import::limit::Match;
use crate::import::path::Path;

/// The most alternatives of a rule.
const ALTERNATIVES_MAX: usize = 64;
/// The deepest nesting of a rule.
const DEPTH_MAX: usize = 32;

/// The alternatives of a rule, and what Weir matches differently.
///
/// # Errors
/// The reason why Weir has no such condition.
pub(super) fn alternatives(rule: &str) -> Result<(Vec<Match>, Vec<String>), String> {
    let mut reader = RuleReader { rest: rule, differences: Vec::new() };
    let all = reader.any(0)?;
    if reader.rest.trim().is_empty() { Ok((all, reader.differences)) } else { Err(NO_RULE.to_owned()) }
}

const NO_RULE: &str = "the rule cannot be read";

struct RuleReader<'r> {
    rest: &'r str,
    differences: Vec<String>,
}

impl RuleReader<'_> {
    /// Skips `token` if it is next.
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn any(&mut self, depth: usize) -> Result<Vec<Match>, String> {
        let mut any = self.all(depth)?;
        while self.takes("||") {
            any.extend(self.all(depth)?);
        }
        if any.len() > ALTERNATIVES_MAX { Err(NO_RULE.to_owned()) } else { Ok(any) }
    }

    fn all(&mut self, depth: usize) -> Result<Vec<Match>, String> {
        let mut all = self.one(depth)?;
        while self.takes("&&") {
            let next = self.one(depth)?;
            let joined = all.iter().flat_map(|one| next.iter().map(move |other| one.both(other)));
            all = joined.take(ALTERNATIVES_MAX + 1).collect::<Result<_, _>>()?;
        }
        Ok(all)
    }

    fn one(&mut self, depth: usize) -> Result<Vec<Match>, String> {
        if self.takes("!") {
            return Err("Weir has no negated condition of a route".to_owned());
        }
        if self.takes("(") {
            let inner = if depth < DEPTH_MAX { self.any(depth + 1)? } else { return Err(NO_RULE.to_owned()) };
            return if self.takes(")") { Ok(inner) } else { Err(NO_RULE.to_owned()) };
        }
        let (name, rest) = self.rest.trim_start().split_once('(').ok_or(NO_RULE)?;
        self.rest = rest;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            let rest = self.rest.trim_start();
            let quote = rest.chars().next().filter(|c| ['`', '"', '\''].contains(c)).ok_or(NO_RULE)?;
            let (argument, rest) = rest[1..].split_once(quote).ok_or(NO_RULE)?;
            arguments.push(argument);
            self.rest = rest;
            self.takes(",");
        }
        self.condition(name.trim(), &arguments)
    }

    fn condition(&mut self, name: &str, arguments: &[&str]) -> Result<Vec<Match>, String> {
        let mut matches = Match::default();
        match (name, arguments) {
            ("Host", hosts) if !hosts.is_empty() => {
                matches.hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
            }
            ("Method", methods) if !methods.is_empty() => {
                matches.methods = methods.iter().map(|method| (*method).to_owned()).collect();
            }
            ("Path" | "PathPrefix", paths) if !paths.is_empty() => {
                for path in paths {
                    let path = if name == "Path" { Path::exact(path)? } else { Path::prefix(path)? };
                    self.differences.extend(path.difference());
                    matches.paths.extend(path.patterns());
                    if path.is_all() {
                        matches.paths.clear();
                        break;
                    }
                }
            }
            ("Header" | "Headers", [name, value]) => {
                matches.headers.push((name.to_ascii_lowercase(), (*value).to_owned()));
            }
            _ => return Err(format!("Weir has no condition `{name}`")),
        }
        Ok(vec![matches])
    }
}
