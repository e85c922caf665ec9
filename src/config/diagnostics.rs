//! Errors and warnings about a configuration, with excerpts of its text.
//!
//! The readers find problems, and `load` masks secrets before the text arrives here. A check adds a warning by
//! `Table::warn`, or by [`Problem::warning`] and `Context::note`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::{error, fmt};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};

use super::sources::Sources;
use crate::admin::FindingBody;
use crate::base::visible::visible;

/// The most problems that are shown; others are counted. Each shown problem costs a search of the whole text.
const SHOWN_MAX: usize = 20;

/// Errors, or warnings, about a configuration, in the order of its text.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    name: String,
    source: String,
    problems: Vec<Problem>,
    sources: Sources,
    /// Whether messages show positions only.
    has_no_excerpts: bool,
}

/// Whether a configuration with a problem can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Severity {
    /// The configuration cannot be used.
    #[default]
    Error,
    /// The configuration can be used, but probably has a mistake.
    Warning,
    /// The configuration means what it says, and a reader may overlook it.
    Note,
}

/// One error or warning.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    /// A stable name that operators can search for. Each warning has its own name, and errors have the name of their kind.
    pub(super) code: &'static str,
    /// The position; `None` if the problem is not about any text.
    pub(super) span: Option<Range<usize>>,
    /// The headline.
    pub(super) title: String,
    /// A note beside the caret.
    pub(super) label: String,
    /// A correction.
    pub(super) help: Option<String>,
    /// A related position, and its relation.
    pub(super) also: Option<(Range<usize>, &'static str)>,
    /// Whether it is about an absent part. It is dropped if text could not be read, because the part may be there.
    pub(super) absence: bool,
}

/// A correction, if there is one.
pub(super) trait Help {
    /// Its text.
    fn text(self) -> Option<String>;
}

impl Help for &str {
    fn text(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl Help for String {
    fn text(self) -> Option<String> {
        Some(self)
    }
}

impl<H: Help> Help for Option<H> {
    fn text(self) -> Option<String> {
        self.and_then(Help::text)
    }
}

impl Problem {
    pub(super) fn new(span: Range<usize>, title: impl Into<String>) -> Self {
        Self { span: Some(span), title: title.into(), code: "invalid", ..Self::default() }
    }

    /// A warning; the configuration stays valid. `code` is a stable name in `snake_case`.
    pub(super) fn warning(code: &'static str, span: Range<usize>, title: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, code, ..Self::new(span, title) }
    }

    /// A note: the configuration is as good as without it, also under `--strict`.
    pub(super) fn remark(code: &'static str, span: Range<usize>, title: impl Into<String>) -> Self {
        Self { severity: Severity::Note, code, ..Self::new(span, title) }
    }

    /// A problem with a file as a whole.
    pub(super) fn whole(title: String) -> Self {
        Self { title, code: "unreadable_file", ..Self::default() }
    }

    pub(super) fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn help(mut self, help: impl Help) -> Self {
        self.help = help.text();
        self
    }

    pub(super) fn also(mut self, span: Range<usize>, how: &'static str) -> Self {
        self.also = Some((span, how));
        self
    }

    pub(super) fn absence(mut self) -> Self {
        self.absence = true;
        self
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    fn start(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.start)
    }
}

impl Diagnostics {
    /// Problems with `source`, which must not hold any secret.
    pub(super) fn new(name: &str, source: String, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::start);
        // Several options may depend on one value.
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert((problem.span.clone(), problem.title.clone())));
        for text in problems.iter_mut().flat_map(|one| [Some(&mut one.title), one.help.as_mut()]).flatten() {
            if let Cow::Owned(shown) = visible(text) {
                *text = shown;
            }
        }
        Self { name: name.into(), source, problems, ..Self::default() }
    }

    /// Shows the positions of problems without the text there.
    pub(super) fn without_excerpts(self) -> Self {
        Self { has_no_excerpts: true, ..self }
    }

    /// Shows the positions of problems, without what is wrong there.
    pub(super) fn without_details(mut self) -> Self {
        for problem in &mut self.problems {
            let Problem { severity, code, span, .. } = std::mem::take(problem);
            let title = "this override does not apply".to_owned();
            *problem = Problem { severity, code, span, title, ..Problem::default() };
        }
        self
    }

    pub(super) fn read_from(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// The files that were read. A change of one may correct the problems.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The number of warnings.
    pub fn warnings(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Warning).count()
    }

    /// The number of problems.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are no problems. A failed compilation returns at least one.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The headlines.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(|problem| problem.title.as_str())
    }

    /// The first problems, with their places, and the number of the others.
    pub fn findings(&self) -> (Vec<FindingBody>, usize) {
        let shown = self.problems.iter().take(SHOWN_MAX).map(|problem| {
            let Problem { severity, code, title, help, .. } = problem.clone();
            let severity = match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            let (line, column) = problem.span.as_ref().map(|span| self.line_and_column(span)).unzip();
            let (severity, code, file) = (severity.to_owned(), code.to_owned(), self.name.clone());
            FindingBody { severity, code, title, help, file, line, column }
        });
        (shown.collect(), self.problems.len().saturating_sub(SHOWN_MAX))
    }

    fn render(&self, problem: &Problem) -> String {
        let title = match problem.severity {
            Severity::Error => Level::ERROR.primary_title(problem.title.as_str()),
            Severity::Warning => Level::WARNING.primary_title(problem.title.as_str()).id(problem.code),
            Severity::Note => Level::NOTE.primary_title(problem.title.as_str()).id(problem.code),
        };
        let label = (!problem.label.is_empty()).then_some(problem.label.as_str());
        let mut group = match &problem.span {
            None => Group::with_title(title),
            Some(span) if self.has_no_excerpts => {
                let (line, column) = self.line_and_column(span);
                let also = problem.also.as_ref().map(|(span, how)| {
                    let (line, column) = self.line_and_column(span);
                    format!("{how}, at {line}:{column}")
                });
                let notes = label.map(str::to_owned).into_iter().chain(also);
                let notes = notes.map(|note| Level::NOTE.message(normalize_untrusted_str(&note)));
                title.element(Origin::path(&*self.name).line(line).char_column(column)).elements(notes)
            }
            Some(span) => title.element(self.snippet(span, label, problem.also.as_ref())),
        };
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(normalize_untrusted_str(help)));
        }
        Renderer::plain().render(&[group])
    }

    /// Line and column of the start of `span`, both from 1; a column counts characters.
    fn line_and_column(&self, span: &Range<usize>) -> (usize, usize) {
        let before = &self.source[..on_one_line(&self.source, span).start];
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    /// For each error of one file a line `LINE:COLUMN «underlined text» title [label] [also LINE:COLUMN «text» relation]`,
    /// and a line with the help, if there is one.
    #[cfg(test)]
    pub(super) fn brief(&self) -> String {
        assert!(self.name == "weir.toml" && self.problems.iter().all(Problem::is_error), "{self}");
        let place = |span: &Range<usize>| {
            let (line, column) = self.line_and_column(span);
            format!("{line}:{column} «{}»", &self.source[on_one_line(&self.source, span)])
        };
        let brief = |problem: &Problem| {
            let place_of = problem.span.as_ref().map(|span| format!("{} ", place(span)));
            let label = (!problem.label.is_empty()).then(|| format!(" [{}]", problem.label));
            let also = problem.also.as_ref().map(|(span, how)| format!(" [also {} {how}]", place(span)));
            let help = problem.help.as_ref().map(|help| format!("\n  = {help}"));
            [place_of, Some(problem.title.clone()), label, also, help].into_iter().flatten().collect::<String>()
        };
        self.problems.iter().map(brief).collect::<Vec<_>>().join("\n")
    }

    /// The lines of `span`, and of another span if there is one.
    fn snippet<'d>(
        &'d self,
        span: &Range<usize>,
        label: Option<&'d str>,
        also: Option<&(Range<usize>, &'static str)>,
    ) -> Snippet<'d, annotate_snippets::Annotation<'d>> {
        let source = self.source.as_str();
        let span = on_one_line(source, span);
        let also = also.map(|(span, how)| (on_one_line(source, span), *how));
        let shown = whole_lines(source, &span, also.as_ref().map(|(span, _)| span));
        let local = |span: &Range<usize>| span.start - shown.start..span.end - shown.start;
        let line = source[..shown.start].matches('\n').count() + 1;
        let snippet = Snippet::source(&source[shown.clone()])
            .line_start(line)
            .path(self.name.as_str())
            .annotation(AnnotationKind::Primary.span(local(&span)).label(label));
        match also {
            Some((span, how)) => snippet.annotation(AnnotationKind::Context.span(local(&span)).label(how)),
            None => snippet,
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(SHOWN_MAX).enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&self.render(problem))?;
        }
        match self.problems.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

impl error::Error for Diagnostics {}

/// Cuts `span` at the end of its first line.
fn on_one_line(source: &str, span: &Range<usize>) -> Range<usize> {
    let start = source.floor_char_boundary(span.start);
    let line_end = source[start..].find(['\n', '\r']).map_or(source.len(), |at| start + at);
    let end = source.ceil_char_boundary(span.end).clamp(start, line_end);
    start..end
}

/// The lines from the first to the last of two spans: the renderer need not search a long file for them.
fn whole_lines(source: &str, span: &Range<usize>, also: Option<&Range<usize>>) -> Range<usize> {
    let start = also.map_or(span.start, |also| also.start.min(span.start));
    let end = also.map_or(span.end, |also| also.end.max(span.end));
    let from = source[..start].rfind('\n').map_or(0, |at| at + 1);
    let to = source[end..].find('\n').map_or(source.len(), |at| end + at);
    from..to
}

/// The candidate that `name` is most likely a misspelling of.
pub(super) fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // A third of the letters may be wrong, as in rustc: beyond that a suggestion misleads.
    let distance_max = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean ...`, if there is anything to suggest.
pub(super) fn did_you_mean(suggestion: Option<&str>) -> Option<String> {
    suggestion.map(|suggestion| format!("did you mean `{suggestion}`?"))
}
