//! The screens.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::table::{cut, lines};
use super::{Screen, Top};
use crate::hot_keys::hot_keys;
use crate::number::{self, Unit};
use crate::poller::Member;
use crate::row::{Health, Row, columns};
use tools::Role;

pub(super) fn draw(frame: &mut Frame<'_>, top: &mut Top) {
    let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(2)];
    let [head, middle, foot] = Layout::vertical(rows).areas(frame.area());
    let table = top.rows();
    frame.render_widget(summary(top, &table).bold(), head);
    match top.screen {
        Screen::Members => draw_members(frame, middle, top, &table),
        Screen::Details(place) => {
            let lines = top
                .members
                .get(place)
                .map_or_else(Vec::new, |member| details(member, &top.shown.filter));
            draw_lines(frame, middle, top, lines);
        }
        Screen::HotKeys => {
            let lines = hot(&top.members, &top.shown.filter);
            draw_lines(frame, middle, top, lines);
        }
        Screen::Help => draw_lines(frame, middle, top, help()),
    }
    draw_foot(frame, foot, top, &table);
}

/// The number of members and their health.
fn summary(top: &Top, rows: &[Row]) -> Line<'static> {
    let count = |wanted: fn(&Health) -> bool| rows.iter().filter(|row| wanted(&row.health)).count();
    let away = count(|health| matches!(health, Health::Away(_)));
    let troubled = count(|health| matches!(health, Health::Trouble(_)));
    let paused = if top.is_paused { "PAUSED  " } else { "" };
    let mut text = format!(
        "holdall top  {paused}{} member{}",
        rows.len(),
        if rows.len() == 1 { "" } else { "s" }
    );
    if rows.len() < top.members.len() {
        text.push_str(&format!(" of {}", top.members.len()));
    }
    text.push_str(&format!(", {away} away, {troubled} in trouble"));
    text.push_str(&format!("  every {} s", top.interval.as_secs_f64()));
    text.push_str(&format!("  order: {}", top.shown.order.title()));
    if top.shown.is_reversed {
        text.push_str(", reversed");
    }
    Line::from(text)
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, top: &mut Top, rows: &[Row]) {
    top.at = top.at.min(rows.len().saturating_sub(1));
    let lines = lines(rows, usize::from(area.width));
    let selected = lines.iter().position(|line| line.row == Some(top.at)).unwrap_or(0);
    // The selected row is never below the last visible line, nor is its role's head above.
    let height = usize::from(area.height);
    let first = (selected + 2).saturating_sub(height).min(lines.len().saturating_sub(height));
    let seen = lines
        .into_iter()
        .skip(first)
        .take(height)
        .map(|line| if line.row == Some(top.at) { line.line.reversed() } else { line.line });
    frame.render_widget(Paragraph::new(seen.collect::<Vec<_>>()), area);
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, top: &mut Top, lines: Vec<Line<'static>>) {
    let height = usize::from(area.height);
    top.at = top.at.min(lines.len().saturating_sub(height));
    let seen: Vec<_> = lines.into_iter().skip(top.at).take(height).collect();
    frame.render_widget(Paragraph::new(seen), area);
}

/// Every statistic of a member, and its growth.
fn details(member: &Member, filter: &str) -> Vec<Line<'static>> {
    let title = format!("{} {}", member.target.address, member.target.group);
    let mut lines = vec![Line::from(title.trim_end().to_owned()).bold()];
    if let Some(error) = &member.error {
        lines.push(Line::from(error.clone()).red());
    }
    let Some(now) = &member.now else { return lines };
    let filter = filter.to_lowercase();
    for (name, value) in &now.stats {
        if !name.to_lowercase().contains(&filter) {
            continue;
        }
        let mut text = format!("{name:<36} {value}");
        if let Some(rate) = growth(member, name) {
            text.push_str(&format!("   {}/s", number::shown(Unit::Count, rate)));
        }
        lines.push(Line::from(text));
    }
    lines
}

/// The growth of a statistic, per second, if it grew and is no clock.
fn growth(member: &Member, name: &str) -> Option<f64> {
    let is_clock = matches!(name, "time" | "uptime" | "config_age");
    member.rate(name).filter(|rate| *rate > 0.0 && !is_clock)
}

fn hot(members: &[Member], filter: &str) -> Vec<Line<'static>> {
    let head = format!("{:>9} {:>7}  {:<28} {}", "requests", "share", "server", "key");
    let mut lines = vec![Line::from(head).bold().underlined()];
    let keys = hot_keys(members).into_iter().filter(|hot| hot.key.contains(filter));
    lines.extend(keys.map(|hot| {
        let rate = number::shown(Unit::Count, hot.requests_per_second);
        let share = number::shown(Unit::Ratio, hot.share);
        let address = cut(&hot.address, 28);
        Line::from(format!("{rate:>7}/s {share:>7}  {address:<28} {}", hot.key))
    }));
    if lines.len() == 1 {
        lines.push(Line::from("no key is hot; memcached does not tell, and no key is asked for"));
    }
    lines
}

fn help() -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = KEYS.lines().map(Line::from).collect();
    for role in [Role::Server, Role::Proxy, Role::Invalidator] {
        let names = columns(role)
            .iter()
            .map(|column| format!("  {:<7} {}", column.title, column.name.replace('_', " ")));
        lines.push(Line::from(format!("Columns of a {}", role.name())).bold());
        lines.extend(names.map(Line::from));
    }
    lines
}

const KEYS: &str = "\
Up Down PgUp PgDn   choose a member, or scroll
Enter               all that the member says, with rates; Esc leads back
k                   hot keys of all servers
< >                 order by another column; r turns it round
/                   show what has these letters; Esc ends it
space               stop the numbers, or go on
q                   end
";

fn draw_foot(frame: &mut Frame<'_>, area: Rect, top: &Top, rows: &[Row]) {
    let told = if top.is_typing {
        format!("/{}_", top.shown.filter)
    } else if top.screen == Screen::Members
        && let Some(row) = rows.get(top.at)
        && !row.health.reason().is_empty()
    {
        format!("{}: {}", row.address, row.health.reason())
    } else if top.shown.filter.is_empty() {
        String::new()
    } else {
        format!("filter: {}", top.shown.filter)
    };
    let keys = " q end  Enter details  k hot keys  < > order  / filter  space pause  ? help";
    let width = usize::from(area.width);
    let lines = vec![Line::from(cut(&told, width)), Line::from(cut(keys, width)).reversed()];
    frame.render_widget(Paragraph::new(lines), area);
}
