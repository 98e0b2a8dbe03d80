//! Lines from stdin, or from one connection at a time, and the answers to them.
//!
//! ```text
//!     {"resume":"41"}        to a new sender: send what follows this; null at the first start
//!     {"delivered":"57"}     everything up to here was delivered
//! ```
//!
//! A separate task writes answers, so a sender that does not read them delays nothing.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{LINE_BYTES_MAX, Places};
use crate::change_source::SourceError;

/// The time after which a wait for a line is interrupted to report that the sender is still there.
const QUIET: Duration = Duration::from_secs(1);

type Reader = Box<dyn AsyncBufRead + Send + Unpin>;

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end.
    Whole(Vec<u8>),
    /// A line longer than [`LINE_BYTES_MAX`], which was skipped.
    TooLong,
    /// Nothing came for a while.
    Nothing,
}

/// The input and its current sender.
pub(super) struct Input {
    listener: Option<Listener>,
    sender: Sender,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("listener", &self.listener).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

struct Sender {
    reader: Reader,
    /// The start of an unfinished line.
    line: Vec<u8>,
    /// True while the rest of a line is skipped.
    is_too_long: bool,
    answers: watch::Sender<String>,
    writing: JoinHandle<()>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.writing.abort();
    }
}

impl Sender {
    fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        first: String,
    ) -> Self {
        let (answers, answered) = watch::channel(String::new());
        let writing = tokio::spawn(write(writer, first, answered));
        let reader = Box::new(BufReader::with_capacity(1 << 16, reader));
        Self { reader, line: Vec::new(), is_too_long: false, answers, writing }
    }
}

/// The first line to a sender.
fn resume(places: &Places) -> String {
    let place = if places.is_empty() { Value::Null } else { told(places) };
    format!("{}\n", json!({ "resume": place }))
}

/// Writes the first answer, and then the newest one whenever it changes.
async fn write(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut answer: String,
    mut answers: watch::Receiver<String>,
) {
    loop {
        let written = async {
            writer.write_all(answer.as_bytes()).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            // A lost sender is noticed where its lines are read.
            return;
        }
        if answers.changed().await.is_err() {
            return;
        }
        answer.clone_from(&answers.borrow_and_update());
    }
}

/// A place as a sender reads it: the text that it sent, or an object if the input has parts.
fn told(places: &Places) -> Value {
    match places.get("") {
        Some(place) if places.len() == 1 => json!(place),
        _ => json!(places),
    }
}

impl Input {
    /// Opens stdin, or listens and waits for the first sender.
    ///
    /// # Errors
    ///
    /// When it cannot listen there.
    pub(super) async fn open(listen: Option<&str>, places: &Places) -> Result<Self, SourceError> {
        let listener = match listen {
            None => None,
            Some(address) => Some(bind(address).await.map_err(|error| {
                SourceError::Wrong(format!("source.listen: {address}: {error}"))
            })?),
        };
        let sender = match &listener {
            None => {
                standard(places).map_err(|error| SourceError::Wrong(format!("stdin: {error}")))?
            }
            Some(listener) => listener.accept(places).await?,
        };
        Ok(Self { listener, sender })
    }

    /// Waits for the next sender, which starts after `places`.
    pub(super) async fn next_sender(&mut self, places: &Places) -> Result<(), SourceError> {
        let Some(listener) = &self.listener else {
            return Err(SourceError::Wrong("stdin cannot be read again".to_owned()));
        };
        self.sender = listener.accept(places).await?;
        Ok(())
    }

    /// The next line. Loses nothing when the future is dropped.
    ///
    /// # Errors
    ///
    /// [`SourceError::Ended`] when the sender is gone, [`SourceError::Over`] at the end of stdin.
    pub(super) async fn line(&mut self) -> Result<Line, SourceError> {
        let sender = &mut self.sender;
        let Ok(read) = timeout(QUIET, read(sender)).await else { return Ok(Line::Nothing) };
        match read {
            Ok(Some(line)) => Ok(line),
            Ok(None) if self.listener.is_some() => {
                Err(SourceError::Ended("the sender is gone".to_owned()))
            }
            Ok(None) if sender.line.is_empty() && !sender.is_too_long => Err(SourceError::Over),
            Ok(None) => Err(SourceError::Wrong("the input ended inside of a line".to_owned())),
            Err(error) if self.listener.is_some() => {
                Err(SourceError::Ended(format!("the sender is gone: {error}")))
            }
            Err(error) => Err(SourceError::Wrong(format!("stdin: {error}"))),
        }
    }

    /// Reports the delivered position to the sender.
    pub(super) fn confirm(&self, places: &Places) {
        self.sender.answers.send_replace(format!("{}\n", json!({ "delivered": told(places) })));
    }
}

/// Stdin and stdout as a sender. The runtime can wait for neither, whatever they are, so a thread
/// for each copies the bytes.
fn standard(places: &Places) -> io::Result<Sender> {
    // This comes before anything can replace or end the process.
    let mut stdout = io::stdout();
    stdout.write_all(resume(places).as_bytes())?;
    stdout.flush()?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let (mut lines, mut answers) = (theirs.try_clone()?, theirs);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // A failure looks like the end: a partial line is reported.
        let _ = io::copy(&mut io::stdin().lock(), &mut lines);
        let _ = lines.shutdown(Shutdown::Write);
    })?;
    thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        // A sender may ignore the answers.
        let _ = io::copy(&mut answers, &mut stdout);
    })?;
    let (reader, writer) = tokio::net::UnixStream::from_std(ours)?.into_split();
    Ok(Sender::new(reader, writer, String::new()))
}

/// The next line; none at the end.
async fn read(sender: &mut Sender) -> io::Result<Option<Line>> {
    loop {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(sender.line.len()) as u64;
        let len = (&mut sender.reader).take(room).read_until(b'\n', &mut sender.line).await?;
        if sender.line.last() == Some(&b'\n') {
            sender.line.pop();
            let line = std::mem::take(&mut sender.line);
            let was_too_long = std::mem::take(&mut sender.is_too_long);
            return Ok(Some(if was_too_long { Line::TooLong } else { Line::Whole(line) }));
        }
        if len == 0 && room > 0 {
            return Ok(None);
        }
        if sender.line.len() > LINE_BYTES_MAX {
            sender.is_too_long = true;
            sender.line = Vec::new();
        }
    }
}

/// Listens at an address, or at a path. An existing socket without a listener is replaced.
async fn bind(address: &str) -> io::Result<Listener> {
    if !address.starts_with('/') {
        return Ok(Listener::Tcp(TcpListener::bind(address).await?));
    }
    let is_socket = std::fs::symlink_metadata(address).is_ok_and(|it| it.file_type().is_socket());
    if is_socket && tokio::net::UnixStream::connect(address).await.is_err() {
        std::fs::remove_file(address)?;
    }
    Ok(Listener::Unix(UnixListener::bind(address)?))
}

impl Listener {
    async fn accept(&self, places: &Places) -> Result<Sender, SourceError> {
        let lost = |error: io::Error| SourceError::Lost(format!("no sender: {error}"));
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await.map_err(lost)?;
                let (reader, writer) = stream.into_split();
                Ok(Sender::new(reader, writer, resume(places)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await.map_err(lost)?;
                let (reader, writer) = stream.into_split();
                Ok(Sender::new(reader, writer, resume(places)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn sender(bytes: &[u8]) -> Sender {
        let reader = io::Cursor::new(bytes.to_vec());
        Sender::new(reader, tokio::io::sink(), String::new())
    }

    #[tokio::test]
    async fn lines_are_split_and_overlong_ones_are_skipped() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let longer = vec![b'y'; LINE_BYTES_MAX * 2 + 5];
        let bytes = [&b"a\n\n"[..], &long, b"\n", &longer, b"\nb\nc"].concat();
        let mut sender = sender(&bytes);
        let mut lines = Vec::new();
        while let Some(line) = read(&mut sender).await.unwrap() {
            lines.push(line);
        }
        let whole = |line: &[u8]| Line::Whole(line.to_vec());
        assert_eq!(lines, [whole(b"a"), whole(b""), whole(&long), Line::TooLong, whole(b"b")]);
        assert_eq!(sender.line, b"c", "a part of a line is none");
    }

    #[tokio::test]
    async fn a_sender_learns_where_to_resume_and_what_was_delivered() {
        let (ours, theirs) = duplex(1000);
        let (reader, writer) = tokio::io::split(ours);
        let place = |text: &str| Places::from([(String::new(), text.to_owned())]);
        let sender = Sender::new(reader, writer, resume(&place("41")));
        let mut lines = BufReader::new(theirs).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), r#"{"resume":"41"}"#);
        let input = Input { listener: None, sender };
        input.confirm(&place("57"));
        assert_eq!(lines.next_line().await.unwrap().unwrap(), r#"{"delivered":"57"}"#);
        input.confirm(&Places::from([("t/0".to_owned(), "7".to_owned())]));
        assert_eq!(lines.next_line().await.unwrap().unwrap(), r#"{"delivered":{"t/0":"7"}}"#);
    }
}
