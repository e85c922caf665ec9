//! What `weir top` shows: figures, their order, a filter, and whether they stand still.
//!
//! Not here: the terminal and its keys (`screen`).

use std::cmp::Ordering;

use clap::ValueEnum;
use ratatui_core::layout::{Constraint, Layout, Rect};
use ratatui_core::style::{Color, Style, Stylize};
use ratatui_core::terminal::Frame;
use ratatui_core::text::Line;
use ratatui_widgets::block::Block;
use ratatui_widgets::paragraph::Paragraph;
use ratatui_widgets::sparkline::Sparkline;
use ratatui_widgets::table::{Row, Table};
use serde_json::Value;

use super::super::upstreams::{ENDPOINT_HEADINGS, endpoint_rows};
use super::figures::Figures;
use crate::cli::table::{clean, table};

/// The order of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The most refused and held requests first.
    #[default]
    Refused,
    /// The least headroom first.
    Headroom,
    /// The most admitted requests first.
    Admitted,
    /// By name.
    Name,
}

impl Sort {
    fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Headroom => "headroom",
            Self::Admitted => "admitted",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Refused => Self::Headroom,
            Self::Headroom => Self::Admitted,
            Self::Admitted => Self::Name,
            Self::Name => Self::Refused,
        }
    }
}

/// The clients whose refused and held requests are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Ranked {
    #[default]
    Key,
    Network,
}

/// The figures in view.
#[derive(Debug, Default)]
pub(super) struct View {
    figures: Option<Figures>,
    /// Why there are no newer figures.
    error: Option<String>,
    sort: Sort,
    pub(super) by: Ranked,
    /// Limits and keys in view contain this text.
    pub(super) filter: String,
    pub(super) is_paused: bool,
    /// Whether the user types the filter.
    pub(super) is_filtering: bool,
}

/// The last sample of one limit.
struct LimitFigures<'f> {
    limit: &'f str,
    admitted: f32,
    held: f32,
    refused: f32,
    headroom: Option<f32>,
}

const LIMIT_HEADINGS: [&str; 5] = ["LIMIT", "ADMITTED/S", "HELD/S", "REFUSED/S", "HEADROOM"];
/// Of requests that were refused or held.
const KEY_HEADINGS: [&str; 4] = ["LIMIT", "KEY", "LAST MINUTE", "OF LATE"];
/// The least interesting columns are last, where a narrow screen cuts.
const ENDPOINT_WIDTHS: [Constraint; ENDPOINT_HEADINGS.len()] = [
    Constraint::Length(10),
    Constraint::Min(24),
    Constraint::Min(10),
    Constraint::Length(10),
    Constraint::Length(8),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Length(11),
    Constraint::Length(6),
    Constraint::Length(24),
];
const MEMBER_HEADINGS: [&str; 4] = ["REPLICA", "CONNECTED", "LAG", "SILENT MS"];

impl View {
    /// A view without figures.
    pub(super) fn ranking(by: Ranked) -> Self {
        Self { by, ..Self::default() }
    }

    /// Shows newer figures, unless it is paused.
    pub(super) fn show(&mut self, figures: Result<Figures, String>) {
        match figures {
            _ if self.is_paused => {}
            Ok(figures) => (self.figures, self.error) = (Some(figures), None),
            Err(error) => self.error = Some(error),
        }
    }

    /// Takes the next order.
    pub(super) fn sort_next(&mut self) {
        self.sort = self.sort.next();
    }

    /// Ranks networks in place of keys, or keys again.
    pub(super) fn rank_next(&mut self) {
        self.by = if self.by == Ranked::Key { Ranked::Network } else { Ranked::Key };
    }

    fn is_in_view(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The limits in view, in order.
    fn limits(&self) -> Vec<LimitFigures<'_>> {
        let limits = self.figures.iter().flat_map(|figures| &figures.history.limits);
        let last = |series: &[f32]| series.last().copied().unwrap_or(0.0);
        let mut limits: Vec<_> = limits
            .filter(|limit| self.is_in_view(&limit.limit))
            .map(|limit| LimitFigures {
                limit: &limit.limit,
                admitted: last(&limit.admitted),
                held: last(&limit.held),
                refused: last(&limit.refused),
                headroom: limit.headroom.iter().rev().find_map(|headroom| *headroom),
            })
            .collect();
        let order = |one: &LimitFigures<'_>, other: &LimitFigures<'_>| match self.sort {
            Sort::Refused => (other.refused + other.held).total_cmp(&(one.refused + one.held)),
            Sort::Headroom => one.headroom.unwrap_or(f32::MAX).total_cmp(&other.headroom.unwrap_or(f32::MAX)),
            Sort::Admitted => other.admitted.total_cmp(&one.admitted),
            Sort::Name => Ordering::Equal,
        };
        limits.sort_by(|one, other| order(one, other).then_with(|| one.limit.cmp(other.limit)));
        limits
    }

    fn limit_rows(&self) -> Vec<Vec<String>> {
        let percent = |part: f32| format!("{:.0} %", part * 100.0);
        let row = |LimitFigures { limit, admitted, held, refused, headroom }: LimitFigures<'_>| {
            let rate = |rate: f32| format!("{rate:.1}");
            vec![clean(limit), rate(admitted), rate(held), rate(refused), headroom.map_or("-".to_owned(), percent)]
        };
        self.limits().into_iter().map(row).collect()
    }

    /// The keys or networks in view, the most refused first.
    fn key_rows(&self) -> Vec<Vec<String>> {
        let Some(Figures { top, .. }) = &self.figures else { return Vec::new() };
        let limits = top["limits"].as_array().into_iter().flatten();
        let counted: Vec<_> = match self.by {
            Ranked::Network => counted("any", &top["networks"]).collect(),
            Ranked::Key => limits
                .flat_map(|limit| counted(limit["limit"].as_str().unwrap_or("-"), &limit["keys"]))
                .chain(counted("banned address", &top["banned_addresses"]))
                .collect(),
        };
        let is_in_view = |(_, [limit, key]): &(_, [&str; 2])| self.is_in_view(limit) || self.is_in_view(key);
        let mut rows: Vec<_> = counted.into_iter().filter(is_in_view).collect();
        rows.sort_by_key(|(counts, _)| std::cmp::Reverse(*counts));
        let row = |([last_minute, count], [limit, key]): ([u64; 2], [&str; 2])| {
            vec![clean(limit), clean(key), last_minute.to_string(), count.to_string()]
        };
        rows.into_iter().map(row).collect()
    }

    fn member_rows(&self) -> Vec<Vec<String>> {
        let fleet = self.figures.as_ref().and_then(|figures| figures.fleet.as_ref());
        let members = fleet.and_then(|fleet| fleet["members"].as_array()).into_iter().flatten();
        let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |number| number.to_string());
        let row = |member: &Value| {
            let connected = if member["connected"] == true { "yes" } else { "no" };
            let address = clean(member["address"].as_str().unwrap_or("-"));
            vec![address, connected.to_owned(), number(&member["lag"]), number(&member["silent_ms"])]
        };
        members.map(row).collect()
    }

    /// The endpoints in view.
    fn endpoint_rows(&self) -> Vec<Vec<String>> {
        let rows = self.figures.iter().flat_map(|figures| endpoint_rows(&figures.upstreams));
        let is_in_view = |row: &Vec<String>| row.iter().take(3).any(|text| self.is_in_view(text));
        rows.filter(is_in_view).map(|row| row.iter().map(|text| clean(text)).collect()).collect()
    }

    /// The requests per second of all verdicts, and the added latency.
    fn rates(&self) -> String {
        let Some(Figures { history, .. }) = &self.figures else { return "no figures yet".to_owned() };
        if history.at_s.is_empty() {
            return "the first figures come five seconds after the start".to_owned();
        }
        let last = |series: &Vec<f32>| series.last().copied().unwrap_or(0.0);
        let verdicts = history.requests.iter().map(|(verdict, rates)| format!("{verdict} {:.1}/s", last(rates)));
        let added = [("p50", &history.added_us_p50), ("p99", &history.added_us_p99)].map(|(name, series)| {
            let newest = series.last().copied().flatten();
            newest.map_or(format!("{name} -"), |us| format!("{name} {us:.0} us"))
        });
        format!("{}   added {}", verdicts.collect::<Vec<_>>().join("  "), added.join(" "))
    }

    /// The requests per second of all verdicts together, oldest first.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // no rate is below 0 or so large
    fn totals(&self) -> Vec<u64> {
        let Some(Figures { history, .. }) = &self.figures else { return Vec::new() };
        let total = |index: usize| history.requests.values().filter_map(|rates| rates.get(index)).sum::<f32>();
        (0..history.at_s.len()).map(|index| (total(index) * 10.0) as u64).collect()
    }

    /// Plain tables.
    pub(super) fn plain(&self) -> String {
        let mut parts = vec![self.rates(), table(&LIMIT_HEADINGS, &self.limit_rows())];
        parts.extend(Some(self.key_rows()).filter(|rows| !rows.is_empty()).map(|rows| table(&KEY_HEADINGS, &rows)));
        let endpoints = Some(self.endpoint_rows()).filter(|rows| !rows.is_empty());
        parts.extend(endpoints.map(|rows| table(&ENDPOINT_HEADINGS, &rows)));
        let members = Some(self.member_rows()).filter(|rows| !rows.is_empty());
        parts.extend(members.map(|rows| table(&MEMBER_HEADINGS, &rows)));
        parts.join("\n\n")
    }

    /// Draws the screen. `place` is the admin listener.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, place: &str) {
        let (members, endpoints) = (self.member_rows(), self.endpoint_rows());
        let lines =
            |rows: &[Vec<String>]| if rows.is_empty() { 0 } else { u16::try_from(rows.len().min(6)).unwrap_or(6) + 3 };
        let areas = [
            Constraint::Length(1),
            Constraint::Length(5),
            Constraint::Min(5),
            Constraint::Min(5),
            Constraint::Length(lines(&endpoints)),
            Constraint::Length(lines(&members)),
            Constraint::Length(1),
        ];
        let [title, requests, limits, keys, upstreams, fleet, foot] = Layout::vertical(areas).areas(frame.area());
        let state = if self.is_paused { "  paused" } else { "" };
        frame.render_widget(Line::from(format!("weir top  {place}{state}")).bold(), title);
        self.draw_requests(frame, requests);
        let name = format!(" limits by {} ", self.sort.label());
        let wide = [
            Constraint::Min(16),
            Constraint::Length(11),
            Constraint::Length(8),
            Constraint::Length(11),
            Constraint::Length(9),
        ];
        draw_table(frame, limits, &name, (&LIMIT_HEADINGS, self.limit_rows()), &wide);
        let wide = [Constraint::Length(20), Constraint::Min(20), Constraint::Length(11), Constraint::Length(10)];
        let name = if self.by == Ranked::Key { " most refused keys " } else { " most refused networks " };
        draw_table(frame, keys, name, (&KEY_HEADINGS, self.key_rows()), &wide);
        if !endpoints.is_empty() {
            draw_table(frame, upstreams, " endpoints ", (&ENDPOINT_HEADINGS, endpoints), &ENDPOINT_WIDTHS);
        }
        if !members.is_empty() {
            let wide = [Constraint::Min(20), Constraint::Length(10), Constraint::Length(8), Constraint::Length(10)];
            draw_table(frame, fleet, " other replicas ", (&MEMBER_HEADINGS, members), &wide);
        }
        frame.render_widget(self.foot(), foot);
    }

    fn draw_requests(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::bordered().title(" requests ");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let [rates, chart] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(inner);
        frame.render_widget(Paragraph::new(self.rates()), rates);
        let totals = self.totals();
        let newest = totals.get(totals.len().saturating_sub(usize::from(chart.width))..).unwrap_or_default();
        frame.render_widget(Sparkline::default().data(newest).style(Style::new().fg(Color::Cyan)), chart);
    }

    fn foot(&self) -> Line<'_> {
        if self.is_filtering {
            return Line::from(format!("filter: {}_   Enter keeps it, Esc removes it", clean(&self.filter)));
        }
        if let Some(error) = &self.error {
            return Line::from(clean(error)).red();
        }
        let filter = if self.filter.is_empty() { String::new() } else { format!(" ({})", clean(&self.filter)) };
        Line::from(format!("q quit   s sort   n keys or networks   / filter{filter}   p pause")).dim()
    }
}

/// The requests of the last minute and of late of each counted key, with the limit and the key.
fn counted<'k>(limit: &'k str, keys: &'k Value) -> impl Iterator<Item = ([u64; 2], [&'k str; 2])> {
    let counts = |key: &Value| ["last_minute", "count"].map(|name| key[name].as_u64().unwrap_or(0));
    let key = move |key: &'k Value| (counts(key), [limit, key["key"].as_str().unwrap_or("-")]);
    keys.as_array().into_iter().flatten().map(key)
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    (headings, rows): (&[&'static str], Vec<Vec<String>>),
    widths: &[Constraint],
) {
    let head = Row::new(headings.to_vec()).bold();
    let rows = rows.into_iter().map(Row::new);
    frame.render_widget(Table::new(rows, widths.to_vec()).header(head).block(Block::bordered().title(title)), area);
}

#[cfg(test)]
mod tests {
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    use serde_json::json;

    use super::*;

    fn figures(fleet: Option<Value>) -> Figures {
        let limit = |name: &str, refused: f32, headroom: Option<f32>| json!({ "limit": name, "headroom": [headroom, null], "admitted": [1.0, 2.5], "held": [0.0, 0.0], "refused": [0.0, refused] });
        let history = json!({
            "every_s": 5, "at_s": [100, 105], "requests": { "forwarded": [10.0, 20.0], "refused": [0.0, 4.0] },
            "refused_by": { "limit": [0.0, 4.0] },
            "added_us_p50": [30.0, null], "added_us_p99": [90.0, 91.4],
            "limits": [limit("per-ip", 0.0, Some(0.25)), limit("sellers", 4.0, Some(0.5)), limit("calm", 0.0, None)],
            "limits_left_out": 0
        });
        let top = json!({
            "limits": [
                { "limit": "per-ip", "keys": [{ "key": "10.0.0.1", "count": 3, "error": 0, "last_minute": 2 }] },
                { "limit": "sellers", "keys": [{ "key": "12..#5d\u{1b}[2J", "count": 7, "error": 0, "last_minute": 1 }] }
            ],
            "banned_addresses": [{ "key": "10.9.0.0/16", "count": 5, "error": 0, "last_minute": 1 }],
            "networks": [{ "key": "10.9.1.0/24", "count": 15, "error": 0, "last_minute": 4 }]
        });
        let endpoint = json!({
            "endpoint": "http://10.0.0.1:80", "address": null, "state": "ejected", "why": "no answer in time",
            "since": "2026-11-24T00:00:00.000Z", "until": null, "weight": 1, "orders": [], "active": 2, "connections": 4, "requests": 70,
            "errors": 6, "last_minute": { "seconds": 60.0, "requests": 60, "errors": 6, "mean_ms": 3.1, "p50_ms": 2.5, "p90_ms": null }
        });
        let upstreams =
            json!({ "upstreams": [{ "upstream": "app", "queued": 3, "queue_refused": 0, "endpoints": [endpoint] }] });
        let [history, upstreams] = [history, upstreams].map(|body| body.to_string());
        let (history, upstreams) = (serde_json::from_str(&history).unwrap(), serde_json::from_str(&upstreams).unwrap());
        Figures { history, top, fleet, upstreams }
    }

    fn view() -> View {
        let mut view = View::default();
        view.show(Ok(figures(None)));
        view
    }

    fn names(view: &View) -> Vec<&str> {
        view.limits().into_iter().map(|limit| limit.limit).collect()
    }

    /// The lines of a screen with 100 columns.
    fn screen(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame, "127.0.0.1:9901")).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn limits_are_sorted_and_filtered() {
        let mut view = view();
        assert_eq!(names(&view), ["sellers", "calm", "per-ip"]);
        for expected in [["per-ip", "sellers", "calm"], ["calm", "per-ip", "sellers"], ["calm", "per-ip", "sellers"]] {
            view.sort_next();
            assert_eq!(names(&view), expected, "{:?}", view.sort);
        }
        view.filter = "SELL".to_owned();
        assert_eq!((names(&view), view.key_rows().len()), (vec!["sellers"], 1));
        view.filter = "10.".to_owned();
        assert_eq!((names(&view).len(), view.key_rows().len()), (0, 2));
    }

    #[test]
    fn a_paused_view_stands_still() {
        let mut view = view();
        view.is_paused = true;
        view.show(Err("gone".to_owned()));
        assert!(view.error.is_none() && screen(&view).contains("paused"));
        view.is_paused = false;
        view.show(Err("gone".to_owned()));
        // The last figures stay in view.
        let shown = screen(&view);
        assert!(shown.contains("gone") && shown.contains("sellers"), "{shown}");
        view.show(Ok(figures(None)));
        assert!(!screen(&view).contains("gone"));
    }

    #[test]
    fn the_screen_has_all_parts() {
        let mut view = view();
        let shown = screen(&view);
        for part in [
            "weir top  127.0.0.1:9901",
            "forwarded 20.0/s  refused 4.0/s   added p50 - p99 91 us",
            "limits by refused",
            "sellers",
            "50 %",
            "12..#5d[2J",
            "10.9.0.0/16",
            "endpoints",
            "http://10.0.0.1:80",
            "ejected",
            "q quit   s sort   n keys or networks   / filter   p pause",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("other replicas") && !shown.contains("10.9.1.0/24"));
        view.rank_next();
        let networks = screen(&view);
        assert!(networks.contains("most refused networks") && networks.contains("10.9.1.0/24"), "{networks}");
        assert!(!networks.contains("10.0.0.1 "), "{networks}");
        view.rank_next();
        view.is_filtering = true;
        view.filter = "sell".to_owned();
        assert!(screen(&view).contains("filter: sell_"));
        let members =
            json!({ "members": [{ "address": "10.0.0.2:7000", "connected": true, "lag": 0, "silent_ms": null }] });
        view.show(Ok(figures(Some(members))));
        let shown = screen(&view);
        assert!(shown.contains("other replicas") && shown.contains("10.0.0.2:7000"), "{shown}");
        // A screen without room, and one without figures, are drawn, too.
        Terminal::new(TestBackend::new(3, 2)).unwrap().draw(|frame| view.draw(frame, "a")).unwrap();
        assert!(screen(&View::default()).contains("no figures yet"));
    }

    #[test]
    fn plain_tables_are_aligned() {
        insta::assert_snapshot!(view().plain(), @r"
        forwarded 20.0/s  refused 4.0/s   added p50 - p99 91 us

        LIMIT    ADMITTED/S  HELD/S  REFUSED/S  HEADROOM
        sellers  2.5         0.0     4.0        50 %
        calm     2.5         0.0     0.0        -
        per-ip   2.5         0.0     0.0        25 %

        LIMIT           KEY          LAST MINUTE  OF LATE
        per-ip          10.0.0.1     2            3
        sellers         12..#5d[2J   1            7
        banned address  10.9.0.0/16  1            5

        UPSTREAM  ENDPOINT            STATE    REQUESTS/S  ERRORS/S  P50     P90  ACTIVE  QUEUED  CONNECTIONS  WEIGHT  SINCE
        app       http://10.0.0.1:80  ejected  1.0         0.1       2.5 ms  -    2       3       4            1       2026-11-24T00:00:00.000Z
        ");
    }
}
