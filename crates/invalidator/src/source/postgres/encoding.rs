//! The encoding of values in keys. The log is read with the database's own bytes, because the
//! server can convert only a part of them: it would end the log at the first value that it cannot
//! convert, in whatever column.
//!
//! Bytes of a database in UTF8 or SQL_ASCII are those that applications have. In another encoding,
//! applications that use UTF-8 have the converted value. A value that cannot be converted exists
//! only for applications that use the database's encoding, so its bytes are right as they are.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use bytes::Bytes;
use changes::change::{Cell, Change, Event, Row, Table};
use changes::keys::{KEY_BYTES_MAX, Rules};

use super::connection::Connection;
use super::failure::{Failure, is_of_encoding};
use super::settings::Settings;

/// The number of converted values that are remembered. Longer ones than a key are not.
const KNOWN_MAX: usize = 4096;

/// True if a database of this encoding has the bytes that applications have.
pub(super) fn is_as_written(encoding: &str) -> bool {
    ["UTF8", "SQL_ASCII"].contains(&encoding)
}

/// Converts the values of a database in another encoding, through a session of its own.
#[derive(Debug)]
pub(super) struct Converter {
    settings: Settings,
    server: String,
    /// The columns that keys use, by table.
    columns: BTreeMap<String, Vec<String>>,
    session: Option<Connection>,
    known: HashMap<Bytes, Bytes>,
}

impl Converter {
    /// A converter of the values in keys of these rules.
    pub(super) fn new(settings: Settings, server: String, rules: &Rules) -> Self {
        let owned = |(table, columns): (&str, Vec<&str>)| {
            (table.to_owned(), columns.into_iter().map(ToOwned::to_owned).collect())
        };
        let columns = rules.columns().into_iter().map(owned).collect();
        Self { settings, server, columns, session: None, known: HashMap::new() }
    }

    /// The event with its values in UTF-8, as far as keys use them.
    pub(super) async fn converted(&mut self, mut event: Event) -> Result<Event, Failure> {
        if let Event::Change(Change::Row { table, before, after }) = &mut event {
            for row in [before, after].into_iter().flatten() {
                self.convert(table, row).await?;
            }
        }
        Ok(event)
    }

    async fn convert(&mut self, table: &Table, row: &mut Row) -> Result<(), Failure> {
        for (column, cell) in table.columns.iter().zip(row) {
            let is_used = self.columns.get(&table.name).is_some_and(|used| used.contains(column));
            match cell {
                // All encodings of databases have ASCII.
                Cell::Text(text) if is_used && !text.is_ascii() => *text = self.utf8(text).await?,
                _ => {}
            }
        }
        Ok(())
    }

    async fn utf8(&mut self, text: &Bytes) -> Result<Bytes, Failure> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        let converted = match self.session.take() {
            Some(session) => match self.ask(session, text).await {
                // It ended while it was idle.
                Err(failure) if !matches!(failure, Failure::Refused { .. }) => {
                    self.ask_anew(text).await?
                }
                answer => answer?,
            },
            None => self.ask_anew(text).await?,
        };
        if text.len() <= KEY_BYTES_MAX {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(text.clone(), converted.clone());
        }
        Ok(converted)
    }

    async fn ask_anew(&mut self, text: &Bytes) -> Result<Bytes, Failure> {
        let session = Connection::open(&self.settings, &self.server, false).await?;
        self.ask(session, text).await
    }

    /// Keeps the session if it works.
    async fn ask(&mut self, mut session: Connection, text: &Bytes) -> Result<Bytes, Failure> {
        let converted = match session.text(&query(text)).await {
            Ok(converted) => Bytes::from(converted),
            Err(failure) if is_of_encoding(&failure) => text.clone(),
            Err(failure) => return Err(failure),
        };
        self.session = Some(session);
        Ok(converted)
    }
}

/// A query for a value of these bytes. The server converts the answer for the session.
fn query(text: &[u8]) -> String {
    let mut hex = String::with_capacity(text.len() * 2);
    for byte in text {
        let _ = write!(hex, "{byte:02x}");
    }
    format!("SELECT convert_from(decode('{hex}', 'hex'), getdatabaseencoding())")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::connection::tests::{READY, message, settings};
    use super::*;

    /// Reads a message that may have a tag, and returns its body.
    async fn read(stream: &mut TcpStream, has_tag: bool) -> Option<Vec<u8>> {
        if has_tag {
            stream.read_u8().await.ok()?;
        }
        let len = stream.read_u32().await.ok()?;
        let mut body = vec![0; len as usize - 4];
        stream.read_exact(&mut body).await.ok()?;
        Some(body)
    }

    /// Serves a session of this many queries, and returns them.
    async fn serve(listener: &TcpListener, queries: usize) -> Vec<String> {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream, false).await.unwrap();
        stream.write_all(&[&message(b'R', &[0; 4]), READY].concat()).await.unwrap();
        let mut asked = Vec::new();
        for _ in 0..queries {
            let query = read(&mut stream, true).await.unwrap();
            asked.push(String::from_utf8(query).unwrap());
            let row = message(b'D', "\0\x01\0\0\0\x02é".as_bytes());
            stream.write_all(&[&row, READY].concat()).await.unwrap();
        }
        asked
    }

    #[tokio::test]
    async fn a_session_that_ended_while_idle_is_replaced_and_long_values_are_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let settings = Settings { servers: vec![address.clone()], ..settings() };
        let server = tokio::spawn(async move {
            let first = serve(&listener, 1).await;
            (first, serve(&listener, 2).await)
        });
        let mut converter = Converter::new(settings, address, &Rules::default());
        let short = Bytes::from_static(b"\xe9");
        assert_eq!(converter.utf8(&short).await.unwrap(), "é");
        assert_eq!(converter.utf8(&short).await.unwrap(), "é", "it is known");
        let long = Bytes::from(vec![0xe9; KEY_BYTES_MAX + 1]);
        for _ in 0..2 {
            assert_eq!(converter.utf8(&long).await.unwrap(), "é");
        }
        assert_eq!(converter.known.len(), 1);
        let (first, second) = server.await.unwrap();
        assert_eq!((first.len(), second.len()), (1, 2));
    }
}
