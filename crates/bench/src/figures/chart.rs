//! Two kinds of charts, as SVG: lines through points, and stacked bars.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

pub use super::axis::{Axes, Unit};
use super::axis::{Logarithmic, WholeNumbers, bounds, usize_f64};
use super::escape::escaped;
use super::legend::{Legend, Mark};
use super::style::{COLOURS, FONT, LETTERS, failed};
use generator::number::fits;

/// A bar: its label and its parts, from bottom to top.
pub(super) type Bar<'n> = (String, Vec<(&'n str, f64)>);

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dot {
    /// Its place.
    pub at: (f64, f64),
    /// The minimum and the maximum of its repeats.
    pub range: Option<(f64, f64)>,
    /// A reason to doubt it, which makes it hollow.
    pub doubt: Option<String>,
}

/// A line: its name and its points.
pub(super) type Series<'a> = (&'a str, Vec<Dot>);

/// Width, and height without the names of series. The page scales it: on a phone 360 pixels wide,
/// its letters still have twelve.
const SIZE: (u32, u32) = (380, 270);

/// Maximum number of labels on an axis: more would touch each other.
const LABELS: (usize, usize) = (5, 7);

/// Maximum number of points with a visible mark; of more, this many have tooltips.
const MARKS: usize = 64;

/// Lines through points, with a dashed vertical line at `mark`.
///
/// # Errors
///
/// When they cannot be drawn.
pub fn lines(
    x_label: &str,
    y_label: &str,
    series: &[(&str, Vec<(f64, f64)>)],
    axes: Axes,
    mark: Option<f64>,
) -> Result<String> {
    let dot = |at: &(f64, f64)| Dot { at: *at, range: None, doubt: None };
    let series: Vec<Series<'_>> =
        series.iter().map(|(name, points)| (*name, points.iter().map(dot).collect())).collect();
    dotted(x_label, y_label, &series, axes, mark)
}

/// Lines through points that have repeats or doubts.
pub(super) fn dotted(
    x_label: &str,
    y_label: &str,
    series: &[Series<'_>],
    axes: Axes,
    mark: Option<f64>,
) -> Result<String> {
    let dots = || series.iter().flat_map(|(_, dots)| dots);
    let x = bounds(dots().map(|dot| dot.at.0), axes.log_x);
    let ends = |dot: &Dot| dot.range.map_or([dot.at.1; 2], |(least, most)| [least, most]);
    let y = bounds(dots().flat_map(ends), axes.log_y);
    let chart = Lines { labels: (x_label, y_label), series, axes, mark, y };
    match (axes.log_x, axes.log_y) {
        _ if axes.x == Unit::Nines => {
            let whole = WholeNumbers((x.0..x.1).into(), 6);
            if axes.log_y {
                chart.draw(whole, Logarithmic::new(y))
            } else {
                chart.draw(whole, y.0..y.1)
            }
        }
        (false, false) => chart.draw(x.0..x.1, y.0..y.1),
        (true, false) => chart.draw(Logarithmic::new(x), y.0..y.1),
        (false, true) => chart.draw(x.0..x.1, Logarithmic::new(y)),
        (true, true) => chart.draw(Logarithmic::new(x), Logarithmic::new(y)),
    }
}

struct Lines<'a> {
    labels: (&'a str, &'a str),
    series: &'a [Series<'a>],
    axes: Axes,
    mark: Option<f64>,
    y: (f64, f64),
}

impl Lines<'_> {
    fn draw<X, Y>(&self, x: X, y: Y) -> Result<String>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        // One line needs no name: the axes explain it.
        let has_names = self.series.len() > 1;
        let names = self.series.iter().map(|(name, _)| has_names.then_some(*name));
        let legend = Legend::new(names, Mark::Line, SIZE.0);
        let (mut svg, mut hovers) = (String::new(), String::new());
        {
            let (area, plot) = areas(&mut svg, &legend, SIZE.1)?;
            let mut chart = builder(&plot).build_cartesian_2d(x, y).map_err(failed)?;
            let axes = self.axes;
            let units = (|at: &f64| axes.x.shown(*at), |at: &f64| axes.y.shown(*at));
            mesh(&mut chart, self.labels, (&units.0, &units.1), true)?;
            for ((name, dots), colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
                let style = colour.stroke_width(2);
                let line = LineSeries::new(dots.iter().map(|dot| dot.at), style);
                chart.draw_series(line).map_err(failed)?;
                let ranged = dots.iter().filter_map(|dot| Some((dot, dot.range?)));
                let bars = ranged.map(|(dot, (least, most))| {
                    ErrorBar::new_vertical(
                        dot.at.0,
                        least,
                        dot.at.1,
                        most,
                        colour.stroke_width(1),
                        6,
                    )
                });
                chart.draw_series(bars).map_err(failed)?;
                if dots.len() <= MARKS {
                    let marks = dots.iter().map(|dot| match dot.doubt {
                        None => Circle::new(dot.at, 3, colour.filled()),
                        Some(_) => Circle::new(dot.at, 4, colour.stroke_width(1)),
                    });
                    chart.draw_series(marks).map_err(failed)?;
                }
                let name = if has_names { *name } else { "" };
                for dot in dots.iter().step_by(dots.len().div_ceil(MARKS).max(1)) {
                    let (x, y) = chart.backend_coord(&dot.at);
                    let words = escaped(&self.words(name, dot));
                    let _ = writeln!(
                        hovers,
                        "<circle class=\"hover\" cx=\"{x}\" cy=\"{y}\" r=\"8\"><title>{words}</title></circle>"
                    );
                }
            }
            if let Some(mark) = self.mark {
                let ends = [(mark, self.y.0), (mark, self.y.1)];
                let dashes = DashedLineSeries::new(ends, 6, 4, BLACK.mix(0.6).stroke_width(1));
                chart.draw_series(dashes).map_err(failed)?;
            }
            area.present().map_err(failed)?;
        }
        Ok(with_hovers(&svg, &hovers))
    }

    /// The tooltip of a point.
    fn words(&self, name: &str, dot: &Dot) -> String {
        let (x, y) = (self.axes.x, self.axes.y);
        let mut words = String::new();
        if !name.is_empty() {
            let _ = write!(words, "{name}: ");
        }
        let _ = write!(words, "{} at {} {}", y.shown(dot.at.1), x.shown(dot.at.0), self.labels.0);
        if let Some((least, most)) = dot.range {
            let _ = write!(words, " ({} to {})", y.shown(least), y.shown(most));
        }
        if let Some(doubt) = &dot.doubt {
            let _ = write!(words, "; doubtful: {doubt}");
        }
        words
    }
}

/// The picture with its tooltips: browsers show SVG titles as tooltips.
fn with_hovers(svg: &str, hovers: &str) -> String {
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    format!(
        "{}<g fill=\"none\" pointer-events=\"all\">\n{hovers}</g>\n{}",
        &svg[..end],
        &svg[end..]
    )
}

/// Stacked bars; a part that is in none of them is not named.
pub(super) fn bars(x_label: &str, y_label: &str, bars: &[Bar<'_>]) -> Result<String> {
    let names: Vec<&str> = bars
        .first()
        .map(|(_, parts)| parts.iter().map(|part| part.0).collect())
        .unwrap_or_default();
    let is_there = |part: usize| {
        bars.iter().any(|(_, parts)| parts.get(part).is_some_and(|part| part.1 > 0.0))
    };
    let named = names.iter().enumerate();
    let named = named.map(|(part, name)| (names.len() > 1 && is_there(part)).then_some(*name));
    let legend = Legend::new(named, Mark::Area, SIZE.0);
    let top = bars.iter().map(|(_, parts)| parts.iter().map(|part| part.1).sum::<f64>());
    let top = top.fold(1.0, f64::max) * 1.05;
    let (mut svg, mut hovers) = (String::new(), String::new());
    {
        let (area, plot) = areas(&mut svg, &legend, SIZE.1)?;
        let x: RangedCoordf64 = (-0.5..usize_f64(bars.len()) - 0.5).into();
        let mut chart = builder(&plot)
            .build_cartesian_2d(WholeNumbers(x, bars.len()), 0.0..top)
            .map_err(failed)?;
        let label = |at: &f64| {
            let index =
                bars.iter().enumerate().find(|(index, _)| (usize_f64(*index) - at).abs() < 0.01);
            index.map(|(_, (label, _))| label.clone()).unwrap_or_default()
        };
        let shown = |number: &f64| Unit::Number.shown(*number);
        mesh(&mut chart, (x_label, y_label), (&label, &shown), false)?;
        for (part, colour) in (0..names.len()).zip(COLOURS.iter().cycle()) {
            let placed = bars.iter().enumerate().filter_map(|(index, (label, parts))| {
                let below: f64 = parts.iter().take(part).map(|part| part.1).sum();
                let (name, height) = parts.get(part)?;
                let at = usize_f64(index);
                Some((label, *name, *height, [(at - 0.35, below), (at + 0.35, below + height)]))
            });
            for (label, name, height, corners) in placed {
                chart.draw_series([Rectangle::new(corners, colour.filled())]).map_err(failed)?;
                let [(left, low), (right, high)] =
                    corners.map(|corner| chart.backend_coord(&corner));
                let words = format!("{label}: {name} {} {y_label}", Unit::Number.shown(height));
                hover_box(&mut hovers, (left, low), (right, high), &words);
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(with_hovers(&svg, &hovers))
}

/// Bars from left to right, each with its name, whose parts follow each other.
pub(super) fn named_bars(label: &str, bars: &[Bar<'_>]) -> Result<String> {
    let parts = bars.first().map(|(_, parts)| parts.as_slice()).unwrap_or_default();
    let names = parts.iter().map(|(name, _)| (parts.len() > 1).then_some(*name));
    let legend = Legend::new(names, Mark::Area, SIZE.0);
    let sum = |parts: &[(&str, f64)]| parts.iter().map(|part| part.1).sum::<f64>();
    let most = bars.iter().map(|(_, parts)| sum(parts)).fold(0.0, f64::max);
    let most = if most > 0.0 { most * 1.08 } else { 1.0 };
    let letters = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let room: u32 = fits(letters.min(20) * 9 + 12);
    let height = SIZE.1.max(80 + 26 * fits::<_, u32>(bars.len().min(200)));
    let (mut svg, mut hovers) = (String::new(), String::new());
    {
        let (area, plot) = areas(&mut svg, &legend, height)?;
        // The first bar is on top.
        let y: RangedCoordf64 = (usize_f64(bars.len()) - 0.5..-0.5).into();
        let mut chart = builder(&plot)
            .y_label_area_size(room)
            .build_cartesian_2d(0.0..most, WholeNumbers(y, bars.len()))
            .map_err(failed)?;
        let name = |at: &f64| {
            let mut all = bars.iter().enumerate();
            let bar = all.find(|(index, _)| (usize_f64(*index) - at).abs() < 0.01);
            bar.map(|(_, (name, _))| name.clone()).unwrap_or_default()
        };
        let mut mesh = chart.configure_mesh();
        mesh.disable_y_mesh()
            .x_desc(label)
            .x_labels(LABELS.0)
            .y_labels(bars.len().max(1))
            .x_label_formatter(&|number| Unit::Number.shown(*number))
            .y_label_formatter(&name)
            .label_style((FONT, LETTERS))
            .axis_desc_style((FONT, LETTERS))
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()
            .map_err(failed)?;
        for (index, (name, parts)) in bars.iter().enumerate() {
            let (at, mut below) = (usize_f64(index), 0.0);
            for ((part, value), colour) in parts.iter().zip(COLOURS.iter().cycle()) {
                let corners = [(below, at - 0.35), (below + value, at + 0.35)];
                chart.draw_series([Rectangle::new(corners, colour.filled())]).map_err(failed)?;
                let [(left, low), (right, high)] =
                    corners.map(|corner| chart.backend_coord(&corner));
                let words = format!("{name}: {part} {}", Unit::Number.shown(*value));
                hover_box(&mut hovers, (left, low), (right, high), &words);
                below += value;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(with_hovers(&svg, &hovers))
}

/// The tooltip of a box.
fn hover_box(hovers: &mut String, (left, low): (i32, i32), (right, high): (i32, i32), words: &str) {
    let _ = writeln!(
        hovers,
        "<path class=\"hover\" d=\"M{left} {low}H{right}V{high}H{left}Z\"><title>{}</title></path>",
        escaped(words)
    );
}

/// A chart's whole area with the legend drawn on top, and the rest for the plot.
fn areas<'a>(svg: &'a mut String, legend: &Legend, height: u32) -> Result<(Area<'a>, Area<'a>)> {
    let size = (SIZE.0, height + legend.height());
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let (names, plot) = area.split_vertically(legend.height());
    legend.draw(&names)?;
    Ok((area, plot))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A chart with room for the labels of its axes.
fn builder<'a, 'b>(plot: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(plot);
    builder.margin(12).margin_right(20).x_label_area_size(50).y_label_area_size(88);
    builder
}

/// A number's label on an axis.
type Label<'a> = &'a dyn Fn(&f64) -> String;

/// Axes with their names, and grid lines at their labels: at those of the x axis only if `upright`.
fn mesh<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    (x_name, y_name): (&str, &str),
    (x_label, y_label): (Label<'_>, Label<'_>),
    upright: bool,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut mesh = chart.configure_mesh();
    if !upright {
        mesh.disable_x_mesh();
    }
    mesh.x_desc(x_name)
        .y_desc(y_name)
        .x_labels(LABELS.0)
        .y_labels(LABELS.1)
        .x_label_formatter(&x_label)
        .y_label_formatter(&y_label)
        .label_style((FONT, LETTERS))
        .axis_desc_style((FONT, LETTERS))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_odd_data_are_drawn() {
        let log = Axes { log_x: true, ..Axes::latency(true) };
        let nines = Axes { x: Unit::Nines, ..Axes::latency(false) };
        for points in
            [vec![], vec![(0.0, 0.0)], vec![(1.0, 5.0), (2.0, 5.0)], vec![(1.0, 1e9), (1e6, 0.0)]]
        {
            for axes in [Axes::default(), log, nines] {
                let svg = lines("x", "y", &[("a", points.clone())], axes, Some(1.0)).unwrap();
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            }
        }
        assert!(bars("x", "y", &[]).unwrap().contains("</svg>"));
        for bars in [vec![], vec![("a".into(), vec![("b", 0.0)])]] {
            assert!(named_bars("x", &bars).unwrap().contains("</svg>"));
        }
    }

    #[test]
    fn a_tooltip_shows_value_range_and_doubt() {
        let dot = Dot {
            at: (12.0, 1500.0),
            range: Some((1000.0, 2000.0)),
            doubt: Some("a <busy> machine".into()),
        };
        let series = [("one", vec![dot]), ("two", Vec::new())];
        let svg = dotted("connections", "p99", &series, Axes::latency(false), None).unwrap();
        let words =
            "one: 1.5 ms at 12 connections (1 ms to 2 ms); doubtful: a &lt;busy&gt; machine";
        assert!(svg.contains(words), "{svg}");
        let svg = bars("", "percent", &[("1".into(), vec![("user", 12.5)])]).unwrap();
        assert!(svg.contains("<title>1: user 12.5 percent</title>"), "{svg}");
    }
}
