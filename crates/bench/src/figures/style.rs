//! Colours and letters of the charts, and the error of drawing.

use std::fmt::Display;

use anyhow::anyhow;
use plotters::style::RGBColor;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Size of labels and names, in points as plotters counts them: 1.24 of them are a pixel.
pub(super) const LETTERS: i32 = 18;

/// The family of all letters.
pub(super) const FONT: &str = "sans-serif";

/// The error of a chart.
pub(super) fn failed(error: impl Display) -> anyhow::Error {
    anyhow!("a chart cannot be drawn: {error}")
}
