//! Axes: their ranges, the places of their labels, and numbers as labels show them.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// The unit of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    #[default]
    Number,
    /// Microseconds, shown as microseconds, milliseconds or seconds.
    Micros,
    /// Nines of a percentile: 1 is 90 %, 2 is 99 %.
    Nines,
}

/// The kinds of a chart's axes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Axes {
    /// The horizontal one is logarithmic.
    pub log_x: bool,
    /// The vertical one is logarithmic.
    pub log_y: bool,
    /// The unit of the horizontal one.
    pub x: Unit,
    /// The unit of the vertical one.
    pub y: Unit,
}

impl Axes {
    /// Latency on the vertical, logarithmic axis: one outlier must not flatten the rest.
    #[must_use]
    pub fn latency(log_x: bool) -> Self {
        Self { log_x, log_y: true, x: Unit::Number, y: Unit::Micros }
    }
}

impl Unit {
    /// A number as shown in a label or a tooltip.
    #[must_use]
    pub fn shown(self, number: f64) -> String {
        match self {
            Self::Number => short(number),
            Self::Micros => time(number),
            Self::Nines => percentile(number),
        }
    }
}

/// At most three digits, thousands and millions with a letter.
fn short(number: f64) -> String {
    let (scaled, letter) = match number.abs() {
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e4 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled.fract().abs() < 1e-9 { 0 } else { 1 };
    format!("{scaled:.digits$}{letter}")
}

/// Microseconds in the largest unit that gives at least 1.
fn time(micros: f64) -> String {
    let (scaled, unit) = match micros.abs() {
        size if size >= 1e6 => (micros / 1e6, "s"),
        size if size >= 1e3 => (micros / 1e3, "ms"),
        _ => (micros, "µs"),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 || scaled.fract().abs() < 1e-9 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let number = format!("{scaled:.digits$}");
    let number =
        if digits > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {unit}")
}

/// The percentile with this number of nines: 3 is 99.9 %.
fn percentile(nines: f64) -> String {
    let percent = 100.0 - 10f64.powf(2.0 - nines);
    let digits =
        if nines <= 2.0 { 0 } else { 1 + usize::from(nines > 3.0) + usize::from(nines > 4.0) };
    format!("{percent:.digits$}")
}

/// The range of an axis: from 0 or, on a logarithmic one, from the smallest positive value.
pub(super) fn bounds(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> (f64, f64) {
    let most = values.clone().fold(0.0, f64::max);
    if is_log {
        let least =
            values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(most).max(1e-3);
        return (least * 0.85, most.max(least) * 1.2);
    }
    (0.0, if most > 0.0 { most * 1.08 } else { 1.0 })
}

/// A linear axis with labels at whole numbers: bars, and nines.
pub(super) struct WholeNumbers(pub RangedCoordf64, pub usize);

impl Ranged for WholeNumbers {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Six nines fit even where six longer labels would not.
        let each = self.1.div_ceil(hint.max_num_points().max(6)).max(1);
        (0..self.1).step_by(each).map(usize_f64).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.range()
    }
}

/// A logarithmic axis, with labels at 1, 2 and 5 of each power of ten, or fewer where those are too
/// many.
pub(super) struct Logarithmic {
    least: f64,
    most: f64,
}

impl Logarithmic {
    pub(super) fn new((least, most): (f64, f64)) -> Self {
        Self { least, most }
    }
}

impl Ranged for Logarithmic {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        let length = f64::from(limit.1 - limit.0);
        #[allow(clippy::cast_possible_truncation, reason = "pixels of a chart")]
        let pixels = (length * share).round() as i32;
        limit.0 + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points().max(2);
        let candidates: [(&[f64], usize); 5] =
            [(&[1.0, 2.0, 5.0], 1), (&[1.0, 3.0], 1), (&[1.0], 1), (&[1.0], 2), (&[1.0], 4)];
        let all = candidates.map(|(digits, each)| self.at(digits, each));
        let fitting = all.iter().find(|points| points.len() <= most);
        fitting.or_else(|| all.last()).cloned().unwrap_or_default()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.least..self.most
    }
}

impl Logarithmic {
    /// These digits of each power of ten, or of each second or fourth power, within the range.
    fn at(&self, digits: &[f64], each: usize) -> Vec<f64> {
        let powers = (-3..=12).step_by(each);
        let points = powers.flat_map(|power| digits.iter().map(move |d| d * 10f64.powi(power)));
        points.filter(|at| (self.least..=self.most).contains(at)).collect()
    }
}

/// True if the values' range is so wide that a logarithmic axis shows them better.
pub(super) fn spans_much(values: impl Iterator<Item = f64>) -> bool {
    let (least, most) =
        values.fold((f64::MAX, 0.0_f64), |(least, most), at| (least.min(at), most.max(at)));
    least > 0.0 && most / least >= 32.0
}

pub(super) fn usize_f64(number: usize) -> f64 {
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
            assert_eq!(Unit::Number.shown(number), text);
        }
    }

    #[test]
    fn times_are_shown_in_a_readable_unit() {
        for (micros, text) in [
            (0.5, "0.5 µs"),
            (20.0, "20 µs"),
            (184.3, "184 µs"),
            (1000.0, "1 ms"),
            (1230.0, "1.23 ms"),
            (250_000.0, "250 ms"),
            (2.5e6, "2.5 s"),
            (100e6, "100 s"),
        ] {
            assert_eq!(Unit::Micros.shown(micros), text);
        }
    }

    #[test]
    fn nines_are_percentiles() {
        let shown = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|nines| Unit::Nines.shown(nines));
        assert_eq!(shown, ["0", "90", "99", "99.9", "99.99", "99.999"]);
    }

    #[test]
    fn a_logarithmic_axis_has_few_labels_and_no_duplicates() {
        for least in [0.9, 0.09, 3.0, 9.0] {
            for most in [9.5, 12.0, 120.0, 1e4, 3e6] {
                let axis = Logarithmic::new((least, most));
                for count in 4..12 {
                    let points = axis.key_points(count);
                    let labels: Vec<String> =
                        points.iter().map(|point| Unit::Micros.shown(*point)).collect();
                    let mut once = labels.clone();
                    once.dedup();
                    assert_eq!(labels, once, "{least}..{most}, {count}");
                    assert!(labels.len() <= count, "{least}..{most}, {count}: {labels:?}");
                }
            }
        }
    }
}
