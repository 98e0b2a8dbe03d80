//! The table of members as lines, for any width.

use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Span};

use crate::number;
use crate::once::roles;
use crate::row::{Column, Health, Row, columns, totals};
use tools::Role;

/// Terminal columns of a number, with the space before it.
const NUMBER: usize = 7;

/// The minimum width for addresses.
const ADDRESS: usize = 22;

/// A line, and its row.
pub(super) struct TableLine {
    pub(super) line: Line<'static>,
    /// The index of the row; none for heads and totals.
    pub(super) row: Option<usize>,
}

/// The lines for a terminal of `width` columns.
pub(super) fn lines(rows: &[Row], width: usize) -> Vec<TableLine> {
    let mut lines = Vec::new();
    let names = rows.iter().map(|row| name(row).chars().count());
    let longest = names.max().unwrap_or(0).max(ADDRESS);
    for role in roles(rows) {
        let shown = fitting(role, width);
        if !lines.is_empty() {
            lines.push(TableLine { line: Line::default(), row: None });
        }
        let of_role: Vec<&Row> = rows.iter().filter(|row| row.role == role).collect();
        let address = width.saturating_sub(2 + shown.len() * NUMBER).clamp(1, longest);
        lines.push(TableLine { line: head(role, &of_role, &shown, address), row: None });
        let all = rows.iter().enumerate().filter(|(_, row)| row.role == role);
        lines.extend(
            all.map(|(at, row)| TableLine {
                line: body(row, &shown, address, width),
                row: Some(at),
            }),
        );
        if of_role.len() > 1 {
            let numbers = totals(role, &of_role);
            let mut text = format!("  {:<address$}", "all");
            push_numbers(&mut text, &numbers, &shown);
            lines.push(TableLine { line: Line::from(text).bold(), row: None });
        }
    }
    lines
}

/// The columns that fit next to an address, with their indexes among all of the role.
fn fitting(role: Role, width: usize) -> Vec<(usize, &'static Column)> {
    let room = width.saturating_sub(2 + ADDRESS) / NUMBER;
    let all = columns(role).iter().enumerate();
    let narrow = all.clone().filter(|(_, column)| !column.is_wide);
    narrow.chain(all.filter(|(_, column)| column.is_wide)).take(room.max(1)).collect()
}

fn head(role: Role, of_role: &[&Row], shown: &[(usize, &Column)], address: usize) -> Line<'static> {
    let plural = if of_role.len() == 1 { "" } else { "s" };
    let name = cut(&format!("{} {}{plural}", of_role.len(), role.name()), address);
    let mut text = format!("  {name:<address$}");
    for (_, column) in shown {
        text.push_str(&format!("{:>NUMBER$}", column.title));
    }
    Line::from(text).bold().underlined()
}

fn body(row: &Row, shown: &[(usize, &Column)], address: usize, width: usize) -> Line<'static> {
    // The mark is visible without colours, too.
    let (mark, style) = match row.health {
        Health::Good => ("  ", Style::new()),
        Health::Unknown => ("? ", Style::new().dim()),
        Health::Trouble(_) => ("! ", Style::new().yellow()),
        Health::Away(_) => ("x ", Style::new().red()),
    };
    let mut text = format!("{:<address$}", cut(&name(row), address));
    match &row.health {
        Health::Away(why) => {
            text.push_str(&format!(" {}", cut(why, width.saturating_sub(address + 3))));
        }
        _ => push_numbers(&mut text, &row.numbers, shown),
    }
    Line::from(vec![Span::styled(mark, style.bold()), Span::styled(text, style)])
}

fn name(row: &Row) -> String {
    if row.group.is_empty() {
        row.address.clone()
    } else {
        format!("{} {}", row.address, row.group)
    }
}

fn push_numbers(text: &mut String, numbers: &[Option<f64>], shown: &[(usize, &Column)]) {
    for (at, column) in shown {
        let number = numbers.get(*at).copied().flatten();
        let number = number.map_or_else(|| "-".to_owned(), |it| number::shown(column.unit, it));
        text.push_str(&format!("{number:>NUMBER$}"));
    }
}

/// The text, or its start and an ellipsis.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let begin: String = text.chars().take(width.saturating_sub(1)).collect();
    begin + "…"
}
