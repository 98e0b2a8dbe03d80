//! The terminal: its screens and the effects of keys.

mod draw;
mod table;
mod terminal;

pub(crate) use terminal::run;

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;

use crate::once::roles;
use crate::order::Shown;
use crate::poller::Member;
use crate::row::Row;

/// The current screen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Screen {
    /// The table of members.
    #[default]
    Members,
    /// All statistics of one member; its index among the members.
    Details(usize),
    /// The hot keys of all servers.
    HotKeys,
    /// The keys and columns explained.
    Help,
}

/// The effect of a key beyond the screen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asked {
    /// Nothing.
    Nothing,
    /// The end.
    End,
}

/// The state of the terminal.
#[derive(Debug, Default)]
struct Top {
    members: Vec<Member>,
    interval: Duration,
    shown: Shown,
    screen: Screen,
    /// True while the filter is being typed.
    is_typing: bool,
    /// True while new numbers are not shown.
    is_paused: bool,
    /// The selected row, or the first line of the other screens.
    at: usize,
}

impl Top {
    fn new(interval: Duration) -> Self {
        Self { interval, ..Self::default() }
    }

    /// Takes new numbers, unless paused.
    fn update(&mut self, members: Vec<Member>) {
        if !self.is_paused {
            self.members = members;
        }
    }

    /// The rows in order.
    fn rows(&self) -> Vec<Row> {
        let all = self.members.iter().enumerate();
        self.shown.rows(all.map(|(place, member)| Row::new(place, member)).collect())
    }

    fn press(&mut self, code: KeyCode) -> Asked {
        if self.is_typing {
            self.type_filter(code);
            return Asked::Nothing;
        }
        match code {
            KeyCode::Char('q') => return Asked::End,
            KeyCode::Esc if self.screen == Screen::Members && self.shown.filter.is_empty() => {
                return Asked::End;
            }
            KeyCode::Esc if self.screen == Screen::Members => self.shown.filter.clear(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.show(Screen::Members),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('<') => self.turn_order(-1),
            KeyCode::Char('>') => self.turn_order(1),
            KeyCode::Char('r') => self.shown.is_reversed = !self.shown.is_reversed,
            KeyCode::Char('k') => self.show(Screen::HotKeys),
            KeyCode::Char('?' | 'h') => self.show(Screen::Help),
            KeyCode::Enter | KeyCode::Right if self.screen == Screen::Members => {
                if let Some(place) = self.rows().get(self.at).map(|row| row.place) {
                    self.show(Screen::Details(place));
                }
            }
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at += 1,
            KeyCode::PageUp => self.at = self.at.saturating_sub(20),
            KeyCode::PageDown => self.at += 20,
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = usize::MAX,
            _ => {}
        }
        Asked::Nothing
    }

    /// Letters go to the filter until it ends.
    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.shown.filter.clear();
            }
            KeyCode::Backspace => {
                self.shown.filter.pop();
            }
            KeyCode::Char(letter) => self.shown.filter.push(letter),
            _ => {}
        }
        self.at = 0;
    }

    fn show(&mut self, screen: Screen) {
        self.screen = screen;
        self.at = 0;
    }

    fn turn_order(&mut self, step: isize) {
        self.shown.order = self.shown.order.next(&roles(&self.rows()), step);
        self.at = 0;
    }
}

#[cfg(test)]
mod tests;
