//! The `server` blocks of nginx with their locations, and the requests of both as conditions of Weir.

use std::ops::Not;

use super::directives::Directive;
use super::level::{Level, Use};
use super::others::Refusal;
use crate::import::draft::{Draft, SourceLine};
use crate::import::limit::Match;
use crate::import::path::Path;
use crate::import::services::Listening;

/// A `server` block.
#[derive(Debug, Default)]
pub(super) struct Site {
    pub(super) place: SourceLine,
    /// Its index of all servers.
    pub(super) index: usize,
    pub(super) listening: Listening,
    /// Its hosts as patterns of Weir.
    pub(super) hosts: Vec<String>,
    /// The value of `$server_name`.
    pub(super) name: String,
    /// Whether it has no name that Weir can match.
    pub(super) is_nameless: bool,
    /// Its locations; the first has all other requests.
    pub(super) spots: Vec<Spot>,
}

/// The requests of a location.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) place: SourceLine,
    pub(super) path: Path,
    pub(super) level: Level,
    pub(super) proxy: Option<Proxy>,
    pub(super) refusal: Option<Refusal>,
    /// Whether no directive names its answer, so that nginx serves files.
    pub(super) has_files: bool,
}

impl Spot {
    pub(super) fn new(place: SourceLine, path: Path, level: Level) -> Self {
        Self { place, path, level, proxy: None, refusal: None, has_files: false }
    }
}

/// A `proxy_pass`.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) place: SourceLine,
    pub(super) service: String,
    pub(super) rewrite: Option<(String, String)>,
}

/// The paths of a `location` among `others`; errs with the reason why Weir has no such pattern.
pub(super) fn path_of(location: &Directive, others: &[Directive]) -> Result<Path, String> {
    let (modifier, text) = split(&location.words.concat());
    let path = parse(modifier, &text)?;
    if modifier != Some("~") {
        return Ok(path);
    }
    let mut is_later = false;
    for other in others.iter().filter(|other| other.name == "location") {
        is_later |= std::ptr::eq(other, location);
        let (modifier, text) = split(&other.words.concat());
        let is_expression = matches!(modifier, Some("~" | "~*"));
        let Ok(theirs) = parse(if is_expression { Some("~") } else { modifier }, &text) else { continue };
        // Here the longest path goes first. nginx prefers `=` and `^~` to an expression, and that to a prefix.
        let is_reversed = match modifier {
            Some("=") => theirs == path,
            Some("^~") => path.is_within(&theirs),
            _ => !is_expression && theirs.is_within(&path),
        };
        if is_reversed {
            return Err(NO_EXPRESSIONS.to_owned());
        }
        if is_expression && !is_later && path.is_within(&theirs) {
            return Err(format!("nginx takes the expression of line {}", other.place.line));
        }
    }
    Ok(path)
}

const NO_EXPRESSIONS: &str = "Weir does not translate regular expressions; write `match.path_regex` by hand";

/// The modifier and the path of a location.
fn split(words: &str) -> (Option<&'static str>, String) {
    let modifier = ["=", "^~", "~*", "~"].into_iter().find(|modifier| words.starts_with(modifier));
    (modifier, words[modifier.map_or(0, str::len)..].to_owned())
}

fn parse(modifier: Option<&str>, text: &str) -> Result<Path, &'static str> {
    match modifier {
        Some("=") => Path::exact(text),
        Some("^~") => Path::prefix(text),
        Some("~") => {
            // Without `\.`, a dot is any character.
            let literal = text.replace("\\.", "").contains('.').not().then(|| text.replace("\\.", "."));
            let path = literal.as_deref().and_then(|text| text.strip_prefix('^')).ok_or(NO_EXPRESSIONS)?;
            let path = path.strip_suffix('$').map_or_else(|| Path::prefix(path), Path::exact);
            let is_segments = |path: &Path| matches!(path, Path::Exact(_)) || path.text().ends_with('/');
            path.ok().filter(is_segments).ok_or(NO_EXPRESSIONS)
        }
        Some(_) => Err(NO_EXPRESSIONS),
        None if text.starts_with('@') => Err("Weir has no named locations"),
        None => Path::prefix(text),
    }
}

impl Site {
    /// Reads the names of `server_name`.
    pub(super) fn add_names(&mut self, directive: &Directive, draft: &mut Draft) {
        if self.name.is_empty() {
            directive.word(0).clone_into(&mut self.name);
        }
        for word in &directive.words {
            let name = word.to_ascii_lowercase();
            match name.strip_prefix('.') {
                Some(domain) => self.hosts.extend([domain.to_owned(), format!("*.{domain}")]),
                None if name.starts_with('~') || name.ends_with(".*") => {
                    draft.left_out(directive.place, format!("`{word}`: Weir has no such pattern of hosts"));
                }
                None if name == "_" || name.is_empty() => {}
                None => self.hosts.push(name),
            }
        }
    }

    /// The requests of this server that `in_force` is about: the paths of `match` and of `except`.
    pub(super) fn region(
        &self,
        in_force: &dyn Fn(&Spot) -> Option<Use>,
        draft: &mut Draft,
    ) -> (Vec<String>, Vec<String>) {
        let (with, without): (Vec<_>, Vec<_>) = self.spots.iter().partition(|spot| in_force(spot).is_some());
        let is_everywhere = with.iter().any(|spot| spot.path.is_all());
        let mut matches = Vec::new();
        if !is_everywhere {
            matches = with.iter().flat_map(|spot| spot.path.patterns()).collect();
        }
        let mut except = Vec::new();
        for spot in without.into_iter().filter(|spot| !spot.path.is_all()) {
            if !is_everywhere && !with.iter().any(|outer| spot.path.is_within(&outer.path)) {
                continue;
            }
            if with.iter().any(|inner| inner.path.is_within(&spot.path)) {
                draft.differs(spot.place, "Weir applies the limits around it here, too: they hold for a part of it");
            } else {
                except.extend(spot.path.patterns());
            }
        }
        (matches, except)
    }
}

/// The routes to the services of all servers, the most specific first: exact hosts, then the longest wildcards.
pub(super) fn routed(sites: &[Site]) -> Vec<(Match, &Spot, &Proxy)> {
    let mut sites: Vec<_> = sites.iter().collect();
    let wildcard = |site: &Site| site.hosts.iter().filter(|host| host.starts_with('*')).map(String::len).max();
    sites.sort_by_key(|site| (site.hosts.is_empty(), wildcard(site).map(std::cmp::Reverse)));
    let mut routed = Vec::new();
    for site in sites {
        let mut spots: Vec<_> = site.spots.iter().collect();
        let is_prefix = |spot: &Spot| matches!(spot.path, Path::Prefix(_));
        spots.sort_by_key(|spot| (is_prefix(spot), std::cmp::Reverse(spot.path.text().len())));
        for spot in spots {
            let paths = spot.path.patterns();
            let matches = Match { hosts: site.hosts.clone(), paths, ..Match::default() };
            routed.extend(spot.proxy.as_ref().map(|proxy| (matches, spot, proxy)));
        }
    }
    routed
}
