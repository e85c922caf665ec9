//! Charts of the last hour as SVG paths, and their numbers as text.

use std::fmt::Write as _;

/// The size of a chart in its own units.
const WIDTH: f32 = 600.0;
const HEIGHT: f32 = 120.0;
/// Most points of a line. A point is the highest of the samples that it stands for, so that peaks stay.
const POINTS_MAX: usize = 240;

/// A chart of several lines with one scale.
pub(super) struct Chart {
    pub(super) title: String,
    /// The upper end of the scale, with its unit.
    pub(super) scale: String,
    /// The age of the first sample.
    pub(super) begin: String,
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
}

impl Chart {
    /// A chart of `series` with samples every `every_s` seconds; `None` with fewer than two samples. `text` has the unit of
    /// a value. The scale ends at `top`, or else above the highest value.
    pub(super) fn of(
        title: &str,
        every_s: u64,
        series: Vec<(String, Vec<Option<f32>>)>,
        top: Option<f32>,
        text: impl Fn(f32) -> String,
    ) -> Option<Self> {
        let samples = series.iter().map(|(_, values)| values.len()).max().filter(|samples| *samples > 1)?;
        let highest = |values: &[Option<f32>]| values.iter().copied().flatten().reduce(f32::max);
        let above_all = series.iter().filter_map(|(_, values)| highest(values)).reduce(f32::max).map_or(1.0, round_up);
        let top = top.unwrap_or(above_all);
        let shown = |value: Option<f32>| value.map_or_else(|| "–".to_owned(), &text);
        let line = |(name, values): (String, Vec<Option<f32>>)| ChartLine {
            name,
            now: shown(values.last().copied().flatten()),
            highest: shown(highest(&values)),
            path: path(&values, top),
        };
        let lines = series.into_iter().map(line).collect();
        let begin_s = every_s.saturating_mul(samples as u64);
        let begin = if begin_s < 120 { format!("{begin_s} s ago") } else { format!("{} min ago", begin_s / 60) };
        Some(Self { title: title.to_owned(), scale: text(top), begin, lines })
    }

    /// The chart in words.
    pub(super) fn summary(&self) -> String {
        let lines = self.lines.iter().map(|line| format!("{}: now {}, highest {}", line.name, line.now, line.highest));
        format!("{}. {}", self.title, lines.collect::<Vec<_>>().join("; "))
    }
}

/// The next number of the form 1, 2 or 5 times a power of ten.
fn round_up(value: f32) -> f32 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f32.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

/// A path through the values, from the left edge to the right one.
#[expect(clippy::cast_precision_loss)] // positions of a picture
pub(super) fn path(values: &[Option<f32>], top: f32) -> String {
    let size = values.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<_> = values.chunks(size).map(|chunk| chunk.iter().copied().flatten().reduce(f32::max)).collect();
    let step = WIDTH / (points.len().saturating_sub(1).max(1)) as f32;
    let (mut path, mut is_down) = (String::new(), false);
    for (index, point) in points.iter().enumerate() {
        let Some(value) = point else {
            is_down = false;
            continue;
        };
        let (x, y) = (index as f32 * step, HEIGHT * (1.0 - (value / top).clamp(0.0, 1.0)));
        // A point between two gaps is a line without length, which a round end makes visible.
        let (command, end) = if is_down { ("L", "") } else { ("M", "h0") };
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
            (&[Some(0.0), Some(5.0), Some(10.0)][..], "M0.0 120.0h0L300.0 60.0L600.0 0.0"),
            (&[Some(0.0), None, Some(20.0)], "M0.0 120.0h0M600.0 0.0h0"),
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
            vec![("held".to_owned(), vec![Some(1.0), None]), ("rejected".to_owned(), vec![Some(3.0), Some(2.0)])];
        let chart = Chart::of("Requests", 5, series, None, |value| format!("{value}/s")).unwrap();
        assert_eq!(chart.summary(), "Requests. held: now –, highest 1/s; rejected: now 2/s, highest 3/s");
        assert_eq!((&*chart.scale, &*chart.begin), ("5/s", "10 s ago"));
        assert!(Chart::of("Requests", 5, vec![(String::new(), vec![Some(1.0)])], None, |_| String::new()).is_none());
    }
}
