//! The terminal's life: opened, drawn after each key and once per interval, and restored.

use std::io::{self, stdout};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::draw::draw;
use super::{Asked, Screen, Top};
use crate::poller::{Extras, Poller};

/// The time after which a terminal accepts no output.
const DRAW_PATIENCE: Duration = Duration::from_secs(1);

/// Draws the tier until the user ends it.
///
/// # Errors
///
/// Returns the terminal's error.
pub(crate) fn run(poller: &Poller, interval: Duration) -> io::Result<()> {
    let drawing = Arc::new(Mutex::new(()));
    end_on_signals(Arc::clone(&drawing))?;
    let mut terminal = {
        let _drawing = drawing.lock();
        ratatui::try_init()?
    };
    let end = turn(&mut terminal, &drawing, poller, Top::new(interval));
    ratatui::restore();
    end
}

/// Ends the program at a signal as `q` does. It does so on a separate thread, because the other one
/// may not return from reading a terminal that is gone.
fn end_on_signals(drawing: Arc<Mutex<()>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            // Nothing is drawn after this. A terminal that accepts no output cannot be restored.
            if let Some(_drawing) = drawing.try_lock_for(DRAW_PATIENCE) {
                // There is no other place to report the terminal's errors to.
                let _ = execute!(stdout(), Show);
                let _ = ratatui::try_restore();
            }
            process::exit(0);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

fn turn(
    terminal: &mut DefaultTerminal,
    drawing: &Mutex<()>,
    poller: &Poller,
    mut top: Top,
) -> io::Result<()> {
    let mut redraw = |top: &mut Top| {
        let _drawing = drawing.lock();
        terminal.draw(|frame| draw(frame, top)).map(drop)
    };
    // The first answers come at once.
    let mut next = Instant::now() + Duration::from_millis(100);
    loop {
        top.update(poller.members());
        redraw(&mut top)?;
        while let Some(code) = key_until(next)? {
            if top.press(code) == Asked::End {
                return Ok(());
            }
            let details_of = match top.screen {
                Screen::Details(place) => Some(place),
                Screen::Members | Screen::HotKeys | Screen::Help => None,
            };
            let hot_keys = top.screen == Screen::HotKeys;
            poller.want(Extras { hot_keys, details_of, ..Extras::default() });
            redraw(&mut top)?;
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
