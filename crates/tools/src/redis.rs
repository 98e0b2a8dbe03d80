//! A connection to Redis or Valkey, as far as reading from one needs it: `redis://HOST:PORT/DB`.
//!
//! Source: the RESP2 specification of redis.io.

use crate::connection::{Connection, Error, Options, login_in};

/// The start of an address of Redis.
pub const SCHEME: &str = "redis://";

/// The port of an address without one.
const PORT: u16 = 6379;

/// The longest value that Redis stores, in bytes.
const TEXT_BYTES_MAX: usize = 512 << 20;

/// More entries than any reply to these requests has.
const ENTRIES_MAX: usize = 1 << 20;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A text or a status.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Null: there is no such key.
    Nothing,
    /// A list.
    List(Vec<Self>),
    /// A refusal, which starts with its kind.
    Refused(String),
}

/// A connection after login, with its database selected.
#[derive(Debug)]
pub struct Redis(Connection);

impl Redis {
    /// Connects to `redis://HOST:PORT/DB`; the default port is 6379, the default database 0.
    ///
    /// # Errors
    ///
    /// When the server is not reached, or refuses the login or the database.
    pub fn open(address: &str, options: &Options) -> Result<Self, Error> {
        let rest = address.strip_prefix(SCHEME).unwrap_or(address);
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let place = hostport::with_port(place, PORT);
        let without_login = Options { login: None, ..options.clone() };
        let mut redis = Self(Connection::open(&place, &without_login)?);
        if let Some(file) = &options.login {
            let (user, password) = login_in(file)?;
            redis.agreed("AUTH", &[&user, &password])?;
        }
        if !database.is_empty() {
            redis.agreed("SELECT", &[database])?;
        }
        Ok(redis)
    }

    fn agreed(&mut self, command: &'static str, words: &[&str]) -> Result<(), Error> {
        match self.ask(command, words)? {
            Reply::Text(_) => Ok(()),
            reply => Err(self.unexpected(command, &reply)),
        }
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    ///
    /// Returns errors of the connection, or of an invalid reply.
    pub fn ask(&mut self, command: &'static str, words: &[&str]) -> Result<Reply, Error> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask_in_bytes(command, &words)
    }

    /// Like [`Redis::ask`], with words of any bytes, such as keys.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn ask_in_bytes(&mut self, command: &'static str, words: &[&[u8]]) -> Result<Reply, Error> {
        let mut request = Vec::new();
        write_request(&[&[command.as_bytes()], words].concat(), &mut request);
        self.send(&request)?;
        self.reply(command)
    }

    /// Sends requests of [`write_request`].
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), Error> {
        self.0.send(requests)
    }

    /// The reply to the next request that was sent.
    pub(crate) fn reply(&mut self, command: &'static str) -> Result<Reply, Error> {
        self.nested(command, 0)
    }

    /// The error for a reply that does not fit its request.
    #[must_use]
    pub fn unexpected(&self, command: &'static str, reply: &Reply) -> Error {
        match reply {
            Reply::Refused(why) => self.0.unexpected(command, why),
            Reply::Text(text) => self.0.unexpected(command, &text.escape_ascii().to_string()),
            reply => self.0.unexpected(command, &format!("{reply:?}")),
        }
    }

    /// The error for a listing of keys that does not end.
    pub(crate) fn endless(&self, why: String) -> Error {
        Error::Endless { address: self.0.address().to_owned(), why }
    }

    fn nested(&mut self, command: &'static str, depth: u8) -> Result<Reply, Error> {
        let line = self.0.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let reply = match (kind, rest.parse::<i64>()) {
            ("+", _) => Some(Reply::Text(rest.as_bytes().to_vec())),
            ("-", _) => Some(Reply::Refused(rest.to_owned())),
            (":", Ok(number)) => Some(Reply::Number(number)),
            ("$" | "*", Ok(-1)) => Some(Reply::Nothing),
            ("$", Ok(len)) => match usize::try_from(len) {
                Ok(len) if len <= TEXT_BYTES_MAX => Some(Reply::Text(self.0.block(len)?)),
                _ => None,
            },
            ("*", Ok(len)) if depth < 4 => match usize::try_from(len) {
                Ok(len) if len <= ENTRIES_MAX => {
                    let mut entries = Vec::new();
                    for _ in 0..len {
                        entries.push(self.nested(command, depth + 1)?);
                    }
                    Some(Reply::List(entries))
                }
                _ => None,
            },
            _ => None,
        };
        reply.ok_or_else(|| self.0.unexpected(command, &line))
    }
}

/// Adds a request.
pub(crate) fn write_request(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
