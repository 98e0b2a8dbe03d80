//! The names of a chart's series, in rows above the plot, where they hide no line.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{COLOURS, FONT, LETTERS, failed};
use generator::number::fits;

/// The style of a series in the plot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    Area,
    Line,
}

/// Placed names.
#[derive(Debug)]
pub(super) struct Legend {
    mark: Mark,
    /// Each with the index of its series, which decides the colour.
    rows: Vec<Vec<(usize, String)>>,
}

/// Letters of the longest name shown whole.
const LETTERS_MAX: usize = 42;

/// Height of a row of names, and the space above and below all of them.
const ROW: i32 = 22;
const SPACE: i32 = 8;

/// The left edge of the first name in a row, and the right limit of all names.
const LEFT: i32 = 16;

/// Width of a letter: no common font's letters are wider on average.
const LETTER: i32 = 8;

/// Widths of the mark, of the gap to its name, and of the gap to the next mark.
const MARK: i32 = 18;
const GAP: i32 = 6;
const APART: i32 = 16;

impl Legend {
    /// A legend of the series with these names, in order, for a chart of this width; a `None` name
    /// is left out.
    pub(super) fn new<'a>(
        names: impl IntoIterator<Item = Option<&'a str>>,
        mark: Mark,
        width: u32,
    ) -> Self {
        let width = fits::<_, i32>(width) - LEFT;
        let mut rows: Vec<Vec<(usize, String)>> = Vec::new();
        let mut end = i32::MAX;
        for (place, name) in names.into_iter().enumerate() {
            let Some(name) = name.map(shown) else { continue };
            let more = entry_width(&name);
            if end.saturating_add(more) > width {
                rows.push(Vec::new());
                end = LEFT;
            }
            end += more + APART;
            if let Some(row) = rows.last_mut() {
                row.push((place, name));
            }
        }
        Self { mark, rows }
    }

    /// Its height at the top of a chart, in pixels.
    pub(super) fn height(&self) -> u32 {
        let rows: i32 = fits(self.rows.len());
        if rows == 0 { 0 } else { fits(rows * ROW + SPACE) }
    }

    /// Draws it at the top of `area`.
    pub(super) fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        let font = TextStyle::from((FONT, LETTERS)).pos(Pos::new(HPos::Left, VPos::Center));
        let mut y = SPACE + ROW / 2;
        for row in &self.rows {
            let mut x = LEFT;
            for (place, name) in row {
                let colour = COLOURS[place % COLOURS.len()];
                match self.mark {
                    Mark::Area => {
                        let corners = [(x, y - 5), (x + MARK, y + 5)];
                        area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
                    }
                    Mark::Line => {
                        let ends = [(x, y), (x + MARK, y)];
                        let line = PathElement::new(ends, colour.stroke_width(2));
                        area.draw(&line).map_err(failed)?;
                    }
                }
                let text = Text::new(name.as_str(), (x + MARK + GAP, y), font.clone());
                area.draw(&text).map_err(failed)?;
                x += entry_width(name) + APART;
            }
            y += ROW;
        }
        Ok(())
    }
}

/// A name and its mark.
fn entry_width(name: &str) -> i32 {
    let letters: i32 = fits(name.chars().count());
    MARK + GAP + letters * LETTER
}

/// The shown form of a name: the end of one that is too long, because names differ there.
fn shown(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= LETTERS_MAX {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(letters - LETTERS_MAX + 1).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_begin_another_row() {
        let all = ["a", "b", "server: holdall-worker 12345", "generator: holdall-bench 6789"];
        let legend = Legend::new(all.map(Some), Mark::Line, 380);
        let rows: Vec<usize> = legend.rows.iter().map(Vec::len).collect();
        assert_eq!((rows, legend.height()), (vec![3, 1], 52));
        for row in &legend.rows {
            let end: i32 = row.iter().map(|(_, name)| entry_width(name) + APART).sum();
            assert!(LEFT + end - APART <= 380);
        }
    }

    #[test]
    fn long_names_are_cut_and_series_keep_their_colours() {
        let long = "x".repeat(200);
        let legend = Legend::new([None, Some(long.as_str()), Some("ä")], Mark::Area, 380);
        let placed: Vec<(usize, usize)> =
            legend.rows.iter().flatten().map(|(at, name)| (*at, name.chars().count())).collect();
        assert_eq!(placed, [(1, LETTERS_MAX), (2, 1)]);
        assert!(entry_width(&legend.rows[0][0].1) + LEFT <= 380);
        assert_eq!(Legend::new([None, None], Mark::Area, 380).height(), 0);
    }
}
