//! Changes that another program sends, one JSON object per line: in holdall's own form, or as
//! Debezium writes them.
//!
//! ```text
//!     stdin, or a connection -> Input (lines) -> own::read or Debezium (events)
//!     the sender             <- what was delivered, as lines
//! ```
//!
//! Each line is a committed change. There is no session that reports its visibility, so every
//! delete is sent twice. An unreadable line is a gap.

mod debezium;
mod input;
mod own;
mod value;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use changes::change::{Event, Mark, Table};
use changes::position::Position;
use serde_json::Value;

use crate::change_source::{ChangeSource, SourceError, VisibilityProbe};
pub use debezium::{OldRows, Schemas};
use input::{Input, Line};

/// The origin of lines, and their form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// An address (`127.0.0.1:9100`) or the path of a unix socket to listen at; stdin if it is
    /// `None`.
    pub listen: Option<String>,
    /// Debezium's form, with facts that its events lack; holdall's own if it is `None`.
    pub debezium: Option<Debezium>,
}

/// Facts that Debezium's events lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debezium {
    /// The columns that old rows have.
    pub old_rows: OldRows,
    /// The types of columns in events.
    pub schemas: Schemas,
    /// True if a topic's offsets skip numbers, as those of transactions do.
    pub has_holes: bool,
}

/// The longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A place in the input: the last position of each part.
pub type Places = BTreeMap<String, String>;

/// The lines of another program.
#[derive(Debug)]
pub struct LinesSource {
    settings: Settings,
    input: Option<Input>,
    reader: Reader,
}

/// Turns lines into events.
#[derive(Debug)]
struct Reader {
    debezium: Option<Debezium>,
    /// The last place read.
    places: Places,
    tables: Tables,
    pending: VecDeque<Event>,
}

/// One description per table, while its columns stay the same.
#[derive(Debug, Default)]
struct Tables(HashMap<String, Arc<Table>>);

/// Maximum number of tables remembered.
const TABLES_MAX: usize = 4096;

impl Tables {
    fn of(&mut self, name: &str, columns: Vec<String>) -> Arc<Table> {
        if let Some(table) = self.0.get(name).filter(|table| table.columns == columns) {
            return Arc::clone(table);
        }
        if self.0.len() >= TABLES_MAX {
            self.0.clear();
        }
        let table = Arc::new(Table { name: name.to_owned(), columns });
        self.0.insert(name.to_owned(), Arc::clone(&table));
        table
    }
}

impl LinesSource {
    /// A source that has read nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let debezium = settings.debezium;
        let (places, tables, pending) = (Places::new(), Tables::default(), VecDeque::new());
        let reader = Reader { debezium, places, tables, pending };
        Self { settings, input: None, reader }
    }
}

/// A line's change and the place after it.
#[derive(Debug, Default)]
struct Read {
    events: Vec<Event>,
    /// The parts of the place that the line moves.
    places: Places,
    /// Commit time, in microseconds since 1970; 0 if unknown.
    committed_us: u64,
}

impl Reader {
    fn line(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let read = match serde_json::from_slice::<Value>(line) {
            Ok(value) => match self.debezium {
                None => own::read(value, &mut self.tables),
                Some(settings) => debezium::read(value, settings, &self.places, &mut self.tables),
            },
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(read) => {
                self.pending.extend(read.events);
                self.places.extend(read.places);
                let position = Position::Stream(self.places.clone());
                let (committed_us, mark) = (read.committed_us, Mark::Unknown);
                self.pending.push_back(Event::Commit { position, committed_us, mark });
            }
            Err(why) => {
                let begin: String = String::from_utf8_lossy(line).chars().take(80).collect();
                let why = format!("a line that cannot be read ({why}): '{begin}'");
                self.pending.push_back(Event::Gap { why });
            }
        }
    }
}

impl ChangeSource for LinesSource {
    type Probe = Blind;

    async fn open(&mut self, from: Option<&Position>) -> Result<Position, SourceError> {
        self.reader.pending.clear();
        self.reader.places = match from {
            None => Places::new(),
            Some(Position::Stream(places)) => places.clone(),
            Some(other) => {
                return Err(SourceError::Wrong(format!(
                    "position {other} means nothing to a source of lines"
                )));
            }
        };
        let (listen, places) = (self.settings.listen.as_deref(), &self.reader.places);
        match &mut self.input {
            Some(input) => input.next_sender(places).await?,
            None => self.input = Some(Input::open(listen, places).await?),
        }
        Ok(Position::Stream(self.reader.places.clone()))
    }

    async fn next(&mut self) -> Result<Event, SourceError> {
        let Some(input) = &mut self.input else {
            return Err(SourceError::Lost("the input is not open".to_owned()));
        };
        loop {
            if let Some(event) = self.reader.pending.pop_front() {
                return Ok(event);
            }
            match input.line().await? {
                Line::Whole(line) => self.reader.line(&line),
                Line::TooLong => self.reader.pending.push_back(Event::Gap {
                    why: format!("a line of more than {LINE_BYTES_MAX} bytes"),
                }),
                Line::Nothing => return Ok(Event::Alive),
            }
        }
    }

    fn probe(&self) -> Blind {
        Blind
    }

    fn behind_bytes(&self) -> Option<u64> {
        None
    }

    fn confirm(&mut self, position: &Position) {
        if let (Position::Stream(places), Some(input)) = (position, &self.input) {
            input.confirm(places);
        }
    }
}

/// The visibility of a change cannot be queried.
#[derive(Debug)]
pub struct Blind;

impl VisibilityProbe for Blind {
    async fn refresh(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn is_visible(&self, _mark: &Mark) -> Option<bool> {
        None
    }
}

#[cfg(test)]
mod tests;
