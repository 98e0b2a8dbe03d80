//! A connection to PostgreSQL: queries as text, and replication. The messages are
//! `postgres-protocol`'s.

use std::io;
use std::time::{Duration, SystemTime};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use changes::pgoutput::EPOCH_US;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{
    AuthenticationSaslBody, DataRowBody, ErrorFields, Header, Message,
};
use postgres_protocol::message::frontend;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{Failure, is_of_skipped};
use super::settings::Settings;
use super::tls::{self, Channel, Secured, Stream};
use crate::source::ssl_mode::SslMode;

/// The time limit for connecting, TLS and the login together.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The time limit for the answer to a query.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The time limit for statements that wait for other transactions: a slot is created after earlier
/// ones have ended, and definitions wait for locks.
pub(super) const OTHERS_MAX: Duration = Duration::from_secs(600);

/// The silence after which the kernel probes the server, so that a query to a vanished server
/// fails.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);

/// The buffer space reserved for each read, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The longest message before the login, in bytes, when the peer may be anyone.
const LOGIN_BYTES_MAX: usize = 64 << 10;

/// The longest message after the login, in bytes: PostgreSQL's own limit for one value.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The setting with which the server sends the database's bytes as they are.
pub(super) const AS_WRITTEN: &str = "SET client_encoding = 'SQL_ASCII'";

/// The setting with which the server reports the changes that it skips.
pub(super) const WITH_WARNINGS: &str = "SET client_min_messages = 'warning'";

/// `CopyBothResponse`, the answer to `START_REPLICATION`, which `postgres-protocol` does not know.
const COPY_BOTH_RESPONSE: u8 = b'W';

/// A connection after the login.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// Bytes of an incomplete message.
    input: BytesMut,
    /// Unsent bytes. They stay here when a sending future is dropped.
    output: BytesMut,
    message_bytes_max: usize,
    /// The database's encoding, as the server reported it at the login.
    encoding: String,
    /// The server did not answer in time. A late answer would be taken for that to another query.
    is_silent: bool,
}

/// A message from the server.
enum Incoming {
    Message(Message),
    CopyBoth,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to `server` (`host:port`) and logs in, for replication or only for queries.
    pub(super) async fn open(
        settings: &Settings,
        server: &str,
        is_replication: bool,
    ) -> Result<Self, Failure> {
        let opening = async {
            let (host, port) = hostport::split(server);
            let port = port.unwrap_or("5432").parse().map_err(io::Error::other)?;
            let tcp = TcpStream::connect((host, port)).await?;
            tcp.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE_AFTER)
                .with_interval(KEEPALIVE_AFTER / 2)
                .with_retries(3);
            SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
            let issuers = settings.sslrootcert.as_ref();
            let mode = SslMode::of(settings.sslmode, host, SslMode::Prefer);
            let secured = tls::secure(tcp, mode, issuers, host).await?;
            let mut connection = Self::log_in(secured, settings, is_replication).await?;
            // The server converts nothing of such a database, but refuses to send bytes that are
            // not UTF-8.
            if connection.encoding == "SQL_ASCII" {
                connection.rows(AS_WRITTEN).await?;
            }
            Ok(connection)
        };
        timeout(CONNECT_MAX, opening).await.map_err(|_| Failure::Silent)?
    }

    async fn log_in(
        secured: Secured,
        settings: &Settings,
        is_replication: bool,
    ) -> Result<Self, Failure> {
        let mut connection = Self {
            stream: secured.stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            message_bytes_max: LOGIN_BYTES_MAX,
            encoding: String::new(),
            is_silent: false,
        };
        let mut parameters = vec![
            ("user", settings.user.as_str()),
            ("database", settings.database.as_str()),
            ("client_encoding", "UTF8"),
            // The log has dates in this session's format.
            ("DateStyle", "ISO"),
        ];
        if is_replication {
            parameters.push(("replication", "database"));
        }
        frontend::startup_message(parameters, &mut connection.output)?;
        loop {
            connection.flush().await?;
            let (user, password) = (settings.user.as_bytes(), settings.password.as_bytes());
            match connection.message().await? {
                Message::AuthenticationOk | Message::BackendKeyData(_) => {}
                Message::ReadyForQuery(_) => break,
                Message::AuthenticationCleartextPassword if secured.is_verified => {
                    frontend::password_message(password, &mut connection.output)?;
                }
                Message::AuthenticationCleartextPassword => return Err(Failure::ClearText),
                Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(user, password, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut connection.output)?;
                }
                Message::AuthenticationSasl(body) => {
                    connection.scram(password, &body, &secured.channel).await?;
                }
                Message::ErrorResponse(body) => return Err(refusal(body.fields())),
                _ => return Err(Failure::Login),
            }
        }
        connection.message_bytes_max = MESSAGE_BYTES_MAX;
        Ok(connection)
    }

    /// Logs in by SCRAM, with channel binding if both sides support it.
    async fn scram(
        &mut self,
        password: &[u8],
        offered: &AuthenticationSaslBody,
        channel: &Channel,
    ) -> Result<(), Failure> {
        let (mut has_plain, mut has_bound) = (false, false);
        let mut mechanisms = offered.mechanisms();
        while let Some(mechanism) = mechanisms.next()? {
            has_plain |= mechanism == SCRAM_SHA_256;
            has_bound |= mechanism == SCRAM_SHA_256_PLUS;
        }
        let (mechanism, binding) = match channel {
            Channel::Certificate(digest) if has_bound => {
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(digest.clone()))
            }
            _ if !has_plain => return Err(Failure::Login),
            // A server that offered a binding thus detects that an attacker removed the offer.
            Channel::Certificate(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            Channel::Unbound => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        let mut scram = ScramSha256::new(password, binding);
        frontend::sasl_initial_response(mechanism, scram.message(), &mut self.output)?;
        self.flush().await?;
        match self.message().await? {
            Message::AuthenticationSaslContinue(body) => scram.update(body.data()),
            Message::ErrorResponse(body) => return Err(refusal(body.fields())),
            _ => return Err(Failure::Unexpected("in a login")),
        }
        .map_err(Failure::Scram)?;
        frontend::sasl_response(scram.message(), &mut self.output)?;
        self.flush().await?;
        match self.message().await? {
            Message::AuthenticationSaslFinal(body) => scram.finish(body.data()),
            Message::ErrorResponse(body) => return Err(refusal(body.fields())),
            _ => return Err(Failure::Unexpected("in a login")),
        }
        .map_err(Failure::Scram)
    }

    /// The database's encoding.
    pub(super) fn encoding(&self) -> &str {
        &self.encoding
    }

    /// Runs a query. Returns its rows; NULL is an empty text.
    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<Vec<String>>, Failure> {
        self.rows_within(query, ANSWER_MAX).await
    }

    /// Like [`Self::rows`], for a query of `N` columns. A pooler may send rows of another width.
    pub(super) async fn rows_of<const N: usize>(
        &mut self,
        query: &str,
    ) -> Result<Vec<[String; N]>, Failure> {
        let row = |row: Vec<String>| {
            row.try_into()
                .map_err(|_| Failure::Unexpected("a row with other columns than the query has"))
        };
        self.rows(query).await?.into_iter().map(row).collect()
    }

    /// Like [`Self::rows`], with another time limit. After that, the connection is unusable.
    pub(super) async fn rows_within(
        &mut self,
        query: &str,
        limit: Duration,
    ) -> Result<Vec<Vec<String>>, Failure> {
        if self.is_silent {
            return Err(Failure::Silent);
        }
        let Ok(rows) = timeout(limit, self.ask(query)).await else {
            self.is_silent = true;
            return Err(Failure::Silent);
        };
        rows
    }

    async fn ask(&mut self, query: &str) -> Result<Vec<Vec<String>>, Failure> {
        frontend::query(query, &mut self.output)?;
        self.flush().await?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            match self.message().await? {
                Message::DataRow(body) => rows.push(texts(&body)?),
                // The server then reports that it is ready again.
                Message::ErrorResponse(body) => refused = Some(refusal(body.fields())),
                Message::ReadyForQuery(_) => return refused.map_or(Ok(rows), Err),
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::EmptyQueryResponse => {}
                _ => return Err(Failure::Unexpected("in the answer to a query")),
            }
        }
    }

    /// Runs a query. Returns the first column of its first row; an empty text if there is none.
    pub(super) async fn text(&mut self, query: &str) -> Result<String, Failure> {
        self.text_within(query, ANSWER_MAX).await
    }

    /// Like [`Self::text`], with another time limit. After that, the connection is unusable.
    pub(super) async fn text_within(
        &mut self,
        query: &str,
        limit: Duration,
    ) -> Result<String, Failure> {
        let rows = self.rows_within(query, limit).await?;
        Ok(rows.into_iter().flatten().next().unwrap_or_default())
    }

    /// Starts the stream of a slot's changes from `start` on, in version 1 of `pgoutput`.
    pub(super) async fn start_replication(
        &mut self,
        slot: &str,
        start: u64,
        publication: &str,
    ) -> Result<(), Failure> {
        let (slot, publication) = (identifier(slot), literal(&identifier(publication)));
        let (high, low) = (start >> 32, start & 0xffff_ffff);
        let command = format!(
            "START_REPLICATION SLOT {slot} LOGICAL {high:X}/{low:X} \
             (proto_version '1', publication_names {publication}, messages 'on')"
        );
        frontend::query(&command, &mut self.output)?;
        let answer = async {
            self.flush().await?;
            self.incoming().await
        };
        match timeout(ANSWER_MAX, answer).await.map_err(|_| Failure::Silent)?? {
            Incoming::CopyBoth => Ok(()),
            Incoming::Message(Message::ErrorResponse(body)) => Err(refusal(body.fields())),
            Incoming::Message(_) => Err(Failure::Unexpected("in place of replication")),
        }
    }

    /// The next message of the stream that [`Self::start_replication`] started. Loses nothing when
    /// the future is dropped.
    pub(super) async fn replicated(&mut self) -> Result<Bytes, Failure> {
        loop {
            return match self.received().await? {
                Incoming::Message(Message::CopyData(body)) => Ok(body.into_bytes()),
                Incoming::Message(Message::ErrorResponse(body)) => Err(refusal(body.fields())),
                Incoming::Message(Message::NoticeResponse(body)) => {
                    let said = said(body.fields());
                    if !is_of_skipped(&said.code, &said.file) {
                        continue;
                    }
                    Err(Failure::Skipped(said.message))
                }
                Incoming::Message(Message::CopyDone) => Err(Failure::Closed),
                _ => Err(Failure::Unexpected("in replication")),
            };
        }
    }

    /// Reports to the server the position read, and the position that it need not keep
    /// (`confirmed`).
    pub(super) async fn report(&mut self, read: u64, confirmed: u64) -> Result<(), Failure> {
        let mut status = BytesMut::with_capacity(34);
        status.put_u8(b'r');
        status.put_u64(read);
        // Written to disk, and applied.
        status.put_u64(confirmed);
        status.put_u64(confirmed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_micros()).map_or(i64::MAX, |now| now - EPOCH_US);
        status.put_i64(now);
        // No answer is requested.
        status.put_u8(0);
        frontend::CopyData::new(status.freeze())?.write(&mut self.output);
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        while self.output.has_remaining() {
            if self.stream.write_buf(&mut self.output).await? == 0 {
                return Err(Failure::Closed);
            }
        }
        Ok(self.stream.flush().await?)
    }

    /// The next message, without notices and the like.
    async fn message(&mut self) -> Result<Message, Failure> {
        match self.incoming().await? {
            Incoming::Message(message) => Ok(message),
            Incoming::CopyBoth => Err(Failure::Unexpected("replication")),
        }
    }

    async fn incoming(&mut self) -> Result<Incoming, Failure> {
        loop {
            match self.received().await? {
                Incoming::Message(Message::NoticeResponse(_)) => {}
                other => return Ok(other),
            }
        }
    }

    /// The next message, or notice.
    async fn received(&mut self) -> Result<Incoming, Failure> {
        loop {
            while let Some(incoming) = self.parse()? {
                match incoming {
                    Incoming::Message(Message::ParameterStatus(body)) => {
                        if body.name()? == "server_encoding" {
                            body.value()?.clone_into(&mut self.encoding);
                        }
                    }
                    Incoming::Message(Message::NotificationResponse(_)) => {}
                    other => return Ok(other),
                }
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(Failure::Closed);
            }
        }
    }

    /// The message read, if it is whole.
    fn parse(&mut self) -> Result<Option<Incoming>, Failure> {
        let Some(header) = Header::parse(&self.input)? else { return Ok(None) };
        // The length does not count the tag. It is at least four.
        let len = header.len().unsigned_abs() as usize + 1;
        if len > self.message_bytes_max {
            return Err(Failure::TooLong(len));
        }
        if self.input.len() < len {
            return Ok(None);
        }
        if header.tag() == COPY_BOTH_RESPONSE {
            self.input.advance(len);
            return Ok(Some(Incoming::CopyBoth));
        }
        Ok(Message::parse(&mut self.input)?.map(Incoming::Message))
    }
}

/// The values of a row.
fn texts(row: &DataRowBody) -> Result<Vec<String>, Failure> {
    let bytes = row.buffer();
    let text = |range: Option<std::ops::Range<usize>>| {
        let bytes = range.and_then(|range| bytes.get(range)).unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    };
    Ok(row.ranges().map(text).collect()?)
}

/// The server's error message.
fn refusal(fields: ErrorFields<'_>) -> Failure {
    let Said { code, message, .. } = said(fields);
    Failure::Refused { code, message }
}

/// An error or a notice.
#[derive(Default)]
struct Said {
    /// The SQLSTATE.
    code: String,
    /// The message with the detail.
    message: String,
    /// The server's source file that sent it.
    file: String,
}

fn said(mut fields: ErrorFields<'_>) -> Said {
    let (mut said, mut detail) = (Said::default(), String::new());
    // A damaged field ends the list; the fields before it are still useful.
    while let Ok(Some(field)) = fields.next() {
        let part = match field.type_() {
            b'C' => &mut said.code,
            b'M' => &mut said.message,
            b'D' => &mut detail,
            b'F' => &mut said.file,
            _ => continue,
        };
        *part = String::from_utf8_lossy(field.value_bytes()).into_owned();
    }
    if !detail.is_empty() {
        said.message = format!("{} ({detail})", said.message);
    }
    said
}

/// A name as SQL writes it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string as SQL writes it.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// A message as servers send it.
    pub(in super::super) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &len, body].concat()
    }

    pub(in super::super) fn settings() -> Settings {
        Settings {
            servers: Vec::new(),
            user: "app".to_owned(),
            password: "secret".to_owned(),
            database: "shop".to_owned(),
            slot: "slot".to_owned(),
            publication: "cached".to_owned(),
            sslmode: Some(SslMode::Disable),
            sslrootcert: None,
            check_every: Duration::MAX,
            is_shared: false,
        }
    }

    /// A client that logs in while the server sends `said`, and the server's end.
    async fn log_in(said: &[u8]) -> (Result<Connection, Failure>, DuplexStream) {
        log_in_to(said, false).await
    }

    async fn log_in_to(
        said: &[u8],
        is_verified: bool,
    ) -> (Result<Connection, Failure>, DuplexStream) {
        let (near, mut far) = duplex(1 << 16);
        far.write_all(said).await.unwrap();
        let secured = Secured { stream: Box::new(near), channel: Channel::Unbound, is_verified };
        (Connection::log_in(secured, &settings(), true).await, far)
    }

    async fn sent(far: &mut DuplexStream) -> Vec<u8> {
        let mut bytes = BytesMut::with_capacity(4096);
        far.read_buf(&mut bytes).await.unwrap();
        bytes.to_vec()
    }

    pub(in super::super) const READY: &[u8] = b"Z\0\0\0\x05I";

    #[tokio::test]
    async fn a_login_by_md5_sends_the_salted_digest() {
        let mut said = message(b'R', b"\0\0\0\x05salt");
        said.extend(message(b'R', &[0; 4]));
        said.extend(message(b'S', b"server_version\x0015\0"));
        said.extend(message(b'S', b"server_encoding\0LATIN1\0"));
        said.extend_from_slice(READY);
        let (opened, mut far) = log_in(&said).await;
        assert_eq!(opened.unwrap().encoding(), "LATIN1");
        let startup = b"\0\x03\0\0user\0app\0database\0shop\0client_encoding\0UTF8\0DateStyle\0ISO\0replication\0database\0\0";
        let digest = md5_hash(b"app", b"secret", *b"salt");
        let password = message(b'p', format!("{digest}\0").as_bytes());
        let len = u32::try_from(startup.len() + 4).unwrap().to_be_bytes();
        assert_eq!(sent(&mut far).await, [&len[..], startup, &password].concat());
    }

    #[tokio::test]
    async fn only_a_verified_server_gets_the_password_in_clear_text() {
        let said = [&message(b'R', b"\0\0\0\x03")[..], &message(b'R', &[0; 4]), READY].concat();
        let (refused, mut far) = log_in_to(&said, false).await;
        assert!(matches!(refused, Err(Failure::ClearText)));
        let secret = message(b'p', b"secret\0");
        assert!(!sent(&mut far).await.ends_with(&secret));
        let (opened, mut far) = log_in_to(&said, true).await;
        opened.unwrap();
        assert!(sent(&mut far).await.ends_with(&secret));
    }

    #[tokio::test]
    async fn a_login_of_another_kind_is_refused() {
        // GSSAPI; SCRAM with another hash; and a message longer than any before the login.
        for said in [message(b'R', b"\0\0\0\x07"), message(b'R', b"\0\0\0\x0aSCRAM-SHA-1\0\0")] {
            assert!(matches!(log_in(&said).await.0, Err(Failure::Login)));
        }
        assert!(matches!(log_in(b"E\x7f\0\0\0").await.0, Err(Failure::TooLong(_))));
        let refused = message(b'E', b"SFATAL\0C28P01\0Mwrong\0Dno such user\0\0");
        let Err(Failure::Refused { code, message }) = log_in(&refused).await.0 else { panic!() };
        assert_eq!((code.as_str(), message.as_str()), ("28P01", "wrong (no such user)"));
    }

    #[tokio::test]
    async fn split_rows_are_read_and_errors_keep_the_connection_usable() {
        let (opened, mut far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
        let mut connection = opened.unwrap();
        let mut said = message(b'N', b"SNOTICE\0\0");
        said.extend(message(b'D', b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0"));
        said.extend(message(b'C', b"SELECT 1\0"));
        said.extend_from_slice(READY);
        said.extend(message(b'E', b"C42601\0Msyntax\0\0"));
        said.extend_from_slice(READY);
        let server = tokio::spawn(async move {
            for byte in said {
                far.write_u8(byte).await.unwrap();
                tokio::task::yield_now().await;
            }
            far
        });
        assert_eq!(connection.rows("SELECT").await.unwrap(), [["a", "", ""]]);
        assert!(matches!(connection.text("SELEC").await, Err(Failure::Refused { .. })));
        drop(server.await.unwrap());
        assert!(matches!(connection.text("SELECT").await, Err(Failure::Io(_) | Failure::Closed)));
    }

    #[tokio::test]
    async fn a_row_of_another_width_is_unexpected() {
        for (row, is_of_two) in [
            (&b"\0\x01\0\0\0\x01a"[..], false),
            (b"\0\x02\0\0\0\x01a\0\0\0\x01b", true),
            (b"\0\x03\0\0\0\x01a\0\0\0\x01b\0\0\0\x01c", false),
        ] {
            let sent = [&message(b'R', &[0; 4]), READY, &message(b'D', row), READY].concat();
            let (opened, _far) = log_in(&sent).await;
            match opened.unwrap().rows_of::<2>("SELECT").await {
                Ok(rows) => assert!(is_of_two && rows == [["a", "b"]]),
                Err(Failure::Unexpected(_)) => assert!(!is_of_two),
                Err(failure) => panic!("{failure}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out() {
        let (opened, _far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
        let mut connection = opened.unwrap();
        assert!(matches!(connection.rows("SELECT").await, Err(Failure::Silent)));
        // Its answer may still come.
        assert!(matches!(connection.text("SELECT").await, Err(Failure::Silent)));
        let (opened, _far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
        let begun = opened.unwrap().start_replication("slot", 1, "a").await;
        assert!(matches!(begun, Err(Failure::Silent)));
    }

    #[tokio::test]
    async fn replication_starts_and_sends_status_updates() {
        let (opened, mut far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
        let mut connection = opened.unwrap();
        drop(sent(&mut far).await);
        far.write_all(&message(b'W', b"\0\0\0")).await.unwrap();
        connection.start_replication("slot", 0x16_B374_D848, "a\"b").await.unwrap();
        let command = "START_REPLICATION SLOT \"slot\" LOGICAL 16/B374D848 \
                       (proto_version '1', publication_names '\"a\"\"b\"', messages 'on')\0";
        assert_eq!(sent(&mut far).await, message(b'Q', command.as_bytes()));
        far.write_all(&message(b'd', b"kxyz")).await.unwrap();
        assert_eq!(connection.replicated().await.unwrap(), &b"kxyz"[..]);
        connection.report(0x1_0000_0001, 7).await.unwrap();
        let report = sent(&mut far).await;
        let positions = b"r\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x07";
        assert_eq!(report.get(..30), Some(&[b"d\0\0\0\x26", &positions[..]].concat()[..]));
        assert_eq!(report.len(), 39);
        far.write_all(&message(b'c', b"")).await.unwrap();
        assert!(matches!(connection.replicated().await, Err(Failure::Closed)));
    }

    #[tokio::test]
    async fn a_warning_of_skipped_changes_ends_the_log() {
        let (opened, mut far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
        let mut connection = opened.unwrap();
        far.write_all(&message(b'N', b"SNOTICE\0C00000\0Mother\0\0")).await.unwrap();
        far.write_all(&message(b'd', b"kxyz")).await.unwrap();
        assert_eq!(connection.replicated().await.unwrap(), &b"kxyz"[..]);
        // PostgreSQL 17 waits for a standby, and skips nothing.
        let waits = b"SWARNING\0VWARNING\0C55000\0Mreplication slot \"ps9\" specified in parameter \
                      \"synchronized_standby_slots\" does not have active_pid\0DLogical replication is \
                      waiting on the standby associated with replication slot \"ps9\".\0Fslot.c\0\
                      L2800\0RStandbySlotsHaveCaughtup\0\0";
        far.write_all(&message(b'N', waits)).await.unwrap();
        far.write_all(&message(b'd', b"kxyz")).await.unwrap();
        assert_eq!(connection.replicated().await.unwrap(), &b"kxyz"[..]);
        let warning = b"SWARNING\0VWARNING\0C55000\0Mskipped loading publication \"cached\"\0\
                        DThe publication does not exist at this point in the WAL.\0\
                        Fpgoutput.c\0L1827\0RLoadPublications\0\0";
        far.write_all(&message(b'N', warning)).await.unwrap();
        let Err(Failure::Skipped(why)) = connection.replicated().await else { panic!() };
        assert_eq!(
            why,
            "skipped loading publication \"cached\" (The publication does not exist at this point \
             in the WAL.)"
        );
    }

    fn row(values: &[&str]) -> Vec<u8> {
        let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
        for value in values {
            body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            body.extend(value.as_bytes());
        }
        message(b'D', &body)
    }

    /// A slot that is created has a `restart_lsn` at or after the end of the log at that time.
    #[tokio::test]
    async fn a_slot_created_after_the_checkpoint_is_no_handover() {
        use crate::change_source::SourceError;
        // The slot is at 9.
        let open = async |restart: &str, active: &str, from: Option<u64>| {
            let slot = row(&["0/9", "reserved", "pgoutput", restart, active, ""]);
            let (opened, _far) =
                log_in(&[&message(b'R', &[0; 4]), READY, &slot, READY].concat()).await;
            let settings = Settings { is_shared: true, ..settings() };
            super::super::slot(&mut opened.unwrap(), &settings, "db", from).await
        };
        assert_eq!(open("0/5", "false", Some(6)).await, Ok((9, 9)), "another one moved it");
        for restart in ["0/6", "0/7", ""] {
            let opened = open(restart, "false", Some(6)).await;
            assert!(matches!(opened, Err(SourceError::Purged(_))), "{opened:?}");
        }
        assert!(matches!(open("0/7", "true", Some(6)).await, Err(SourceError::Lost(_))));
        assert_eq!(open("0/9", "false", Some(9)).await, Ok((9, 9)));
        assert_eq!(open("0/5", "false", Some(12)).await, Ok((12, 9)), "that is not confirmed");
        assert_eq!(open("0/7", "false", None).await, Ok((9, 9)), "the first start");
    }

    /// A server that shuts down requests an answer after each other one.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_shuts_down_learns_the_newest_position() {
        use super::super::{Reading, tests::reading};
        use changes::change::Event;
        // Keepalives with a request at 9; the position in the last answer.
        async fn answers(delivered: u64, pause: Duration) -> Vec<u64> {
            let (opened, mut far) = log_in(&[&message(b'R', &[0; 4]), READY].concat()).await;
            drop(sent(&mut far).await);
            let mut reading: Reading = reading(opened.unwrap(), 9);
            let mut confirmed = Vec::new();
            for _ in 0..2 {
                let alive = [&b"k"[..], &9u64.to_be_bytes(), &[0; 8], &[1]].concat();
                far.write_all(&message(b'd', &alive)).await.unwrap();
                assert!(matches!(reading.next(5, delivered).await, Ok(Event::Alive)));
                let answer = sent(&mut far).await;
                // Tag, length, `r`, the position read, and the one that is on the disk.
                confirmed.push(u64::from_be_bytes(answer[14..22].try_into().unwrap()));
                tokio::time::advance(pause).await;
            }
            confirmed
        }
        assert_eq!(answers(9, Duration::ZERO).await, [5, 9]);
        assert_eq!(answers(8, Duration::ZERO).await, [5, 5], "not all of its log was executed");
        assert_eq!(answers(9, Duration::from_secs(2)).await, [5, 5], "the log is idle");
    }

    #[tokio::test]
    async fn a_standby_with_the_slot_starts_at_the_end_that_it_has_replayed() {
        let slot = row(&["0/1", "reserved", "pgoutput", "0/1", "false", ""]);
        let said = [&message(b'R', &[0; 4]), READY, &slot, READY, &row(&["0/7"]), READY].concat();
        let (opened, mut far) = log_in(&said).await;
        let start = super::super::slot(&mut opened.unwrap(), &settings(), "db", None).await;
        assert_eq!(start, Ok((7, 1)));
        let mut asked = Vec::new();
        far.read_to_end(&mut asked).await.unwrap();
        // `pg_current_wal_lsn` fails there.
        assert!(String::from_utf8_lossy(&asked).contains("THEN pg_last_wal_replay_lsn()"));
    }

    #[tokio::test]
    async fn a_standby_without_the_slot_has_not_lost_it() {
        // No slot; whether the server is in recovery.
        let with = async |is_standby: &str, servers: usize, from: Option<u64>| {
            let len = u32::try_from(is_standby.len()).unwrap().to_be_bytes();
            let row = message(b'D', &[&b"\0\x01"[..], &len, is_standby.as_bytes()].concat());
            let said = [&message(b'R', &[0; 4]), READY, READY, &row, READY].concat();
            let (opened, _far) = log_in(&said).await;
            let settings = Settings { servers: vec![String::new(); servers], ..settings() };
            super::super::slot(&mut opened.unwrap(), &settings, "db", from).await.unwrap_err()
        };
        use crate::change_source::SourceError;
        assert!(matches!(with("true", 2, Some(7)).await, SourceError::Lost(_)));
        assert!(matches!(with("true", 2, None).await, SourceError::Lost(_)), "none is made there");
        assert!(matches!(with("false", 2, Some(7)).await, SourceError::Purged(_)));
    }

    /// The server waits for every running transaction.
    #[tokio::test(start_paused = true)]
    async fn a_hanging_slot_creation_times_out() {
        let primary = message(b'D', b"\0\x01\0\0\0\x05false");
        let no_row = READY;
        // No slot, no standby, and none that the server waits for.
        let said = [&message(b'R', &[0; 4]), READY, no_row, &primary, READY, no_row].concat();
        let (opened, _far) = log_in(&said).await;
        let begun = tokio::time::Instant::now();
        let made = super::super::slot(&mut opened.unwrap(), &settings(), "db", None).await;
        assert_eq!(
            made,
            Err(crate::change_source::SourceError::Lost("db: the server is silent".into()))
        );
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
