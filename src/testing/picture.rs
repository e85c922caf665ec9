//! Pictures of measured numbers for the pages: one panel for each line, over the same time.

use std::fmt::Write as _;
use std::path::Path;

/// A line of a picture: its name with the unit, and its values at equal distances of time.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 110.0;
/// The room of a panel for its name, and that of its curve.
const NAME: f64 = 22.0;
const CURVE: f64 = 76.0;
/// More values than that are drawn as means.
const POINTS: usize = 160;

/// Checks that `docs/guide/pictures/{file}.svg` shows these lines, between `begin` and `end`. With `WEIR_PICTURES=write`
/// in the environment it writes the file.
#[track_caller]
pub(crate) fn shows(file: &str, (begin, end): (&str, &str), lines: &[Line<'_>]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/guide/pictures/{file}.svg"));
    let drawn = draw((begin, end), lines);
    if std::env::var_os("WEIR_PICTURES").is_some_and(|word| word == "write") {
        std::fs::write(&path, &drawn).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == drawn, "{} shows other numbers; write it by WEIR_PICTURES=write", path.display());
}

fn draw((begin, end): (&str, &str), lines: &[Line<'_>]) -> String {
    let height = lines.iter().fold(NAME, |height, _| height + HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#6e7781\">\n"
    );
    let mut top = 0.0;
    for line in lines {
        panel(&mut svg, line, top);
        top += HEIGHT;
    }
    let below = top + 12.0;
    let _ = writeln!(svg, "<text x=\"0\" y=\"{below}\">{begin}</text>");
    let _ = writeln!(svg, "<text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">{end}</text>\n</svg>");
    svg
}

fn panel(svg: &mut String, line: &Line<'_>, top: f64) {
    let values = means(&line.values);
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let last = values.len().max(2) - 1;
    let name = top + NAME - 8.0;
    let _ = writeln!(svg, "<text x=\"0\" y=\"{name}\">{}</text>", line.name);
    let _ = writeln!(svg, "<text x=\"{WIDTH}\" y=\"{name}\" text-anchor=\"end\">at most {greatest:.0}</text>");
    let (ceiling, floor) = (top + NAME, top + NAME + CURVE);
    let _ = writeln!(svg, "<path d=\"M0 {ceiling}H{WIDTH}M0 {floor}H{WIDTH}\" stroke=\"#d0d7de\"/>");
    let _ = write!(svg, "<polyline fill=\"none\" stroke=\"#0969da\" stroke-width=\"2\" points=\"");
    for (index, value) in values.iter().enumerate() {
        let x = WIDTH * number(index) / number(last);
        let y = floor - CURVE * value / f64::max(greatest, f64::MIN_POSITIVE);
        let _ = write!(svg, "{}{x:.0},{y:.0}", if index == 0 { "" } else { " " });
    }
    svg.push_str("\"/>\n");
}

/// The means of equal parts.
fn means(values: &[f64]) -> Vec<f64> {
    let part = values.len().div_ceil(POINTS).max(1);
    values.chunks(part).map(|part| part.iter().sum::<f64>() / number(part.len())).collect()
}

#[expect(clippy::cast_precision_loss)] // below 2^53
fn number(count: usize) -> f64 {
    count as f64
}
