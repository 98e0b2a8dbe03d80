//! The terminal's life: opened, drawn after each key and once per interval, and restored.

use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::{Asked, Screen, Top};
use crate::poller::{Poller, Wish};

/// Draws the tier until the user ends it.
///
/// # Errors
///
/// Returns the terminal's error.
pub(crate) fn run(poller: &Poller, interval: Duration) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let end = turn(&mut terminal, poller, Top::new(interval));
    ratatui::restore();
    end
}

fn turn(terminal: &mut DefaultTerminal, poller: &Poller, mut top: Top) -> io::Result<()> {
    // The first answers come at once.
    let mut next = Instant::now() + Duration::from_millis(100);
    loop {
        top.update(poller.members());
        terminal.draw(|frame| draw(frame, &mut top))?;
        while let Some(code) = key_until(next)? {
            if top.press(code) == Asked::End {
                return Ok(());
            }
            let details_of = match top.screen {
                Screen::Details(place) => Some(place),
                Screen::Members | Screen::HotKeys | Screen::Help => None,
            };
            let hot_keys = top.screen == Screen::HotKeys;
            poller.want(Wish { hot_keys, details_of, ..Wish::default() });
            terminal.draw(|frame| draw(frame, &mut top))?;
        }
        next = Instant::now() + top.interval.min(Duration::from_secs(1));
    }
}

/// The next key pressed before a time; Ctrl-C is `q`. A resized terminal is redrawn at once.
fn key_until(time: Instant) -> io::Result<Option<KeyCode>> {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            return Ok(None);
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let is_end =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                return Ok(Some(if is_end { KeyCode::Char('q') } else { key.code }));
            }
            Event::Resize(..) => return Ok(None),
            _ => {}
        }
    }
}
