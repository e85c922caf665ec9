//! What is wrong with a configuration, shown where it is written.
//!
//! Finding problems is not done here, nor which text is secret: the source arrives with secrets struck out.

use std::ops::Range;
use std::{error, fmt};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, normalize_untrusted_str};

use super::Sources;

/// Everything that is wrong with a configuration, in the order it is written.
#[derive(Debug)]
pub struct Diagnostics {
    name: String,
    source: String,
    problems: Vec<Problem>,
    sources: Sources,
}

/// One thing that is wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    /// Where; `None` if it is not about any text.
    pub(super) span: Option<Range<usize>>,
    /// What is wrong.
    pub(super) title: String,
    /// More, beside the caret.
    pub(super) label: String,
    /// What to do about it.
    pub(super) help: Option<String>,
    /// Another place that has to do with it, and how.
    pub(super) also: Option<(Range<usize>, &'static str)>,
    /// Whether it is about something that is absent, and so means nothing once text could not be read.
    pub(super) absence: bool,
}

impl Problem {
    pub(super) fn new(span: Range<usize>, title: impl Into<String>) -> Self {
        Self { span: Some(span), title: title.into(), ..Self::default() }
    }

    /// A problem with a file as a whole.
    pub(super) fn whole(title: String) -> Self {
        Self { title, ..Self::default() }
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
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

    fn start(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.start)
    }
}

impl Diagnostics {
    /// Problems with `source`, which must not hold any secret.
    pub(super) fn new(name: &str, source: String, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::start);
        Self { name: name.into(), source, problems, sources: Sources::default() }
    }

    pub(super) fn read_from(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// The files that were read: a change of any of them may be the remedy.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are none, which no failed compilation returns.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The headline of each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(|problem| problem.title.as_str())
    }

    fn render(&self, problem: &Problem) -> String {
        let title = Level::ERROR.primary_title(problem.title.as_str());
        let Some(span) = &problem.span else {
            return Renderer::plain().render(&[annotate_snippets::Group::with_title(title)]);
        };
        let span = on_one_line(&self.source, span);
        let also = problem.also.as_ref().map(|(span, how)| (on_one_line(&self.source, span), *how));
        let shown = whole_lines(&self.source, &span, also.as_ref().map(|(span, _)| span));
        let local = |span: &Range<usize>| span.start - shown.start..span.end - shown.start;

        let line = self.source[..shown.start].matches('\n').count() + 1;
        let label = (!problem.label.is_empty()).then_some(problem.label.as_str());
        let mut snippet = Snippet::source(&self.source[shown.clone()])
            .line_start(line)
            .path(self.name.as_str())
            .annotation(AnnotationKind::Primary.span(local(&span)).label(label));
        if let Some((span, how)) = &also {
            snippet = snippet.annotation(AnnotationKind::Context.span(local(span)).label(*how));
        }
        let mut group = title.element(snippet);
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(normalize_untrusted_str(help)));
        }
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&self.render(problem))?;
        }
        Ok(())
    }
}

impl error::Error for Diagnostics {}

/// `span` within the source, without what is past the end of its first line.
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
