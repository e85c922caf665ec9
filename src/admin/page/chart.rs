//! Charts as SVG paths, and their numbers as text.

use std::fmt::Write as _;

use super::fields::FormFields;
use super::words;
use crate::admin::series::{EVERY_S, SAMPLES_OF_MINUTE};

/// The size of a chart in its own units.
const WIDTH: f32 = 600.0;
const HEIGHT: f32 = 120.0;
/// Most points of a line. A point is the highest of the samples that it stands for, so that peaks stay.
const POINTS_MAX: usize = 240;

/// The lengths of charts in minutes. The last one is the default.
const RANGES: [usize; 3] = [5, 15, 60];

/// The length of charts.
pub(super) struct Range {
    minutes: usize,
}

impl Range {
    /// The length that a query asks for.
    pub(super) fn of(query: &FormFields) -> Self {
        let asked = query.get("minutes").parse().ok().filter(|minutes| RANGES.contains(minutes));
        Self { minutes: asked.unwrap_or(RANGES[RANGES.len() - 1]) }
    }

    /// The number of samples.
    pub(super) fn samples(&self) -> usize {
        self.minutes * SAMPLES_OF_MINUTE
    }

    /// The length in minutes.
    pub(super) fn minutes(&self) -> usize {
        self.minutes
    }

    /// All lengths in minutes, and whether each is this one.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        RANGES.into_iter().map(|minutes| (minutes, minutes == self.minutes))
    }
}

/// A chart of several lines with one scale.
pub(super) struct Chart {
    pub(super) title: String,
    /// The upper end of the scale, its half and its lower end, with their unit.
    pub(super) scale: [String; 3],
    /// The begin and the end, as times of the day in UTC.
    pub(super) begin: String,
    pub(super) end: String,
    /// The times of the points, with `|` between them.
    pub(super) times: String,
    pub(super) lines: Vec<ChartLine>,
}

/// A line of a chart.
pub(super) struct ChartLine {
    pub(super) name: String,
    /// The path in SVG. It has gaps where there are no values.
    pub(super) path: String,
    /// The newest value.
    pub(super) now: String,
    /// The highest value.
    pub(super) highest: String,
    /// The values of the points, with `|` between them.
    pub(super) values: String,
}

impl Chart {
    /// A chart of `series` with samples that end at `at_s` in Unix seconds; `None` with fewer than two samples. `text` has
    /// the unit of a value. The scale ends at `top`, or else above the highest value.
    pub(super) fn of(
        title: &str,
        at_s: &[u64],
        series: Vec<(String, Vec<Option<f32>>)>,
        top: Option<f32>,
        text: impl Fn(f32) -> String,
    ) -> Option<Self> {
        let (begin, end) = at_s.first().zip(at_s.last()).filter(|_| at_s.len() > 1)?;
        let highest = |values: &[Option<f32>]| values.iter().copied().flatten().reduce(f32::max);
        let above_all = series.iter().filter_map(|(_, values)| highest(values)).reduce(f32::max).map_or(1.0, round_up);
        let top = top.unwrap_or(above_all);
        let shown = |value: Option<f32>| value.map_or_else(|| "–".to_owned(), &text);
        let line = |(name, values): (String, Vec<Option<f32>>)| {
            let points = points(&values);
            ChartLine {
                name,
                now: shown(values.last().copied().flatten()),
                highest: shown(highest(&values)),
                path: path_of(&points, top),
                values: points.into_iter().map(shown).collect::<Vec<_>>().join("|"),
            }
        };
        let lines = series.into_iter().map(line).collect();
        Some(Self {
            title: title.to_owned(),
            scale: [1.0, 0.5, 0.0].map(|part| text(top * part)),
            begin: words::clock(begin.saturating_sub(EVERY_S)),
            end: words::clock(*end),
            times: times_of(at_s, words::clock),
            lines,
        })
    }

    /// This chart of samples at `at_s` with days in place of times of the day. All lines are at `now`.
    pub(super) fn over_days(mut self, at_s: &[u64], now: &str) -> Self {
        self.times = times_of(at_s, words::day);
        let [begin, end] = [at_s.first(), at_s.last()].map(|at_s| at_s.copied().map(words::day).unwrap_or_default());
        (self.begin, self.end) = (begin, end);
        self.lines.iter_mut().for_each(|line| now.clone_into(&mut line.now));
        self
    }

    /// The chart in words.
    pub(super) fn summary(&self) -> String {
        let lines = self.lines.iter().map(|line| format!("{}: now {}, highest {}", line.name, line.now, line.highest));
        let Self { title, begin, end, .. } = self;
        format!("{title}, {begin} to {end} UTC. {}", lines.collect::<Vec<_>>().join("; "))
    }
}

/// The mean of rates; `None` without rates.
#[expect(clippy::cast_precision_loss)] // a number of samples
pub(super) fn mean(rates: &[f32]) -> Option<f32> {
    (!rates.is_empty()).then(|| rates.iter().sum::<f32>() / rates.len() as f32)
}

/// The next number of the form 1, 2 or 5 times a power of ten.
fn round_up(value: f32) -> f32 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f32.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

/// The times of the points, with `|` between them.
fn times_of(at_s: &[u64], text: impl Fn(u64) -> String) -> String {
    let times = at_s.chunks(samples_of_point(at_s.len())).filter_map(|chunk| chunk.last());
    times.map(|at_s| text(*at_s)).collect::<Vec<_>>().join("|")
}

/// The number of samples that one point stands for.
fn samples_of_point(samples: usize) -> usize {
    samples.div_ceil(POINTS_MAX).max(1)
}

/// The highest value of the samples of each point.
fn points(values: &[Option<f32>]) -> Vec<Option<f32>> {
    values
        .chunks(samples_of_point(values.len()))
        .map(|chunk| chunk.iter().copied().flatten().reduce(f32::max))
        .collect()
}

/// A path through the values, from the left edge to the right one.
pub(super) fn path(values: &[Option<f32>], top: f32) -> String {
    path_of(&points(values), top)
}

#[expect(clippy::cast_precision_loss)] // positions of a picture
fn path_of(points: &[Option<f32>], top: f32) -> String {
    let step = WIDTH / (points.len().saturating_sub(1).max(1)) as f32;
    let (mut path, mut is_down) = (String::new(), false);
    for (index, point) in points.iter().enumerate() {
        let Some(value) = point else {
            is_down = false;
            continue;
        };
        let (x, y) = (index as f32 * step, HEIGHT * (1.0 - (value / top).clamp(0.0, 1.0)));
        // A point between two gaps is a dash, so that the eye finds it.
        let (command, x, end) = match (is_down, points.get(index + 1)) {
            (true, _) => ("L", x, ""),
            (false, Some(Some(_))) => ("M", x, ""),
            (false, _) => ("M", (x - 3.0).clamp(0.0, WIDTH - 6.0), "h6"),
        };
        // Writing to a string cannot fail.
        let _ = write!(path, "{command}{x:.1} {y:.1}{end}");
        is_down = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_gaps_and_keeps_peaks() {
        for (values, expected) in [
            (&[Some(0.0), Some(5.0), Some(10.0)][..], "M0.0 120.0L300.0 60.0L600.0 0.0"),
            (&[Some(0.0), None, Some(20.0)], "M0.0 120.0h6M594.0 0.0h6"),
            (&[None, None], ""),
            (&[], ""),
        ] {
            assert_eq!(path(values, 10.0), expected);
        }
        let mut hour = vec![Some(0.0); 720];
        hour[100] = Some(10.0);
        let path = path(&hour, 10.0);
        assert_eq!((path.matches('L').count(), path.matches(" 0.0L").count()), (239, 1));
    }

    #[test]
    fn a_chart_has_a_scale_and_words() {
        for (value, top) in
            [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (1.2, 2.0), (47.0, 50.0), (51.0, 100.0), (999.0, 1000.0)]
        {
            assert!((round_up(value) - top).abs() < top * 1e-5, "{value}");
        }
        let series =
            vec![("held".to_owned(), vec![Some(1.0), None]), ("refused".to_owned(), vec![Some(3.0), Some(2.0)])];
        let chart = Chart::of("Requests", &[3605, 3610], series, None, |value| format!("{value}/s")).unwrap();
        assert_eq!(
            chart.summary(),
            "Requests, 01:00:00 to 01:00:10 UTC. held: now –, highest 1/s; refused: now 2/s, highest 3/s"
        );
        assert_eq!((&*chart.times, &*chart.lines[0].values), ("01:00:05|01:00:10", "1/s|–"));
        assert_eq!(chart.scale, ["5/s", "2.5/s", "0/s"]);
        assert!(Chart::of("Requests", &[5], vec![(String::new(), vec![Some(1.0)])], None, |_| String::new()).is_none());
        assert_eq!((mean(&[]), mean(&[1.0, 2.0])), (None, Some(1.5)));
        for (query, samples) in [("", 720), ("minutes=5", 60), ("minutes=15", 180), ("minutes=7", 720)] {
            assert_eq!(Range::of(&FormFields::parse(query.as_bytes())).samples(), samples);
        }
    }
}
