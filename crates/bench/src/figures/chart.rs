//! Two kinds of charts, as SVG.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::legend::{Legend, Mark};
use super::style::{COLOURS, FONT, failed};

/// The axes that are logarithmic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Axes {
    /// The horizontal one.
    pub log_x: bool,
    /// The vertical one.
    pub log_y: bool,
}

/// A bar: its label and its parts, from below.
pub(super) type Bar = (String, Vec<(&'static str, f64)>);

/// Width, and height without the names of series; the page scales it, on a phone to two thirds:
/// then its letters can still be read.
const SIZE: (u32, u32) = (520, 330);

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
    let all = || series.iter().flat_map(|(_, points)| points.iter().copied());
    let (x, y) = (bounds(all().map(|p| p.0), axes.log_x), bounds(all().map(|p| p.1), axes.log_y));
    let chart = Lines { x_label, y_label, series, mark, y };
    match (axes.log_x, axes.log_y) {
        (false, false) => chart.draw(x.0..x.1, y.0..y.1),
        (true, false) => chart.draw(Logarithmic::new(x), y.0..y.1),
        (false, true) => chart.draw(x.0..x.1, Logarithmic::new(y)),
        (true, true) => chart.draw(Logarithmic::new(x), Logarithmic::new(y)),
    }
}

struct Lines<'a> {
    x_label: &'a str,
    y_label: &'a str,
    series: &'a [(&'a str, Vec<(f64, f64)>)],
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
        // One line needs no name: the axes say what it is.
        let has_names = self.series.len() > 1;
        let names = self.series.iter().map(|(name, _)| has_names.then_some(*name));
        let legend = Legend::new(names, Mark::Line, SIZE.0);
        let mut svg = String::new();
        {
            let (area, plot) = areas(&mut svg, &legend)?;
            let mut chart = ChartBuilder::on(&plot)
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(66)
                .build_cartesian_2d(x, y)
                .map_err(failed)?;
            let labels = (self.x_label, self.y_label);
            mesh(&mut chart, labels, &|number| short(*number), true)?;
            for ((_, points), colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
                let style = colour.stroke_width(2);
                let line = LineSeries::new(points.iter().copied(), style);
                chart.draw_series(line).map_err(failed)?;
                if points.len() <= 64 {
                    let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
                    chart.draw_series(dots).map_err(failed)?;
                }
            }
            if let Some(mark) = self.mark {
                let ends = [(mark, self.y.0), (mark, self.y.1)];
                let dashes = DashedLineSeries::new(ends, 6, 4, BLACK.mix(0.6).stroke_width(1));
                chart.draw_series(dashes).map_err(failed)?;
            }
            area.present().map_err(failed)?;
        }
        Ok(svg)
    }
}

/// Stacked bars; a part that is in none of them is not named.
pub(super) fn bars(x_label: &str, y_label: &str, bars: &[Bar]) -> Result<String> {
    let names: Vec<&'static str> = bars
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
    let mut svg = String::new();
    {
        let (area, plot) = areas(&mut svg, &legend)?;
        let x: RangedCoordf64 = (-0.5..usize_f64(bars.len()) - 0.5).into();
        let mut chart = ChartBuilder::on(&plot)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(66)
            .build_cartesian_2d(WholeNumbers(x, bars.len()), 0.0..top)
            .map_err(failed)?;
        let label = |at: &f64| {
            let index =
                bars.iter().enumerate().find(|(index, _)| (usize_f64(*index) - at).abs() < 0.01);
            index.map(|(_, (label, _))| label.clone()).unwrap_or_default()
        };
        mesh(&mut chart, (x_label, y_label), &label, false)?;
        for (part, colour) in (0..names.len()).zip(COLOURS.iter().cycle()) {
            let boxes = bars.iter().enumerate().map(|(index, (_, parts))| {
                let below: f64 = parts.iter().take(part).map(|part| part.1).sum();
                let height = parts.get(part).map_or(0.0, |part| part.1);
                let at = usize_f64(index);
                Rectangle::new([(at - 0.35, below), (at + 0.35, below + height)], colour.filled())
            });
            chart.draw_series(boxes).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// A chart's whole area with the legend drawn on top, and what is left for the plot.
fn areas<'a>(svg: &'a mut String, legend: &Legend) -> Result<(Area<'a>, Area<'a>)> {
    let size = (SIZE.0, SIZE.1 + legend.height());
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let (names, plot) = area.split_vertically(legend.height());
    legend.draw(&names)?;
    Ok((area, plot))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Axes with their names, and lines across the chart at their labels: at those of the x axis only
/// if `upright`.
fn mesh<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    (x_name, y_name): (&str, &str),
    x_label: &dyn Fn(&f64) -> String,
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
        .x_label_formatter(&x_label)
        .y_label_formatter(&|number| short(*number))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()
        .map_err(failed)
}

/// An axis with labels at whole numbers, where the bars are.
struct WholeNumbers(RangedCoordf64, usize);

impl Ranged for WholeNumbers {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<Hint: plotters::coord::ranged1d::KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        // A label is as wide as a twelfth of the chart.
        (0..self.1).step_by(self.1.div_ceil(12).max(1)).map(usize_f64).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.range()
    }
}

/// A logarithmic axis. Plotters names a power of ten twice where it comes to it from both sides by
/// floating point.
struct Logarithmic(LogCoord<f64>);

impl Logarithmic {
    fn new((least, most): (f64, f64)) -> Self {
        Self((least..most).log_scale().into())
    }
}

impl Ranged for Logarithmic {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<Hint: plotters::coord::ranged1d::KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let mut points = self.0.key_points(hint);
        points.dedup_by(|one, other| short(*one) == short(*other));
        points
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.range()
    }
}

/// The range of an axis: from 0 or, on a logarithmic one, from the least value above it.
fn bounds(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> (f64, f64) {
    let most = values.clone().fold(0.0, f64::max);
    if is_log {
        let least =
            values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(most).max(1e-3);
        return (least * 0.9, most.max(least) * 1.2);
    }
    (0.0, if most > 0.0 { most * 1.08 } else { 1.0 })
}

/// A number as an axis shows it: three digits at most, thousands and millions with a letter.
fn short(number: f64) -> String {
    let (scaled, letter) = match number.abs() {
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e4 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled.fract().abs() < 1e-9 { 0 } else { 1 };
    format!("{scaled:.digits$}{letter}")
}

fn usize_f64(number: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "few bars")]
    let number = number as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_show_short_numbers() {
        for (number, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.34, "12.3"),
            (1234.0, "1234"),
            (45_600.0, "45.6k"),
            (2e6, "2M"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn a_logarithmic_axis_names_no_number_twice() {
        for least in [0.9, 0.09, 3.0, 9.0] {
            for most in [9.5, 12.0, 120.0, 1e4, 3e6] {
                let axis = Logarithmic::new((least, most));
                for count in 5..20 {
                    let labels: Vec<String> =
                        axis.key_points(count).into_iter().map(short).collect();
                    let mut once = labels.clone();
                    once.dedup();
                    assert_eq!(labels, once, "{least}..{most}, {count}");
                }
            }
        }
    }

    #[test]
    fn charts_of_odd_data_are_drawn() {
        let log = Axes { log_x: true, log_y: true };
        for points in
            [vec![], vec![(0.0, 0.0)], vec![(1.0, 5.0), (2.0, 5.0)], vec![(1.0, 1e9), (1e6, 0.0)]]
        {
            for axes in [Axes::default(), log] {
                let svg = lines("x", "y", &[("a", points.clone())], axes, Some(1.0)).unwrap();
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            }
        }
        assert!(bars("x", "y", &[]).unwrap().contains("</svg>"));
    }
}
