//! The live view: the current state, drawn once per second, and the keys that cause faults.

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use crate::result::{Second, over_1s, share};
use crate::script::Action;
use crate::stage::Stage;

/// Seconds that the chart shows.
const SHOWN: usize = 90;

/// Colours of clusters, in their order.
const COLOURS: [Color; 6] =
    [Color::Blue, Color::Yellow, Color::Green, Color::Magenta, Color::Cyan, Color::Red];

const KEYS: &str =
    " k kill  b black-hole  l lag  c cut  a/A add cluster  w end warm-up  r replay  q end";

/// A key that was pressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Key {
    Action(Action),
    End,
    ToggleCut,
    ToggleLag,
}

/// The terminal, which is restored when this is dropped.
pub(crate) struct View {
    terminal: DefaultTerminal,
}

impl View {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }

    /// The pressed key, if any.
    pub(crate) fn key(&mut self) -> Result<Option<Key>> {
        while event::poll(std::time::Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
            if let Some(key) = key_of(key.code, with_control) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    pub(crate) fn draw(&mut self, stage: &Stage) -> Result<()> {
        self.terminal.draw(|frame| draw(frame, stage))?;
        Ok(())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn key_of(code: KeyCode, with_control: bool) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if with_control => Key::End,
        KeyCode::Char('q') | KeyCode::Esc => Key::End,
        KeyCode::Char('k') => Key::Action(Action::KillServer),
        KeyCode::Char('b') => Key::Action(Action::BlackHole),
        KeyCode::Char('l') => Key::ToggleLag,
        KeyCode::Char('c') => Key::ToggleCut,
        KeyCode::Char('a') => Key::Action(Action::AddCluster),
        KeyCode::Char('A') => Key::Action(Action::AddColdCluster),
        KeyCode::Char('w') => Key::Action(Action::EndWarmUp),
        KeyCode::Char('r') => Key::Action(Action::Replay),
        _ => return None,
    })
}

fn draw(frame: &mut Frame<'_>, stage: &Stage) {
    let Some(second) = stage.seconds.back() else { return };
    let clusters = u16::try_from(stage.frontends.len()).unwrap_or(8) + 3;
    let rows = [
        Constraint::Length(clusters),
        Constraint::Length(5),
        Constraint::Min(6),
        Constraint::Length(8),
        Constraint::Length(1),
    ];
    let [top, middle, chart, events, keys] = Layout::vertical(rows).areas(frame.area());
    draw_clusters(frame, top, stage, second);
    draw_regions(frame, middle, stage, second);
    draw_hits(frame, chart, stage);
    draw_events(frame, events, stage);
    frame.render_widget(Line::from(KEYS).reversed(), keys);
}

fn head(names: &[&'static str]) -> Row<'static> {
    let name = |(at, name): (usize, &&'static str)| {
        let line = Line::from(*name);
        Cell::from(if at == 0 { line } else { line.right_aligned() })
    };
    Row::new(names.iter().enumerate().map(name)).bold()
}

fn cells(first: String, colour: Color, rest: Vec<String>) -> Row<'static> {
    let first = Cell::from(first).style(Style::new().fg(colour));
    let rest = rest.into_iter().map(|text| Cell::from(Line::from(text).right_aligned()));
    Row::new(std::iter::once(first).chain(rest))
}

fn draw_clusters(frame: &mut Frame<'_>, area: Rect, stage: &Stage, second: &Second) {
    let names = [
        "cluster",
        "reads/s",
        "hits %",
        "gutter/s",
        "failed/s",
        "stalest ms",
        "in 1 s %",
        "own %",
        "from master",
    ];
    let row = |at: usize| {
        let (now, total) = (second.clusters.get(at)?, stage.tallies.get(at)?);
        let stale = share(over_1s(&total.stale_us), total.stale_us.len()).unwrap_or(0.0);
        let own = share(total.own_stale, total.own_reads).unwrap_or(0.0);
        let numbers = vec![
            now.reads.to_string(),
            now.hit_ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}", ratio * 100.0)),
            now.gutter_hits.to_string(),
            now.failed.to_string(),
            format!("{:.0}", now.stale_max_ms),
            format!("{:.3}", (1.0 - stale) * 100.0),
            format!("{:.2}", (1.0 - own) * 100.0),
            total.master.to_string(),
        ];
        Some(cells(stage.frontends.get(at)?.name.clone(), COLOURS[at % COLOURS.len()], numbers))
    };
    let widths = [Constraint::Fill(1); 9];
    let table = Table::new((0..stage.frontends.len()).filter_map(row), widths).header(head(&names));
    let title = format!(
        " holdall demo: two regions, {} · {:.0} s{}{} ",
        stage.kind.name(),
        second.at,
        if stage.is_lagging { " · THE REPLICA LAGS" } else { "" },
        if stage.is_cut { " · THE REGIONS ARE CUT" } else { "" }
    );
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}

fn draw_regions(frame: &mut Frame<'_>, area: Rect, stage: &Stage, second: &Second) {
    let names =
        ["region", "queries/s", "writes/s", "behind ms", "deletes/s", "waiting", "delivery p99 ms"];
    let rows = second.regions.iter().zip(&stage.deployment.regions).map(|(now, region)| {
        let numbers = vec![
            now.queries.to_string(),
            now.writes.to_string(),
            now.behind_ms.to_string(),
            now.delivered.to_string(),
            now.waiting.to_string(),
            format!("{:.1}", now.delivery_p99_ms),
        ];
        cells(region.name.to_owned(), Color::Reset, numbers)
    });
    let table = Table::new(rows, [Constraint::Fill(1); 7]).header(head(&names));
    frame.render_widget(table.block(Block::bordered().title(" databases and invalidators ")), area);
}

fn draw_hits(frame: &mut Frame<'_>, area: Rect, stage: &Stage) {
    let [left, right] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(area);
    let from = stage.seconds.len().saturating_sub(SHOWN);
    let points: Vec<Vec<(f64, f64)>> = (0..stage.frontends.len())
        .map(|at| {
            let seconds = stage.seconds.iter().skip(from);
            let point =
                |second: &Second| Some((second.at, second.clusters.get(at)?.hit_ratio()? * 100.0));
            seconds.filter_map(point).collect()
        })
        .collect();
    let lines = points.iter().zip(&stage.frontends).enumerate().map(|(at, (points, frontend))| {
        Dataset::default()
            .name(frontend.name.clone())
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(COLOURS[at % COLOURS.len()]))
            .data(points)
    });
    let first = stage.seconds.get(from).map_or(0.0, |second| second.at);
    let last = stage.seconds.back().map_or(1.0, |second| second.at);
    let chart = Chart::new(lines.collect())
        .block(Block::bordered().title(" hit ratio % "))
        .x_axis(Axis::default().bounds([first, last.max(first + 1.0)]))
        .y_axis(Axis::default().bounds([0.0, 100.0]).labels(["0", "50", "100"]));
    frame.render_widget(chart, left);
    draw_staleness(frame, right, stage);
}

/// The staleness of reads in all clusters since the start: one line for each power of ten.
fn draw_staleness(frame: &mut Frame<'_>, area: Rect, stage: &Stage) {
    let all: u64 = stage.tallies.iter().map(|tally| tally.stale_us.len()).sum();
    let limits: [(&str, u64); 6] = [
        ("fresh", 0),
        ("10 ms", 10_000),
        ("100 ms", 100_000),
        ("1 s", 1_000_000),
        ("10 s", 10_000_000),
        ("minute", 60_000_000),
    ];
    let text: Vec<Line<'_>> = limits
        .iter()
        .map(|(name, limit)| {
            let within: u64 =
                stage.tallies.iter().map(|tally| tally.stale_us.count_between(0, *limit)).sum();
            Line::from(format!("{name:>7} {:9.4} %", share(within, all).unwrap_or(1.0) * 100.0))
        })
        .collect();
    let block = Block::bordered().title(" reads no staler than ");
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, stage: &Stage) {
    let shown = usize::from(area.height.saturating_sub(2));
    let from = stage.events.len().saturating_sub(shown);
    let text: Vec<Line<'_>> = stage
        .events
        .iter()
        .skip(from)
        .map(|(at, text)| Line::from(format!("{at:6.1} s  {text}")))
        .collect();
    frame
        .render_widget(Paragraph::new(text).block(Block::bordered().title(" what happens ")), area);
}
